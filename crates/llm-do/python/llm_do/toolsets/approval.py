"""Which tools of a toolset need no question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["get_toolset_approval_config", "set_toolset_approval_config"]

ATTRIBUTE = "__llm_do_approval__"

T = TypeVar("T")


def set_toolset_approval_config(toolset: T, config: Mapping[str, Mapping[str, Any]]) -> T:
    """`{"tool": {"pre_approved": True}}` lets a tool run without a question; every other tool asks."""
    if not isinstance(config, Mapping) or not all(isinstance(rule, Mapping) for rule in config.values()):
        raise TypeError("an approval config maps tools to mappings such as {'pre_approved': True}")
    # Not `setattr`: a toolset may be a frozen dataclass.
    object.__setattr__(toolset, ATTRIBUTE, {tool: dict(rule) for tool, rule in config.items()})
    return toolset


def get_toolset_approval_config(toolset: Any) -> dict[str, dict[str, Any]]:
    return getattr(toolset, ATTRIBUTE, None) or {}
