"""Input and output classes: Pydantic says what fits, and how an input is told to an agent."""

from __future__ import annotations

import importlib
import os
from typing import Any

from llm_do._host.exports import Mistake, imported
from llm_do._host.faults import install_command
from llm_do.runtime import Attachment


class Classes:
    """The classes that worker files refer to."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._classes: dict[str, Any] = {}

    def resolve(self, reference: str, file: str | None, module: str | None, name: str, direction: str) -> dict[str, Any]:
        """The JSON Schema of a class; raises `Mistake` if it cannot be one."""
        try:
            found = imported(os.path.join(self._root, file), file) if file else importlib.import_module(module or "")
        except ModuleNotFoundError as error:
            raise Mistake(f"{error}") from error
        kind = getattr(found, name, None)
        where = file or module
        if kind is None:
            raise Mistake(f"{where} has no class `{name}`")
        try:
            from pydantic import BaseModel
        except ModuleNotFoundError as error:
            raise Mistake(f"`{name}` needs Pydantic, which is not installed: {install_command()}") from error
        if not isinstance(kind, type) or not issubclass(kind, BaseModel):
            raise Mistake(f"`{name}` of {where} is not a Pydantic model")
        if direction == "input":
            check_input(kind, name, str(where))
        self._classes[reference] = kind
        return kind.model_json_schema()

    def add(self, reference: str, kind: Any) -> dict[str, Any]:
        check_input(kind, kind.__name__, kind.__module__)
        self._classes[reference] = kind
        schema: dict[str, Any] = kind.model_json_schema()
        return schema

    def instance(self, reference: str, value: Any) -> Any:
        """Raises Pydantic's `ValidationError`."""
        return self._classes[reference].model_validate(value)

    def parse(self, reference: str, text: str) -> Any:
        return self._classes[reference].model_validate_json(text)

    def rendered(self, reference: str, value: Any) -> list[dict[str, str]]:
        parts = self.instance(reference, value).prompt_messages()
        if isinstance(parts, (str, Attachment)):
            parts = [parts]
        return [part_of(part) for part in parts]


def check_input(kind: Any, name: str, where: str) -> None:
    from llm_do._args import WorkerArgs

    if not isinstance(kind, type) or not issubclass(kind, WorkerArgs):
        raise Mistake(f"the input class `{name}` of {where} does not subclass WorkerArgs")
    if kind.prompt_messages is WorkerArgs.prompt_messages:
        raise Mistake(f"the input class `{name}` of {where} has no prompt_messages()")


def part_of(part: Any) -> dict[str, str]:
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, Attachment):
        return {"attachment": str(part.path)}
    raise TypeError(f"prompt_messages() returned {part!r}, which is neither text nor an Attachment")
