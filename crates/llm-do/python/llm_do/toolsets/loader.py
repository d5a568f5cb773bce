"""Declared toolsets."""

from __future__ import annotations

from llm_do.runtime import ToolsetSpec

__all__ = ["ToolsetSpec"]
