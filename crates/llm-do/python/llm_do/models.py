"""Models behind endpoints of one's own: providers that Python files of a project register by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Union

__all__ = ["OpenAICompatibleProvider", "pydantic_ai_model", "register_model_factory", "resolve_model"]

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class OpenAICompatibleProvider:
    """An endpoint that speaks OpenAI's Chat Completions. Requests to it are made by llm-do, not by Python."""

    def __init__(self, base_url: str, api_key: Union[str, None] = None, name: str = "openai-compatible") -> None:
        self.base_url, self.api_key, self.name = base_url, api_key, name

    def __repr__(self) -> str:
        # The key is nobody's to read.
        return f"OpenAICompatibleProvider({self.base_url!r})"


Factory = Union[OpenAICompatibleProvider, Callable[[str], Any]]

_factories: dict[str, Factory] = {}


def register_model_factory(prefix: str, factory: Factory, replace: bool = False) -> None:
    """Makes `prefix:model` a model that workers may use.

    `factory` is the endpoint, or a function of the model's name that gives it: an `OpenAICompatibleProvider`, or anything
    else with a `base_url` (and an `api_key`). In a file of a project to be called while it is imported, in a program before a run.
    """
    if not isinstance(prefix, str) or not _PREFIX.match(prefix.strip()):
        raise ValueError(f"{prefix!r} is not a prefix: letters, digits, `_` and `-`, at most 64")
    if not callable(factory) and not hasattr(factory, "base_url"):
        raise TypeError(f"{factory!r} is neither an endpoint nor a function that gives one")
    prefix = prefix.strip()
    if prefix in _factories and not replace:
        raise ValueError(f"`{prefix}` is registered already; `replace=True` replaces it")
    _factories[prefix] = factory


def registered() -> list[str]:
    return sorted(_factories)


def endpoint(prefix: str, model: str) -> OpenAICompatibleProvider:
    """Where a model of a registered provider is."""
    factory = _factories[prefix]
    made = factory if hasattr(factory, "base_url") else factory(model)
    # PydanticAI's own provider keeps the key in its client.
    key = getattr(made, "api_key", None) or getattr(getattr(made, "client", None), "api_key", None)
    base_url = getattr(made, "base_url", None)
    if not base_url:
        raise TypeError(
            f"the factory of `{prefix}` gave {made!r}, which has no `base_url`: llm-do makes the"
            " requests itself. Give an OpenAICompatibleProvider, or follow a script with the model `scripted:FILE`"
        )
    return OpenAICompatibleProvider(str(base_url), None if key is None else str(key), prefix)


def providers_of(models: Iterable[Union[str, None]]) -> dict[str, dict[str, Union[str, None]]]:
    """Where the registered providers of these models are, as a run is told of them."""
    found: dict[str, dict[str, Union[str, None]]] = {}
    for prefix, _, name in (model.partition(":") for model in models if model):
        if prefix in _factories:
            made = endpoint(prefix, name)
            told = {"base_url": made.base_url, "api_key": made.api_key}
            if found.setdefault(prefix, told) != told:
                raise ValueError(f"the models of `{prefix}` are at several addresses: register one prefix for each")
    return found


def model_name(model: Any) -> str:
    """`provider:model`, which is all that llm-do takes: it makes the requests itself."""
    if isinstance(model, str):
        return str(model)
    raise TypeError(
        f"{model!r} is no name of a model, and llm-do makes the requests itself: give its name, register its endpoint"
        " with register_model_factory and OpenAICompatibleProvider, or follow a script with `scripted:FILE`"
    )


def resolve_model(model: str) -> str:
    """A model by its name, which is what agents take. One of a registered provider is looked for, so that a factory which
    cannot make it says so here."""
    prefix, _, name = model_name(model).partition(":")
    if prefix in _factories:
        endpoint(prefix, name)
    return model


def pydantic_ai_model(model: str) -> Any:
    """A model for agents that Python code runs itself, with PydanticAI: one of a registered provider, else the name as it is."""
    prefix, _, name = model.partition(":")
    if prefix not in _factories:
        return model
    found = endpoint(prefix, name)
    try:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
    except ImportError as error:
        raise ImportError(f"`{model}` in Python needs PydanticAI with OpenAI's client: pip install 'pydantic-ai-slim[openai]'") from error
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=found.base_url, api_key=found.api_key or "unused"))
