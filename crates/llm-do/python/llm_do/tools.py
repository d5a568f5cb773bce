"""Functions as tools, for agents that are given as values: `@agent.tool` as PydanticAI has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Union, overload

from llm_do.runtime import AgentSpec
from llm_do.toolsets.approval import set_toolset_approval_config

__all__ = ["ToolRegistry", "register_tool"]

Function = TypeVar("Function", bound=Callable[..., Any])


def register_tool(agent: AgentSpec, function: Function, pre_approved: bool = False) -> Function:
    """Gives an agent one more tool. It asks before it runs unless it is `pre_approved`."""
    if pre_approved:
        set_toolset_approval_config(function, {function.__name__: {"pre_approved": True}})
    agent.tools = (*agent.tools, function)
    return function


class ToolRegistry:
    """The tools of an agent that is given as a value, with decorators to add to them."""

    def __init__(self, agent: AgentSpec) -> None:
        self.agent = agent

    @overload
    def tool(self, function: Function) -> Function: ...

    @overload
    def tool(self, *, pre_approved: bool = ...) -> Callable[[Function], Function]: ...

    def tool(self, function: Union[Function, None] = None, *, pre_approved: bool = False) -> Any:
        """`@registry.tool`: the function becomes a tool of the agent."""
        if function is not None:
            return register_tool(self.agent, function, pre_approved)
        return lambda given: register_tool(self.agent, given, pre_approved)

    tool_plain = tool
