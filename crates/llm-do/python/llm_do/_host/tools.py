"""Live toolsets: plain functions here, PydanticAI's in `pydantic_tools`. One is opened for each call of an agent."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, Protocol

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
