"""Live toolsets: plain functions here, PydanticAI's in `pydantic_tools`. One is opened for each call of an agent."""

from __future__ import annotations

import contextvars
import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol, Union

from llm_do._host.signature import Invalid, Signature
from llm_do.runtime import CallContext
from llm_do.toolsets.approval import get_toolset_approval_config


class ApprovalNeeded(Exception):
    """Code decided in the middle of a call that somebody has to agree to it."""


class Toolset(Protocol):
    """What llm-do asks of a live toolset."""

    def specs(self) -> list[dict[str, Any]]: ...

    async def judge(self, tool: str, arguments: Any, context: CallContext) -> dict[str, Any]: ...

    async def call(self, tool: str, arguments: Any, context: CallContext, call: dict[str, Any]) -> Any: ...

    async def close(self) -> None: ...


async def run(function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Calls a function: an async one on the loop, any other on a thread."""
    import asyncio
    import inspect

    from llm_do._host.threads import threads

    if inspect.iscoroutinefunction(function):
        return await function(*positional, **named)
    context = contextvars.copy_context()
    work = functools.partial(context.run, functools.partial(function, *positional, **named))
    result = await asyncio.get_running_loop().run_in_executor(threads(), work)
    return await result if inspect.isawaitable(result) else result


async def maybe_await(value: Any) -> Any:
    import inspect

    return await value if inspect.isawaitable(value) else value


def verdict_of(config: dict[str, dict[str, Any]], tool: str) -> str:
    """Custom tools ask, unless their own configuration says otherwise."""
    return "allow" if config.get(tool, {}).get("pre_approved") else "ask"


def known_tools(value: Any) -> Union[list[dict[str, str]], None]:
    """The tools of a toolset that has the same ones in every call; `None` if only a call can find out."""
    library = sys.modules.get("pydantic_ai.toolsets")
    kind = getattr(library, "FunctionToolset", None)
    made, config = without_callback(value)
    if kind is None or not isinstance(made, kind):
        return None
    # Code that runs for each call may give it others.
    for method in ("for_run", "get_tools", "__aenter__"):
        if getattr(type(made), method, None) is not getattr(kind, method, None):
            return None
    tools = getattr(made, "tools", None)
    if not isinstance(tools, dict) or any(getattr(tool, "prepare", None) is not None for tool in tools.values()):
        return None
    config = {**config, **get_toolset_approval_config(made)}
    is_dynamic = callable(getattr(made, "needs_approval", None))
    return [{"name": name, "verdict": "dynamic" if is_dynamic else verdict_of(config, name)} for name in tools]


def without_callback(made: Any) -> tuple[Any, dict[str, Any]]:
    """What an `ApprovalToolset` wraps, and its configuration: llm-do's gate asks in the place of its callback."""
    library = sys.modules.get("pydantic_ai_blocking_approval")
    config: dict[str, Any] = {}
    while library is not None and isinstance(made, library.ApprovalToolset):
        config, made = {**made.config, **config}, made._inner
    return made, config


class PlainTool:
    """One function as a toolset of one."""

    def __init__(self, name: str, function: Callable[..., Any], signature: Signature) -> None:
        self._name, self._function, self._signature = name, function, signature
        self._config = get_toolset_approval_config(function)

    def specs(self) -> list[dict[str, Any]]:
        return [
            {
                "name": self._name,
                "description": self._signature.description,
                "parameters": self._signature.schema,
                "verdict": verdict_of(self._config, self._name),
                "takes_context": self._signature.takes_context,
                "sequential": False,
            }
        ]

    async def judge(self, tool: str, arguments: Any, context: CallContext) -> dict[str, Any]:
        try:
            self._signature.arguments(arguments)
        except Invalid as invalid:
            return {"invalid": str(invalid)}
        return {"verdict": verdict_of(self._config, tool)}

    async def call(self, tool: str, arguments: Any, context: CallContext, call: dict[str, Any]) -> Any:
        named = self._signature.arguments(arguments)
        positional = (context,) if self._signature.takes_context else ()
        return await run(self._function, *positional, **named)

    async def close(self) -> None:
        pass
