"""One call of an entry: its frame, and the scope that owns it for one turn or many."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from llm_do._offer import Offer, agents_near, as_agent, given_to, sent
from llm_do._serve import Peer, Server
from llm_do.approval import maybe_await
from llm_do.errors import LlmDoError, UsageError
from llm_do.models import model_name, providers_of
from llm_do.runtime import AgentSpec, CallConfig, CallContext, EntrySpec
from llm_do.runtime.events import RuntimeEvent
from llm_do.workers import attached, json_input, turn

if TYPE_CHECKING:
    from llm_do.runtime.shared import Runtime

__all__ = ["CallConfig", "CallFrame", "CallScope", "OpeningScope"]


class CallFrame:
    """The state of one call: what it was given last, what was said in it, how deep it is, what it can use."""

    __slots__ = ("active_toolsets", "config", "depth", "messages", "prompt")

    def __init__(self, name: str, model: Union[str, None], active_toolsets: Sequence[str]) -> None:
        self.config = CallConfig(name, 0, model)
        self.prompt = ""
        """The input of the last turn, as text."""
        self.messages: list[Any] = []
        """What was said so far. An entry function has no conversation."""
        self.depth = 0
        self.active_toolsets = tuple(active_toolsets)
        """The toolsets that live as long as the call."""


class CallScope:
    """A call that is open: many turns on one frame. Its toolsets are made when it opens, and cleaned up when it closes."""

    def __init__(self, runtime: Runtime, server: Server, peer: Peer, offer: Offer, entry: Any, opened: dict[str, Any], outermost: int) -> None:
        self._runtime, self._server, self._peer, self._offer, self._entry = runtime, server, peer, offer, entry
        self._scope: int = opened["scope"]
        self._outermost = outermost
        self._is_closed = False
        toolsets = [] if isinstance(entry, EntrySpec) else offer.toolsets_of(entry.name)
        self.frame = CallFrame(entry.name, opened["model"], toolsets)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        entry: Any,
        *,
        agents: Iterable[Any] = (),
        tools: Iterable[Any] = (),
        make_context: Any = CallContext,
        outermost: int = 0,
    ) -> CallScope:
        config = runtime.config
        policy = config.run_approval_policy
        offer = Offer(runtime.project_root, runtime._callback, make_context)
        offer.add_agents([*agents, *runtime._agents])
        for tool in tools:
            offer.add_tool(tool)
        if isinstance(entry, EntrySpec):
            offer.add_agents(agent for agent in agents_near(entry.main) if not offer.has(agent))
            offer.add_entry(entry)
        else:
            offer.add_agent(entry)
        params = await offer.params()
        if not isinstance(entry, EntrySpec):
            params["entry"] = {"agent": as_agent(entry).name}
        params.update(
            approval_mode=policy.mode,
            model=None if config.model is None else model_name(config.model),
            providers=providers_of([*offer.models(), config.model]),
            max_depth=config.max_depth,
            events="none" if config.on_event is None else "all",
        )
        params.setdefault("runtime", {})["return_permission_errors"] = policy.return_permission_errors

        async def listen(event: dict[str, Any]) -> None:
            if config.on_event is not None:
                await maybe_await(config.on_event(RuntimeEvent(event)))

        server = await runtime._serving()
        offer.belongs_to(server)
        peer = Peer(offer.answer, listen)
        opened = await server.open(params, peer)
        return cls(runtime, server, peer, offer, as_agent(entry) if not isinstance(entry, EntrySpec) else entry, opened, outermost)

    @property
    def entered(self) -> Union[CallContext, None]:
        """The context that an entry function was given last."""
        return self._offer.entered

    async def run_turn(self, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> Any:
        """One input → one answer: text, or what the output class makes of it. A turn that was stopped stays in the frame if the error has `kept`."""
        if self._is_closed:
            raise UsageError("the scope is closed")
        params: dict[str, Any] = {"scope": self._scope}
        if isinstance(self._entry, EntrySpec):
            given = given_to(self._entry, input_data)
            self._offer.give(given)
            params["input"] = json_input(sent(given))
        else:
            params["input"] = json_input(input_data)
        if attachments:
            params["attachments"] = attached(attachments)
        answer = await self._turn(params)
        self.frame.prompt = shown(input_data)
        self.frame.messages += answer["messages"]
        log = self._runtime.config.message_log_callback
        self._runtime._record.messages += [{"agent": self._entry.name, "depth": 0, "message": message} for message in answer["messages"]]
        if log is not None:
            await maybe_await(log(self._entry.name, 0, answer["messages"]))
        return self._offer.output_of(self._entry.name, answer["output"])

    async def _turn(self, params: dict[str, Any]) -> dict[str, Any]:
        self._offer.raised = None
        try:
            answer: dict[str, Any] = await turn(self._server, self._peer, self._scope, params)
        except LlmDoError as error:
            raise error from self._offer.raised
        return answer

    def cancel(self) -> None:
        """Ends the turn that goes on: whoever waits for it gets a `RunCancelled`. The scope stays open."""
        self._server.notify("cancel", {"scope": self._scope})

    async def close(self) -> None:
        """Cleans up its toolsets. More than once does no harm."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            closed = await self._server.request("close", {"scope": self._scope})
            await self._peer.told()
            self._runtime._record.add(closed["trace"], closed["usage"], self._outermost)
        finally:
            await self._server.forget(self._scope)

    async def __aenter__(self) -> CallScope:
        return self

    async def __aexit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        await self.close()


class OpeningScope:
    """`async with worker.start(runtime) as scope:`, or `scope = await worker.start(runtime)` and `await scope.close()`."""

    def __init__(self, runtime: Runtime, entry: Any) -> None:
        self._runtime, self._entry = runtime, entry
        self._scope: CallScope

    def __await__(self) -> Generator[Any, None, CallScope]:
        return CallScope.open(self._runtime, self._entry).__await__()

    async def __aenter__(self) -> CallScope:
        self._scope = await CallScope.open(self._runtime, self._entry)
        return self._scope

    async def __aexit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        await self._scope.__aexit__(kind, error, traceback)


def shown(input_data: Any) -> str:
    """An input as text."""
    from llm_do.runtime.args import get_display_text

    return get_display_text(input_data)
