"""An agent as a toolset of another one."""

from __future__ import annotations

from typing import Union

from llm_do.runtime import AgentSpec

__all__ = ["agent_as_toolset"]


def agent_as_toolset(spec: AgentSpec, tool_name: Union[str, None] = None) -> AgentSpec:
    """What `toolsets` of another agent takes: an agent is a tool of its own name. With `tool_name` it is the same agent
    under that name."""
    if tool_name is None or tool_name == spec.name:
        return spec
    fields = {name: getattr(spec, name) for name in AgentSpec.__slots__}
    return AgentSpec(**{**fields, "name": tool_name, "entry": False})
