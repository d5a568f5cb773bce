"""The base of typed inputs. Apart from `runtime`, because it needs Pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from llm_do.runtime import PromptContent, PromptInput


class _Kind(type(BaseModel)):  # type: ignore[misc]
    """A `PromptInput` is a `WorkerArgs` in all but Pydantic, which nobody needs for plain text."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if isinstance(instance, PromptInput):
            return cls is WorkerArgs
        return bool(super().__instancecheck__(instance))


class WorkerArgs(BaseModel, metaclass=_Kind):
    """A typed input: its fields are what callers give, `prompt_messages` is what the agent reads."""

    def prompt_messages(self) -> list[PromptContent]:
        raise NotImplementedError(f"{type(self).__name__} has no prompt_messages()")


AgentArgs = WorkerArgs
