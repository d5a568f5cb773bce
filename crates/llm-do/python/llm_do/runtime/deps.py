"""What code sees of the call that it is part of."""

from __future__ import annotations

from llm_do.runtime import CallContext
from llm_do.runtime import Tools as ToolsProxy

__all__ = ["CallContext", "ToolsProxy", "WorkerRuntime"]

WorkerRuntime = CallContext
"""Another name of `CallContext`."""
