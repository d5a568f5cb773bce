"""Declared toolsets: factories, of which each call gets instances of its own."""

from __future__ import annotations

from llm_do.runtime import ToolsetSpec

__all__ = ["ToolsetSpec"]
