"""llm-do in Python, both ways.

A program runs workers with what is exported here: `run_worker` and its kin. Python files of a project import
`llm_do.runtime` (what a file exports, and the context that its code receives) and `llm_do.toolsets` (llm-do's own
toolsets, configured in Python). Nothing needs a dependency until a Pydantic class or a PydanticAI toolset is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from llm_do.faults import CallFailed, NotSure, RunEnded

if TYPE_CHECKING:
    from llm_do.approval import (
        ApprovalCallback,
        ApprovalController,
        ApprovalDecision,
        ApprovalReason,
        ToolRule,
        approve_all_callback,
        strict_mode_callback,
    )
    from llm_do.errors import (
        ApprovalError,
        BinaryNotFound,
        LimitReached,
        LlmDoError,
        OutputInvalid,
        ProjectError,
        ProviderError,
        RunCancelled,
        ServerDied,
        UsageError,
        WorkerFailed,
    )
    from llm_do.ctx import Context, TraceEntry, Usage
    from llm_do.entries import CallableEntry, ToolEntry, WorkerEntry
    from llm_do.models import OpenAICompatibleProvider, register_model_factory, resolve_model
    from llm_do.protocols import WorkerCreator, WorkerDelegator
    from llm_do.runtime import (
        AgentSpec,
        Attachment,
        CallContext,
        EntrySpec,
        FunctionEntry,
        PromptInput,
        ToolsetSpec,
    )
    from llm_do.runtime.approval import RunApprovalPolicy
    from llm_do.runtime.call import CallFrame, CallScope
    from llm_do.runtime.delegation import RuntimeCreator, RuntimeDelegator
    from llm_do.runtime.events import RuntimeEvent
    from llm_do.runtime.shared import Runtime, RuntimeConfig
    from llm_do.workers import (
        AttachmentInput,
        AttachmentPayload,
        AttachmentPolicy,
        MessageCallback,
        WorkerContext,
        WorkerCreationDefaults,
        WorkerDefinition,
        WorkerRegistry,
        WorkerRunResult,
        WorkerScope,
        WorkerSpec,
        call_worker,
        call_worker_async,
        create_worker,
        create_worker_async,
        list_runs,
        list_runs_async,
        resume_run,
        resume_run_async,
        run_worker,
        run_worker_async,
        start,
    )

__version__ = "0.2.0"

__all__ = [
    "AgentSpec",
    "ApprovalCallback",
    "ApprovalController",
    "ApprovalDecision",
    "ApprovalError",
    "ApprovalReason",
    "Attachment",
    "AttachmentInput",
    "AttachmentPayload",
    "AttachmentPolicy",
    "BinaryNotFound",
    "CallContext",
    "CallFailed",
    "CallFrame",
    "CallScope",
    "CallableEntry",
    "Context",
    "EntrySpec",
    "FunctionEntry",
    "LimitReached",
    "LlmDoError",
    "MessageCallback",
    "NotSure",
    "OpenAICompatibleProvider",
    "OutputInvalid",
    "ProjectError",
    "PromptInput",
    "ProviderError",
    "RunApprovalPolicy",
    "RunCancelled",
    "RunEnded",
    "Runtime",
    "RuntimeConfig",
    "RuntimeCreator",
    "RuntimeDelegator",
    "RuntimeEvent",
    "ServerDied",
    "ToolEntry",
    "ToolRule",
    "ToolsetSpec",
    "TraceEntry",
    "Usage",
    "UsageError",
    "WorkerContext",
    "WorkerCreationDefaults",
    "WorkerCreator",
    "WorkerDefinition",
    "WorkerDelegator",
    "WorkerEntry",
    "WorkerFailed",
    "WorkerRegistry",
    "WorkerRunResult",
    "WorkerScope",
    "WorkerSpec",
    "approve_all_callback",
    "call_worker",
    "call_worker_async",
    "create_worker",
    "create_worker_async",
    "list_runs",
    "list_runs_async",
    "register_model_factory",
    "resolve_model",
    "resume_run",
    "resume_run_async",
    "run_worker",
    "run_worker_async",
    "start",
    "strict_mode_callback",
]


_MODULES = (
    "runtime",
    "workers",
    "approval",
    "errors",
    "models",
    "ctx",
    "entries",
    "protocols",
    "runtime.shared",
    "runtime.call",
    "runtime.approval",
    "runtime.events",
    "runtime.delegation",
)


def __getattr__(name: str) -> Any:
    # Whoever only offers tools does not pay for what programs need.
    if name in __all__:
        from importlib import import_module

        for module in _MODULES:
            found = getattr(import_module(f"llm_do.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    from llm_do._host.successors import missing

    raise missing(sys.modules[__name__], name)


class _Gone:
    """Asked for modules that nobody else has found: those that there were say what has taken their place."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("llm_do."):
            from llm_do._host.successors import gone

            if (error := gone(name)) is not None:
                raise error


sys.meta_path.append(_Gone)
