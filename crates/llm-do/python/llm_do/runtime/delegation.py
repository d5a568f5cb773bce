"""Calling and creating workers on behalf of a worker, with approval enforced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from llm_do.approval import ApprovalController
from llm_do.runtime import CallContext
from llm_do.workers import WorkerContext, WorkerSpec, call_worker, call_worker_async, create_worker, create_worker_async

__all__ = ["RuntimeCreator", "RuntimeDelegator"]

Caller = Union[WorkerContext, CallContext]


class RuntimeDelegator:
    """Calls workers for the worker whose context this is: only those in its `allow_workers`, and through its gate."""

    def __init__(self, context: Caller) -> None:
        self.context = context

    async def call_async(self, worker: str, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> Any:
        """The worker's answer."""
        called = await call_worker_async(
            registry=self.context.registry,
            worker=worker,
            input_data=input_data,
            caller_context=self.context,
            attachments=attachments,
        )
        return called.output

    def call_sync(self, worker: str, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> Any:
        """The same, waited for: in a tool that is not async, and outside of runs."""
        if isinstance(self.context, CallContext):
            return self.context.waited(self.call_async(worker, input_data, attachments))
        called = call_worker(
            registry=self.context.registry,
            worker=worker,
            input_data=input_data,
            caller_context=self.context,
            attachments=attachments,
        )
        return called.output


class RuntimeCreator:
    """Creates workers for the worker whose context this is. Somebody has to agree to each.

    In a run the worker must have the toolset `dynamic_agents`, whose `agent_create` this calls. Outside of a run the
    context's `approval_controller` is asked about `worker.create`.
    """

    def __init__(self, context: Caller) -> None:
        self.context = context

    def create(
        self,
        name: str,
        instructions: str,
        description: Union[str, None] = None,
        model: Union[str, None] = None,
        toolsets: Sequence[str] = (),
        force: bool = False,
    ) -> Any:
        """A dict with the `name` and the `path` of the worker's file; in a run what `agent_create` says."""
        asked = {"name": name, "instructions": instructions}
        if isinstance(self.context, CallContext):
            more = {"description": description, "model": model, "toolsets": list(toolsets)}
            given = {**asked, **{key: value for key, value in more.items() if value}}
            return self.context.waited(self.context.call("agent_create", given))
        context = self.context
        spec = WorkerSpec(name, instructions, description, model, tuple(toolsets))
        controller: ApprovalController = context.approval_controller

        def create() -> dict[str, Any]:
            made = create_worker(context.registry, spec, context.creation_defaults, force)
            return {"name": made.name, "path": str(made.path)}

        return controller.maybe_run(tool_name="worker.create", payload=asked, func=create)
