"""Commands by rules."""

from __future__ import annotations

from llm_do.toolsets import ShellToolset

__all__ = ["ShellToolset"]
