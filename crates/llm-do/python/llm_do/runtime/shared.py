"""A runtime: one program of ours for all runs of a session, with its policy, its usage and its message log."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from llm_do._offer import as_agent
from llm_do._serve import Server
from llm_do.approval import ApprovalCallback
from llm_do.ctx import Context, Record, TraceEntry, Usage
from llm_do.errors import UsageError
from llm_do.runtime import AgentSpec, CallContext, EntrySpec
from llm_do.runtime.approval import RunApprovalPolicy
from llm_do.runtime.events import RuntimeEvent

if TYPE_CHECKING:
    from llm_do.runtime.call import OpeningScope

__all__ = ["EventCallback", "MessageLogCallback", "Runtime", "RuntimeConfig"]

EventCallback = Callable[[RuntimeEvent], Union[None, Awaitable[None]]]
"""Hears every event of every run, in order; sync or async."""

MessageLogCallback = Callable[[str, int, list[Any]], Union[None, Awaitable[None]]]
"""`(agent, depth, messages)`: what was said in a turn."""


@dataclass(frozen=True)
class RuntimeConfig:
    """The policy of a session. It does not change."""

    run_approval_policy: RunApprovalPolicy = RunApprovalPolicy()
    on_event: Union[EventCallback, None] = None
    message_log_callback: Union[MessageLogCallback, None] = None
    max_depth: int = 5
    verbosity: int = 0
    project_root: Union[str, None] = None
    model: Union[str, None] = None
    """For agents that name none."""

    def __post_init__(self) -> None:
        if isinstance(self.max_depth, bool) or not isinstance(self.max_depth, int) or self.max_depth < 1:
            raise ValueError(f"`max_depth` is {self.max_depth!r}, which is no number from 1 on")


class Runtime:
    """Runs agents and entry functions that are given as values; `project_root` is where their files are.

    One runtime is one process of llm-do, which is started with the first run and ends with the runtime (`close`, the end
    of `with`, or of the program). Usage, message log and the answers that a callback gave for the session are shared by
    all its runs; histories and toolsets are not.
    """

    def __init__(
        self,
        project_root: Union[str, os.PathLike[str], None] = None,
        run_approval_policy: Union[RunApprovalPolicy, None] = None,
        on_event: Union[EventCallback, None] = None,
        verbosity: int = 0,
        max_depth: int = 5,
        model: Union[str, None] = None,
        approval_callback: Union[ApprovalCallback, None] = None,
        message_log_callback: Union[MessageLogCallback, None] = None,
        agents: Union[Mapping[str, Any], Iterable[Any]] = (),
        config: Union[RuntimeConfig, None] = None,
    ) -> None:
        policy = run_approval_policy or RunApprovalPolicy(mode="prompt", approval_callback=approval_callback)
        self.config = config or RuntimeConfig(
            run_approval_policy=policy,
            on_event=on_event,
            message_log_callback=message_log_callback,
            max_depth=max_depth,
            verbosity=verbosity,
            project_root=None if project_root is None else os.fspath(project_root),
            model=model,
        )
        self._agents: list[Any] = []
        self.register_agents(agents)
        self._record = Record()
        self._callback = self.config.run_approval_policy.remembered()
        self._starting = threading.Lock()
        self._server: Union[Server, None] = None
        self._ending: Union[weakref.finalize[Any, Any], None] = None

    def register_agents(self, agents: Union[Mapping[str, Any], Iterable[Any]]) -> None:
        """Agents that entries may call by name."""
        given = agents.values() if isinstance(agents, Mapping) else agents
        self._agents.extend(as_agent(agent) if isinstance(agent, AgentSpec) else agent for agent in given)

    @property
    def project_root(self) -> str:
        return self.config.project_root or os.getcwd()

    @property
    def usage(self) -> dict[str, Usage]:
        """Tokens and money of all runs so far, by model."""
        return self._record.usage

    @property
    def trace(self) -> list[TraceEntry]:
        """The calls of all runs so far."""
        return self._record.trace

    @property
    def message_log(self) -> list[Any]:
        """What was said in all runs so far: one entry for each message, with its agent and depth."""
        return self._record.messages

    async def run_entry(
        self,
        entry: Any,
        input_data: Any = None,
        attachments: Union[Sequence[Any], None] = None,
    ) -> tuple[Any, Context]:
        """Runs an entry once: its result, and the context that it ran in, with `trace`, `usage` and `frame`.

        An entry is an `EntrySpec`, a function `main(input, runtime)`, or an agent. An entry function may call the agents
        of its module, those around it, and those that are registered.
        """
        before = len(self._record.trace)
        made: list[CallContext] = []
        result = await self._run(as_entry(entry), input_data, attachments=attachments, contexts=made)
        context = Context()
        CallContext.__init__(context, _over, made[-1]._seen if made else {})
        context._call, context._record = None, Record()
        context._record.trace, context._record.usage = self._record.trace[before:], self._record.usage
        return result, context

    def run(self, entry: Any, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> tuple[Any, Context]:
        """`run_entry`, waited for."""
        from llm_do.workers import _waited

        return _waited(self.run_entry(entry, input_data, attachments))

    async def call_agent(self, agent: Any, input_data: Any, attachments: Union[Sequence[Any], None] = None) -> Any:
        """Runs an agent once: its answer."""
        known = self._named(agent) if isinstance(agent, str) else agent
        return await self._run(as_agent(known), input_data, attachments=attachments)

    def _named(self, name: str) -> Any:
        for agent in self._agents:
            if as_agent(agent).name == name:
                return agent
        names = ", ".join(as_agent(agent).name for agent in self._agents) or "none"
        raise UsageError(f"there is no agent `{name}`; there are: {names}", hint="register it with `register_agents`")

    def start(self, agent: Any) -> OpeningScope:
        """Opens an agent for many turns: `async with runtime.start(agent) as scope:`."""
        from llm_do.runtime.call import OpeningScope

        return OpeningScope(self, self._named(agent) if isinstance(agent, str) else agent)

    async def _run(
        self,
        entry: Any,
        input_data: Any,
        *,
        attachments: Union[Sequence[Any], None] = None,
        agents: Iterable[Any] = (),
        tools: Iterable[Any] = (),
        make_context: Any = CallContext,
        outermost: int = 0,
        contexts: Union[list[CallContext], None] = None,
    ) -> Any:
        from llm_do.runtime.call import CallScope

        scope = await CallScope.open(self, entry, agents=agents, tools=tools, make_context=make_context, outermost=outermost)
        try:
            return await scope.run_turn(input_data, attachments)
        finally:
            if contexts is not None and scope.entered is not None:
                contexts.append(scope.entered)
            await scope.close()

    async def _serving(self) -> Server:
        """The program, started with the first run."""
        server = self._server
        if server is not None and not server.is_over:
            return server
        started = await Server.start()
        with self._starting:
            if self._server is None or self._server.is_over:
                self._server = started
                self._ending = weakref.finalize(self, started.end)
                return started
            server = self._server
        # Another run was faster.
        await started.stop()
        return server

    def close(self) -> None:
        """Ends the program. More than once does no harm; another run would start it again."""
        ending, self._ending, self._server = self._ending, None, None
        if ending is not None:
            ending()

    async def aclose(self) -> None:
        """`close`, without blocking the loop."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        self.close()

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        await self.aclose()


def as_entry(entry: Any) -> Any:
    """An `EntrySpec`, or an agent."""
    if isinstance(entry, (EntrySpec, AgentSpec)) or hasattr(entry, "agent_spec"):
        return entry
    if callable(entry):
        return EntrySpec(name=getattr(entry, "__name__", "entry"), main=entry)
    raise TypeError(f"{entry!r} is no entry: give an EntrySpec, a function or an agent")


async def _over(method: str, params: dict[str, Any]) -> Any:
    raise UsageError("the run is over: nothing can be called from it")
