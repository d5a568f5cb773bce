"""PydanticAI's toolsets, as they are. Imported only where a project uses them."""

from __future__ import annotations

import inspect
from typing import Any

from llm_do._host.faults import outdated_library

# An old one lacks names, which would be the worse message.
if (_outdated := outdated_library()) is not None:
    raise ImportError(_outdated, name="pydantic_ai")

from pydantic import ValidationError
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.usage import RunUsage

from llm_do._host.threads import threads
from llm_do._host.tools import ApprovalNeeded, maybe_await, verdict_of, without_callback
from llm_do._host.signature import Invalid
from llm_do._host.violations import violations
from llm_do.runtime import CallContext
from llm_do.toolsets.approval import get_toolset_approval_config

__all__ = ["AbstractToolset", "PydanticToolset", "Tool", "function_toolset", "run_context"]


class ModelName(str):
    """`provider:model`, where PydanticAI has a model object: llm-do makes the requests."""

    @property
    def model_name(self) -> str:
        return self.partition(":")[2] or str(self)

    @property
    def system(self) -> str:
        return self.partition(":")[0]


def run_context(context: CallContext, **fields: Any) -> RunContext[CallContext]:
    model: Any = ModelName(context.model or "")
    return RunContext(deps=context, model=model, usage=RunUsage(), prompt=context.prompt, **fields)


def function_toolset(tool: Any) -> FunctionToolset[Any]:
    """A function or a `Tool` as a toolset of one."""
    return FunctionToolset([tool])


class PydanticToolset:
    """A live toolset of PydanticAI for one call of an agent."""

    def __init__(self, toolset: AbstractToolset[Any], tools: dict[str, ToolsetTool[Any]], config: dict[str, Any], cleanup: Any) -> None:
        self._toolset, self._tools, self._config, self._cleanup = toolset, tools, config, cleanup
        self._needs_approval = _method(toolset, "needs_approval")
        self._describe = _method(toolset, "get_approval_description")

    @classmethod
    async def open(cls, made: AbstractToolset[Any], context: CallContext, cleanup: Any) -> PydanticToolset:
        ctx = run_context(context)
        made, config = without_callback(made)
        toolset = await made.for_run(ctx)
        await toolset.__aenter__()
        try:
            tools = await toolset.get_tools(ctx)
        except BaseException:
            await toolset.__aexit__(None, None, None)
            raise
        return cls(toolset, tools, {**config, **get_toolset_approval_config(made)}, cleanup)

    def specs(self) -> list[dict[str, Any]]:
        return [self._spec(name, tool) for name, tool in self._tools.items() if tool.tool_def.kind in ("function", "unapproved")]

    def _spec(self, name: str, tool: ToolsetTool[Any]) -> dict[str, Any]:
        definition = tool.tool_def
        return {
            "name": name,
            "description": definition.description or "",
            "parameters": definition.parameters_json_schema,
            "verdict": "dynamic" if self._needs_approval else verdict_of(self._config, name),
            "takes_context": True,
            "sequential": definition.sequential,
        }

    async def _validated(self, name: str, arguments: Any, ctx: RunContext[Any]) -> dict[str, Any]:
        tool = self._tools[name]
        try:
            validated: dict[str, Any] = tool.args_validator.validate_python(arguments, context=ctx.validation_context)
            if tool.args_validator_func is not None:
                await maybe_await(tool.args_validator_func(ctx, **validated))
        except ValidationError as error:
            raise Invalid(violations(error)) from error
        except (ModelRetry, ToolFailed) as error:
            raise Invalid(error.message) from error
        return validated

    async def judge(self, tool: str, arguments: Any, context: CallContext) -> dict[str, Any]:
        ctx = run_context(context, tool_name=tool)
        try:
            validated = await self._validated(tool, arguments, ctx)
        except Invalid as invalid:
            return {"invalid": str(invalid)}
        answer = {"verdict": verdict_of(self._config, tool)}
        if self._needs_approval is not None:
            given = (tool, validated, ctx, self._config)
            answer = opinion(await maybe_await(self._needs_approval(*given[: _arity(self._needs_approval, 4)])))
        if answer["verdict"] == "ask" and self._describe is not None:
            shown = (tool, validated, ctx)
            answer["description"] = str(await maybe_await(self._describe(*shown[: _arity(self._describe, 3)])))
        return answer

    async def call(self, tool: str, arguments: Any, context: CallContext, call: dict[str, Any]) -> Any:
        ctx = run_context(context, tool_name=tool, tool_call_id=call.get("id"), tool_call_approved=bool(call.get("approved")))
        validated = await self._validated(tool, arguments, ctx)
        try:
            # PydanticAI's own threads are forty, and would wait for each other.
            with Agent.using_thread_executor(threads()):
                return await self._toolset.call_tool(tool, validated, ctx, self._tools[tool])
        except ApprovalRequired as required:
            raise ApprovalNeeded(str(required.metadata or "")) from required

    async def close(self) -> None:
        try:
            await self._toolset.__aexit__(None, None, None)
        finally:
            if self._cleanup is not None:
                await maybe_await(self._cleanup())


def opinion(result: Any) -> dict[str, Any]:
    """What a toolset's `needs_approval` means: an `ApprovalResult`, or simply whether it needs one."""
    if isinstance(result, bool):
        return {"verdict": "ask" if result else "allow"}
    status = getattr(result, "status", None)
    if status == "blocked":
        return {"verdict": "block", "reason": str(getattr(result, "block_reason", None) or "its toolset blocks it")}
    if status in ("pre_approved", "needs_approval"):
        return {"verdict": "allow" if status == "pre_approved" else "ask"}
    raise TypeError(f"needs_approval returned {result!r}, which is neither an ApprovalResult nor a bool")


def _method(toolset: Any, name: str) -> Any:
    """A hook of the toolset itself, or of the one that it wraps."""
    while toolset is not None:
        method = getattr(toolset, name, None)
        if callable(method):
            return method
        toolset = getattr(toolset, "wrapped", None)
    return None


def _arity(method: Any, most: int) -> int:
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return most
    return min(most, len([one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]))
