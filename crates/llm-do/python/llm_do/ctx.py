"""A context that dispatches tools and workers which are given as values: one gate, one trace, one account of usage."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Union

from llm_do.approval import ApprovalCallback
from llm_do.errors import WorkerFailed
from llm_do.runtime import CallContext, EntrySpec

__all__ = ["Context", "TraceEntry", "Usage"]


class TraceEntry:
    """One call: what was called, how deep, with what, and what came of it."""

    __slots__ = ("depth", "error", "input_data", "kind", "name", "output_data")

    def __init__(self, name: str, kind: str, depth: int, input_data: Any, output_data: Any, error: Union[str, None]) -> None:
        self.name, self.kind, self.depth = name, kind, depth
        self.input_data, self.output_data, self.error = input_data, output_data, error

    def __repr__(self) -> str:
        return f"TraceEntry({self.name!r}, {self.kind!r}, depth={self.depth})"


class Usage:
    """Tokens and money that one model took. Requests that gave no reply are `unanswered`; those of which nobody said all
    that they took are `estimated`, and the sums with them are about right."""

    __slots__ = ("cost_usd", "estimated", "input_tokens", "output_tokens", "requests", "unanswered")

    def __init__(self, requests: int = 0, input_tokens: int = 0, output_tokens: int = 0, cost_usd: Union[float, None] = None) -> None:
        self.requests, self.input_tokens, self.output_tokens, self.cost_usd = requests, input_tokens, output_tokens, cost_usd
        self.unanswered = self.estimated = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, told: Mapping[str, Any]) -> None:
        self.requests += told.get("requests") or 0
        self.input_tokens += told.get("input_tokens") or 0
        self.output_tokens += told.get("output_tokens") or 0
        self.unanswered += told.get("unanswered") or 0
        self.estimated += told.get("estimated") or 0
        cost = told.get("cost_usd")
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost

    def __repr__(self) -> str:
        return f"Usage(requests={self.requests}, input_tokens={self.input_tokens}, output_tokens={self.output_tokens})"


class Record:
    """What the calls of a context or a runtime have left: shared by all of them."""

    def __init__(self) -> None:
        self.trace: list[TraceEntry] = []
        self.usage: dict[str, Usage] = {}
        self.messages: list[Any] = []

    def add(self, trace: Iterable[Mapping[str, Any]], usage: Mapping[str, Any], outermost: int) -> None:
        for call in trace:
            self._add_call(call, outermost)
        for model, told in usage.get("by_model", {}).items():
            self.usage.setdefault(model, Usage()).add(told)

    def _add_call(self, call: Mapping[str, Any], depth: int) -> None:
        if depth >= 0:
            kind = "worker" if call["kind"] == "agent" else call["kind"]
            self.trace.append(
                TraceEntry(call["name"], kind, depth, call.get("input"), call.get("output"), call.get("error"))
            )
        for inner in call.get("calls", ()):
            self._add_call(inner, depth + 1)


class Context(CallContext):
    """Calls tools and workers by name. Tools get one too, as `ctx.deps` of PydanticAI's `RunContext[Context]`.

    No project on disk is needed: workers are given as values, and tools are functions of this program, called back in
    its own process. `model` is for workers that name none; `approval` answers for entries that require it.
    """

    __slots__ = ("_approval", "_default_model", "_limits", "_max_depth", "_record", "_registry")

    def __init__(
        self,
        registry: Union[Mapping[str, Any], Iterable[Any]] = (),
        model: Union[str, None] = None,
        approval: Union[ApprovalCallback, None] = None,
        max_depth: int = 5,
    ) -> None:
        super().__init__(_nobody, {})
        entries = registry.values() if isinstance(registry, Mapping) else registry
        self._registry: dict[str, Any] = {}
        for entry in entries:
            self._register(entry)
        self._default_model, self._approval, self._max_depth = model, approval, max_depth
        self._record = Record()
        self.model = model

    @classmethod
    def from_worker(
        cls,
        worker: Any,
        model: Union[str, None] = None,
        approval: Union[ApprovalCallback, None] = None,
        max_depth: int = 5,
    ) -> Context:
        """A context for a worker and everything that it uses."""
        return cls([worker], model=model, approval=approval, max_depth=max_depth)

    @classmethod
    def from_tool_entries(cls, tools: Iterable[Any], model: Union[str, None] = None) -> Context:
        """A context for tools alone."""
        return cls(tools, model=model)

    def _register(self, entry: Any) -> None:
        if self._registry.setdefault(entry.name, entry) is not entry:
            raise ValueError(f"there are two entries `{entry.name}`")
        for inner in getattr(entry, "tools", ()):
            if not isinstance(inner, str) and self._registry.get(getattr(inner, "name", "")) is not inner:
                self._register(inner if hasattr(inner, "kind") else _as_entry(inner))

    @property
    def registry(self) -> dict[str, Any]:  # type: ignore[override]
        """The entries, by name."""
        return self._registry

    @property
    def trace(self) -> list[TraceEntry]:  # type: ignore[override]
        """Every call so far, callers before what they called."""
        return self._record.trace

    @property
    def usage(self) -> dict[str, Usage]:  # type: ignore[override]
        """Tokens and money so far, by model."""
        return self._record.usage

    async def call(self, name: str, input: Any = None) -> Any:
        """Calls a tool or a worker by name, with its gate, its depth and its trace."""
        if self._call is not None:
            return await super().call(name, input)
        if name not in self._registry:
            raise KeyError(f"there is no entry `{name}`; there are: {', '.join(self._registry)}")
        from llm_do.runtime.shared import Runtime

        async def main(given: Any, context: CallContext) -> Any:
            return await context.call(name, input)

        with Runtime(model=self._default_model, approval_callback=self._approval, max_depth=self._max_depth + 1) as runtime:
            runtime._record = self._record
            try:
                return await runtime._run(
                    EntrySpec(name="context", main=main), input, agents=self._workers(), tools=self._tools(), make_context=self._within, outermost=-1
                )
            except WorkerFailed as failed:
                # Whoever calls a tool knows nothing of a function around the call.
                failed.message = str(failed.__cause__ or failed.message)
                raise

    def _workers(self) -> list[Any]:
        return [entry for entry in self._registry.values() if entry.kind == "worker"]

    def _tools(self) -> list[Any]:
        return [entry for entry in self._registry.values() if entry.kind == "tool"]

    def _within(self, ask: Callable[[str, dict[str, Any]], Awaitable[Any]], seen: Mapping[str, Any]) -> Context:
        """The context that code gets inside a call: as deep as the call is in the trace, with the same registry, trace and
        usage."""
        # The function around the call is not seen.
        depth = max(len(seen.get("path", ())) - 2, 0)
        inner = Context.__new__(Context)
        CallContext.__init__(inner, ask, {**seen, "depth": depth})
        inner._registry, inner._record = self._registry, self._record
        inner._default_model, inner._approval, inner._max_depth = self._default_model, self._approval, self._max_depth
        return inner


def _as_entry(tool: Any) -> Any:
    from llm_do.entries import ToolEntry

    return ToolEntry(tool=tool)


async def _nobody(method: str, params: dict[str, Any]) -> Any:
    raise AssertionError("a context outside of a run is not asked")


def working_directory() -> str:
    return os.getcwd()
