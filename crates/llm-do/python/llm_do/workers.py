"""llm-do for Python programs: run workers, answer their approvals, hear their events, create new ones.

Nothing here needs a dependency. The work is done by the program `llm-do`, which is started for each run (or each scope)
and ends with it.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextvars
import math
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Union

from llm_do._serve import METHOD_NOT_FOUND, Failed, NobodyToAsk, Peer, Server
from llm_do.approval import (
    ApprovalCallback,
    ApprovalController,
    ApprovalDecision,
    ApprovalReason,
    ToolRule,
    ToolRules,
    approve_all_callback,
    checked,
    maybe_await,
    strict_mode_callback,
)
from llm_do.errors import UsageError
from llm_do.models import model_name, providers_of
from llm_do.runtime import Attachment, CallContext, plain_input

__all__ = [
    "AttachmentInput",
    "AttachmentPayload",
    "AttachmentPolicy",
    "MessageCallback",
    "WorkerContext",
    "WorkerCreationDefaults",
    "WorkerDefinition",
    "WorkerRegistry",
    "WorkerRunResult",
    "WorkerScope",
    "WorkerSpec",
    "call_worker",
    "call_worker_async",
    "create_worker",
    "create_worker_async",
    "list_runs",
    "list_runs_async",
    "resume_run",
    "resume_run_async",
    "run_worker",
    "run_worker_async",
    "start",
]

T = TypeVar("T")


MessageCallback = Callable[[dict[str, Any]], Union[None, Awaitable[None]]]
"""Hears every event of a run, in order; sync or async. `llm-do schema events` describes them."""


@dataclass(frozen=True)
class AttachmentPayload:
    """A file that exists in memory."""

    name: str
    data: bytes


AttachmentInput = Union[str, "os.PathLike[str]", Attachment, AttachmentPayload]
"""A file to expose: a path, relative to the working directory, or what it holds."""


@dataclass(frozen=True)
class AttachmentPolicy:
    """Which files a worker takes. Empty lists of suffixes say nothing."""

    max_attachments: int = 4
    max_total_bytes: int = 10_000_000
    allowed_suffixes: Sequence[str] = ()
    denied_suffixes: Sequence[str] = ()


Registry = Union["WorkerRegistry", str, "os.PathLike[str]"]
"""A registry, or what names one."""


class WorkerRegistry:
    """Where workers are defined: a project directory, its `project.json`, or a worker file.

    A program that names a project asks for its code, as an `import` does: `trust=True` agrees to what the project can
    run, loosen and send out, and keeps nothing of that. `trust=False` agrees to nothing but what the user has agreed to,
    the 32 hex digits of a list to exactly that list.
    """

    def __init__(self, root: Union[str, os.PathLike[str]], trust: Union[bool, str] = True) -> None:
        self.root = Path(root)
        self.trust = trust

    def __fspath__(self) -> str:
        return str(self.root)

    async def load_definition_async(self, name: Union[str, None] = None) -> WorkerDefinition:
        """A worker as its file defines it; without a name that of the entry."""
        server = await Server.start()
        try:
            told = await server.request("definition", {"project": os.fspath(self), "agent": name})
        finally:
            await server.stop()
        policy = told["attachment_policy"]
        return WorkerDefinition(
            name=told["name"],
            instructions=told["instructions"],
            description=told["description"],
            model=told["model"],
            toolsets=tuple(told["toolsets"]),
            allow_workers=told["allow_workers"],
            attachment_policy=None if policy is None else AttachmentPolicy(**policy),
            path=Path(told["path"]),
            tool_rules={tool: ToolRule(**rule) for tool, rule in told["tool_rules"].items()},
        )

    def load_definition(self, name: Union[str, None] = None) -> WorkerDefinition:
        """`load_definition_async`, waited for."""
        return _waited(self.load_definition_async(name))

    def __repr__(self) -> str:
        return f"WorkerRegistry({str(self.root)!r})"


@dataclass(frozen=True)
class WorkerSpec:
    """A worker to be created."""

    name: str
    instructions: str
    description: Union[str, None] = None
    model: Union[str, None] = None
    toolsets: Sequence[str] = ()
    allow_workers: Union[Sequence[str], None] = None
    attachment_policy: Union[AttachmentPolicy, None] = None


@dataclass(frozen=True)
class WorkerCreationDefaults:
    """What a created worker gets where nobody says otherwise."""

    default_model: Union[str, None] = None
    default_toolsets: Sequence[str] = ()
    default_allow_workers: Union[Sequence[str], None] = None
    default_attachment_policy: Union[AttachmentPolicy, None] = None


@dataclass(frozen=True)
class WorkerDefinition:
    """A worker as it was written to a file."""

    name: str
    instructions: str
    description: Union[str, None]
    model: Union[str, None]
    toolsets: Sequence[str]
    allow_workers: Union[Sequence[str], None]
    attachment_policy: Union[AttachmentPolicy, None]
    path: Path
    """Its file, beneath the project's root."""
    tool_rules: Mapping[str, ToolRule] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerRunResult:
    """What a worker gave."""

    output: Any
    """Text, or the value of the worker's output schema."""
    messages: list[dict[str, Any]]
    """The worker's conversation (of a turn: what was said in it), as plain values."""
    usage: dict[str, Any]
    """Tokens and money: `total` and `by_model`."""
    trace: list[dict[str, Any]]
    """The calls that were made, as trees."""
    finish: Union[str, None] = None
    """How the reply ended that is the output, such as `stop`; `None` if a function gave it."""
    run_id: Union[str, None] = None
    """The id of the run, by which it is listed and gone on with if it is kept."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """Pictures and other files that replies and results brought, if the run is kept: `path`, `media_type`, `bytes`, `tool`."""


@dataclass(frozen=True)
class WorkerContext:
    """A worker on whose behalf another one is called from outside of a run; inside of one a tool's context has the same
    fields.

    The callee is one level deeper and must be in `allow_workers` (`None`: what the caller's own file says); it gets the
    caller's model, controller, callback, attachments and creation defaults where the call says nothing.
    """

    registry: Registry
    worker: Union[str, WorkerDefinition]
    sandbox_manager: Any = None
    sandbox_toolset: Any = None
    """Files are the business of a run: outside of one there are none."""
    creation_defaults: Union[WorkerCreationDefaults, None] = None
    effective_model: Union[str, None] = None
    """For workers whose file names none."""
    approval_controller: ApprovalController = field(default_factory=ApprovalController)
    attachments: Sequence[AttachmentInput] = ()
    message_callback: Union[MessageCallback, None] = None
    custom_tools_path: Union[Path, None] = None
    depth: int = 0
    allow_workers: Union[Sequence[str], None] = None

    @property
    def worker_name(self) -> str:
        return self.worker if isinstance(self.worker, str) else self.worker.name


@dataclass(frozen=True)
class _Keeping:
    """What becomes of the record of a run, and which one goes on."""

    keep: Union[bool, None] = None
    label: Union[str, None] = None
    durable: bool = False
    message_history: Sequence[Mapping[str, Any]] = ()
    continue_run: Union[str, None] = None
    force: bool = False
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def params(self) -> dict[str, Any]:
        return {
            "keep": self.keep,
            "label": self.label,
            "durable": self.durable,
            "message_history": [json_input(message, f"message_history[{index}]") for index, message in enumerate(self.message_history)],
            "continue": self.continue_run,
            "force": self.force,
            "answers": {question: dict(answer) for question, answer in self.answers.items()},
        }


@dataclass(frozen=True)
class _Order:
    """Everything that decides how a scope is opened."""

    registry: Union[Registry, None]
    worker: Union[str, None]
    cli_model: Union[str, None] = None
    approval_callback: Union[ApprovalCallback, None] = None
    message_callback: Union[MessageCallback, None] = None
    creation_defaults: Union[WorkerCreationDefaults, None] = None
    tool_rules: Union[ToolRules, None] = None
    models: Union[Mapping[str, str], None] = None
    limits: Union[Mapping[str, Any], None] = None
    max_depth: Union[int, None] = None
    trust: Union[bool, str, None] = None
    python: Union[str, None] = None
    caller: Union[WorkerContext, None] = None
    keeping: _Keeping = field(default_factory=lambda: _Keeping())

    def params(self) -> dict[str, Any]:
        callback = self.approval_callback
        # A controller guards functions of the program too: its rules may name what the project lacks.
        own = callback.tool_rules if isinstance(callback, ApprovalController) else {}
        rules = {tool: {**asdict(rule), "optional": True} for tool, rule in own.items()}
        rules.update({tool: asdict(ToolRule.of(rule)) for tool, rule in (self.tool_rules or {}).items()})
        chosen = self.models or {}
        models = [None if model is None else model_name(model) for model in (self.cli_model, *chosen.values())]
        params: dict[str, Any] = {
            **self.keeping.params(),
            "project": None if self.registry is None else os.fspath(self.registry),
            "agent": self.worker,
            "model": models[0],
            "models": dict(zip(chosen, models[1:])),
            "providers": providers_of(models),
            "approval_mode": _approval_mode(callback),
            "tool_rules": rules,
            "limits": dict(self.limits or {}),
            "max_depth": self.max_depth,
            "creation_defaults": _defaults(self.creation_defaults),
            "events": "none" if self.message_callback is None else "all",
            "trust": getattr(self.registry, "trust", True) if self.trust is None else self.trust,
            "python": self.python or (None if self.keeping.continue_run else _own_interpreter(self.registry)),
        }
        if self.caller is not None:
            allowed = self.caller.allow_workers
            params["caller"] = {
                "agent": self.caller.worker_name,
                "depth": self.caller.depth,
                "allow_workers": None if allowed is None else list(allowed),
            }
        return params


def _own_interpreter(registry: Union[Registry, None]) -> Union[str, None]:
    """A project's own environment comes first; else its files are imported by the Python that asks for them."""
    if registry is None:
        return None
    root = Path(os.fspath(registry))
    root = root if root.is_dir() else root.parent
    return None if (root / ".venv" / "bin" / "python").exists() else sys.executable or None


def _approval_mode(callback: Union[ApprovalCallback, None]) -> Union[str, None]:
    """Whoever gives a callback wants to be asked; without one the manifest decides, and nobody is there to ask."""
    if callback is None:
        return None
    if callback is approve_all_callback:
        return "approve_all"
    if callback is strict_mode_callback:
        return "reject_all"
    return "prompt"


def _defaults(defaults: Union[WorkerCreationDefaults, None]) -> dict[str, Any]:
    if defaults is None:
        return {}
    allowed = defaults.default_allow_workers
    return {
        "model": defaults.default_model,
        "toolsets": list(defaults.default_toolsets),
        "allow_workers": None if allowed is None else list(allowed),
        "attachment_policy": _policy(defaults.default_attachment_policy),
    }


def _policy(policy: Union[AttachmentPolicy, None]) -> Union[dict[str, Any], None]:
    if policy is None:
        return None
    return {**asdict(policy), "allowed_suffixes": list(policy.allowed_suffixes), "denied_suffixes": list(policy.denied_suffixes)}


def json_input(value: Any, name: str = "input_data") -> Any:
    """An input as JSON; what is none is an error that says where it is."""
    try:
        plain = plain_input(value)
        place = _not_json(plain, name)
    except RecursionError:
        raise TypeError(f"`{name}` is nested too deep for JSON") from None
    if place is not None:
        raise TypeError(place)
    return plain


def _not_json(value: Any, where: str) -> Union[str, None]:
    if value is None or isinstance(value, (str, int, bool)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"`{where}` is {value!r}, which JSON has no form for"
    if isinstance(value, Mapping):
        inner = ((_not_json(one, f"{where}.{key}")) for key, one in value.items())
        return next((words for words in inner if words is not None), None)
    if isinstance(value, (list, tuple)):
        inner = ((_not_json(one, f"{where}[{index}]")) for index, one in enumerate(value))
        return next((words for words in inner if words is not None), None)
    return f"`{where}` is of type {type(value).__name__}, which JSON has no form for: give text, numbers, lists or dicts"


def attached(files: Sequence[AttachmentInput]) -> list[Any]:
    """Files as a turn is told of them."""
    if isinstance(files, (str, os.PathLike)):
        raise TypeError(f"`attachments` is a list: give [{str(files)!r}]")
    return [_attachment(file) for file in files]


def _attachment(file: AttachmentInput) -> Any:
    if isinstance(file, AttachmentPayload):
        return {"name": file.name, "data": base64.b64encode(file.data).decode("ascii")}
    if isinstance(file, Attachment):
        return str(file.path)
    return os.fspath(file)


class WorkerScope:
    """A worker that is open: many turns, one memory. Made by `start`."""

    def __init__(
        self, server: Server, peer: Peer, opened: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._server, self._peer = server, peer
        self._scope: int = opened["scope"]
        self._closed: Union[dict[str, Any], None] = None
        self._is_closing = False
        self.worker: str = opened["agent"]
        self.model: Union[str, None] = opened["model"]
        """`provider:model`; an entry function has none."""
        self.run_id: str = opened["run"]
        """The id of its run."""
        self.is_kept: bool = opened["kept"]
        """Whether it can be listed and gone on with by its id."""
        self.messages: list[dict[str, Any]] = list(opened.get("messages", history))
        """What was said so far."""
        self.unfinished: Any = opened.get("unfinished")
        """What was said in a turn that was cut off: `finish_turn` goes on with it."""
        self.pending: list[dict[str, Any]] = opened.get("pending", [])
        """Questions of that turn that nobody has answered."""
        self.changed: list[str] = opened.get("changed", [])
        """What has changed in the project since the run began."""
        self.usage: dict[str, Any] = {}
        """What was used so far."""

    async def run_turn(
        self,
        input_data: Any = None,
        attachments: Union[Sequence[AttachmentInput], None] = None,
    ) -> WorkerRunResult:
        """One input → one answer. What a turn said that was stopped is remembered if the error has `kept`. Without an input the manifest's is taken."""
        params: dict[str, Any] = {"scope": self._scope}
        if input_data is not None:
            params["input"] = json_input(input_data)
        if attachments:
            params["attachments"] = attached(attachments)
        return await self._taken(params)

    async def finish_turn(self) -> WorkerRunResult:
        """Goes on with the turn that was cut off: what it had done is not done again."""
        return await self._taken({"scope": self._scope, "finish": True})

    async def _taken(self, params: dict[str, Any]) -> WorkerRunResult:
        if self._is_closing:
            raise UsageError("the scope is closed")
        answer = await turn(self._server, self._peer, self._scope, params)
        self.unfinished, self.pending = None, []
        self.messages += answer["messages"]
        self.usage = answer["usage"]
        output, said, usage = answer["output"], answer["messages"], answer["usage"]
        files = answer["files"]
        return WorkerRunResult(output, said, usage, answer["trace"], answer["finish"], self.run_id, files)

    def cancel(self) -> None:
        """Ends the turn that goes on: whoever waits for it gets a `RunCancelled`. The scope stays open."""
        self._server.notify("cancel", {"scope": self._scope})

    async def close(self) -> None:
        """Closes the worker's toolsets, and ends the program. More than once does no harm."""
        if self._is_closing:
            return
        self._is_closing = True
        try:
            self._closed = await self._server.request("close", {"scope": self._scope})
            await self._peer.told()
        finally:
            await self._server.forget(self._scope)
            await self._server.stop()

    @property
    def trace(self) -> list[dict[str, Any]]:
        """All calls, as trees: known once the scope is closed."""
        return [] if self._closed is None else self._closed["trace"]

    async def __aenter__(self) -> WorkerScope:
        return self

    async def __aexit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        if error is None:
            await self.close()
            return
        # Whatever went wrong is told, not that closing went wrong too.
        self._is_closing = True
        await self._server.stop()
        await self._server.forget(self._scope)


async def turn(server: Server, peer: Peer, scope: int, params: dict[str, Any]) -> Any:
    """One turn of a scope: its answer, or what went wrong here meanwhile."""

    def cancel() -> None:
        server.notify("cancel", {"scope": scope})

    peer.reset()
    asked = asyncio.ensure_future(server.request("turn", params))
    try:
        await asyncio.wait({asked, peer.trouble}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            # A callback of ours failed: nobody wants the answer any more.
            cancel()
            await asyncio.wait({asked})
    except asyncio.CancelledError:
        cancel()
        asked.cancel()
        raise
    await peer.told()
    if peer.trouble.done():
        # The reason of what the server says.
        asked.exception()
        peer.trouble.result()
    return asked.result()


class _Start:
    """`async with start(…) as scope:`, or `scope = await start(…)` and `await scope.close()`."""

    def __init__(self, order: _Order) -> None:
        self._order = order
        self._scope: WorkerScope

    def __await__(self) -> Generator[Any, None, WorkerScope]:
        return _opened(self._order).__await__()

    async def __aenter__(self) -> WorkerScope:
        self._scope = await _opened(self._order)
        return self._scope

    async def __aexit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        traceback: Union[TracebackType, None],
    ) -> None:
        await self._scope.__aexit__(kind, error, traceback)


async def _opened(order: _Order) -> WorkerScope:
    params = order.params()

    async def answer(method: str, question: dict[str, Any]) -> Any:
        if method != "approve":
            raise Failed(METHOD_NOT_FOUND, f"there is no `{method}`")
        return await decide(order.approval_callback, question)

    async def listen(event: dict[str, Any]) -> None:
        if order.message_callback is not None:
            await maybe_await(order.message_callback(event))

    server = await Server.start()
    peer = Peer(answer, listen)
    try:
        opened = await server.open(params, peer)
    except BaseException:
        await server.stop()
        raise
    return WorkerScope(server, peer, opened, params["message_history"])


async def decide(callback: Union[ApprovalCallback, None], question: dict[str, Any]) -> dict[str, Any]:
    if callback is None:
        raise NobodyToAsk
    reason = ApprovalReason(question["reason"])
    reason.id, reason.path = question["id"], question["path"]
    reason.preview, reason.foreign = question["preview"], question["foreign"]
    reason.description, reason.remember = question["description"], question["remember"]
    reason.form = question.get("form")
    decision: ApprovalDecision = checked(await maybe_await(callback(question["tool"], question["arguments"], reason)))
    answer: dict[str, Any] = {"approved": decision.approved}
    if decision.approved and decision.values is not None:
        answer["values"] = dict(decision.values)
    elif decision.approved and decision.arguments is not None:
        answer["arguments"] = dict(decision.arguments)
    elif decision.approved and decision.approve_for_session:
        answer["remember"] = "tool" if decision.for_tool else "call"
    if not decision.approved:
        answer["note"] = decision.note
        answer["end_run"] = decision.end_run
    return answer


def start(
    registry: Registry,
    worker: Union[str, None] = None,
    *,
    cli_model: Union[str, None] = None,
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    creation_defaults: Union[WorkerCreationDefaults, None] = None,
    tool_rules: Union[ToolRules, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    max_depth: Union[int, None] = None,
    trust: Union[bool, str, None] = None,
    python: Union[str, None] = None,
    keep: Union[bool, None] = None,
    label: Union[str, None] = None,
    durable: bool = False,
    message_history: Sequence[Mapping[str, Any]] = (),
    continue_run: Union[str, None] = None,
    force: bool = False,
) -> _Start:
    """Opens a worker for many turns: `async with start(registry, "main") as scope: await scope.run_turn("hello")`.

    The parameters are those of `run_worker`.
    """
    return _Start(
        _Order(
            registry=registry,
            worker=worker,
            cli_model=cli_model,
            approval_callback=approval_callback,
            message_callback=message_callback,
            creation_defaults=creation_defaults,
            tool_rules=tool_rules,
            models=models,
            limits=limits,
            max_depth=max_depth,
            trust=trust,
            python=python,
            keeping=_Keeping(keep, label, durable, message_history, continue_run, force),
        )
    )


async def _run(order: _Order, input_data: Any, attachments: Union[Sequence[AttachmentInput], None]) -> WorkerRunResult:
    async with await _opened(order) as scope:
        turn = await scope.run_turn(input_data, attachments)
        await scope.close()
    return WorkerRunResult(turn.output, turn.messages, turn.usage, scope.trace, turn.finish, scope.run_id, turn.files)


async def run_worker_async(
    registry: Registry,
    worker: Union[str, None] = None,
    input_data: Any = None,
    attachments: Union[Sequence[AttachmentInput], None] = None,
    cli_model: Union[str, None] = None,
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    creation_defaults: Union[WorkerCreationDefaults, None] = None,
    *,
    tool_rules: Union[ToolRules, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    max_depth: Union[int, None] = None,
    trust: Union[bool, str, None] = None,
    python: Union[str, None] = None,
    keep: Union[bool, None] = None,
    label: Union[str, None] = None,
    durable: bool = False,
    message_history: Sequence[Mapping[str, Any]] = (),
    continue_run: Union[str, None] = None,
    force: bool = False,
) -> WorkerRunResult:
    """Runs a worker: one input → one answer.

    `worker` is the name of a worker (`None`: the project's entry), `input_data` text, an object, a list of texts and
    attachments or an instance of its input class (`None`: the manifest's input). `cli_model` is for workers whose file
    names no model, `models` replaces those of single workers. `approval_callback` is asked before a tool runs that needs
    it; without one such a call ends the run. `message_callback` hears the events. `tool_rules` are rules for the tools
    of all workers, `limits` those of the whole run. `trust` is that of `WorkerRegistry`, for this
    run: without it, and for a path, the project's code, servers and loosened rules are agreed to.

    The run is kept, unless `keep` is false or the user's configuration says otherwise; `label` is what it is called then,
    `durable` has each step on the disk before the next one. `message_history` begins the conversation with what was said
    elsewhere, such as the `messages` of another result; `continue_run` goes on with a kept run of the same project, and `force`
    belongs to it (see `WorkerScope.finish_turn`).
    """
    order = _Order(
        registry=registry,
        worker=worker,
        cli_model=cli_model,
        approval_callback=approval_callback,
        message_callback=message_callback,
        creation_defaults=creation_defaults,
        tool_rules=tool_rules,
        models=models,
        limits=limits,
        max_depth=max_depth,
        trust=trust,
        python=python,
        keeping=_Keeping(keep, label, durable, message_history, continue_run, force),
    )
    return await _run(order, input_data, attachments)


def run_worker(
    registry: Registry,
    worker: Union[str, None] = None,
    input_data: Any = None,
    attachments: Union[Sequence[AttachmentInput], None] = None,
    cli_model: Union[str, None] = None,
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    creation_defaults: Union[WorkerCreationDefaults, None] = None,
    *,
    tool_rules: Union[ToolRules, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    max_depth: Union[int, None] = None,
    trust: Union[bool, str, None] = None,
    python: Union[str, None] = None,
    keep: Union[bool, None] = None,
    label: Union[str, None] = None,
    durable: bool = False,
    message_history: Sequence[Mapping[str, Any]] = (),
    continue_run: Union[str, None] = None,
    force: bool = False,
) -> WorkerRunResult:
    """`run_worker_async`, waited for. Callbacks are called in this thread unless a loop runs in it already."""
    return _waited(
        run_worker_async(
            registry,
            worker,
            input_data,
            attachments,
            cli_model,
            approval_callback,
            message_callback,
            creation_defaults,
            tool_rules=tool_rules,
            models=models,
            limits=limits,
            max_depth=max_depth,
            trust=trust,
            python=python,
            keep=keep,
            label=label,
            durable=durable,
            message_history=message_history,
            continue_run=continue_run,
            force=force,
        )
    )


async def resume_run_async(
    run: str,
    *,
    approve: Union[Sequence[str], Mapping[str, Mapping[str, Any]]] = (),
    refuse: Union[Sequence[str], Mapping[str, str]] = (),
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    trust: Union[bool, str] = True,
    python: Union[str, None] = None,
    force: bool = False,
) -> WorkerRunResult:
    """Goes on with a kept run where it stopped: nothing that it did is done again.

    `run` is its id, or the unique beginning of one. `approve` and `refuse` name questions that wait by their ids (the first
    12 characters do); as a dict `refuse` says what the model reads, and `approve` gives values to questions that want more
    than yes, such as `{"48877392a3eb": {"usd": 2}}` for a limit. Other questions go to `approval_callback`. `force` goes on
    though the project has changed.
    """
    notes = refuse if isinstance(refuse, Mapping) else dict.fromkeys(refuse)
    values = approve if isinstance(approve, Mapping) else dict.fromkeys(approve)
    answers: dict[str, dict[str, Any]] = {
        question: {"approved": True, "values": dict(given)} if given else {"approved": True}
        for question, given in values.items()
    }
    for question, note in notes.items():
        if question in answers:
            raise UsageError(f"`{question}` is approved and refused")
        answers[question] = {"approved": False, "note": note}
    order = _Order(
        registry=None,
        worker=None,
        approval_callback=approval_callback,
        message_callback=message_callback,
        models=models,
        limits=limits,
        trust=trust,
        python=python,
        keeping=_Keeping(continue_run=run, force=force, answers=answers),
    )
    async with await _opened(order) as scope:
        turn = await scope.finish_turn()
        await scope.close()
    return WorkerRunResult(turn.output, turn.messages, turn.usage, scope.trace, turn.finish, scope.run_id, turn.files)


def resume_run(
    run: str,
    *,
    approve: Union[Sequence[str], Mapping[str, Mapping[str, Any]]] = (),
    refuse: Union[Sequence[str], Mapping[str, str]] = (),
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    trust: Union[bool, str] = True,
    python: Union[str, None] = None,
    force: bool = False,
) -> WorkerRunResult:
    """`resume_run_async`, waited for."""
    return _waited(
        resume_run_async(
            run,
            approve=approve,
            refuse=refuse,
            approval_callback=approval_callback,
            message_callback=message_callback,
            models=models,
            limits=limits,
            trust=trust,
            python=python,
            force=force,
        )
    )


async def list_runs_async(
    project: Union[Registry, None] = None,
    *,
    state: Union[str, None] = None,
    label: Union[str, None] = None,
    since: Union[str, None] = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """The runs that are kept, the newest first: `id`, `at`, `kind`, `project`, `entry`, `label`, `state`, `waits`, `cost`, `requests`.

    Without a project those of all. `state` is `running`, `waits`, `stopped`, `died`, `done` or `damaged`; `since` a time such as
    `7d`.
    """
    params = {"state": state, "label": label, "since": since, "limit": limit}
    server = await Server.start()
    try:
        told = await server.request("runs.list", {**params, "project": None if project is None else os.fspath(project)})
    finally:
        await server.stop()
    runs: list[dict[str, Any]] = told["runs"]
    return runs


def list_runs(
    project: Union[Registry, None] = None,
    *,
    state: Union[str, None] = None,
    label: Union[str, None] = None,
    since: Union[str, None] = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """`list_runs_async`, waited for."""
    return _waited(list_runs_async(project, state=state, label=label, since=since, limit=limit))


async def call_worker_async(
    registry: Registry,
    worker: str,
    input_data: Any = None,
    caller_context: Union[WorkerContext, CallContext, None] = None,
    attachments: Union[Sequence[AttachmentInput], None] = None,
    cli_model: Union[str, None] = None,
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    creation_defaults: Union[WorkerCreationDefaults, None] = None,
    *,
    tool_rules: Union[ToolRules, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    max_depth: Union[int, None] = None,
    trust: Union[bool, str, None] = None,
    python: Union[str, None] = None,
) -> WorkerRunResult:
    """Runs a worker on behalf of another one, which must be allowed to call it.

    In a tool of a project `caller_context` is the tool's own context (`ctx.deps`): the call is then part of that run,
    with its gate, its limits and its trace. Elsewhere it is a `WorkerContext`.
    """
    if isinstance(caller_context, CallContext):
        return await _called_within(caller_context, worker, input_data, attachments)
    if not isinstance(caller_context, WorkerContext):
        raise TypeError("call_worker needs a caller_context: a tool's own context, or a WorkerContext")
    order = _Order(
        registry=registry,
        worker=worker,
        cli_model=cli_model or caller_context.effective_model,
        approval_callback=approval_callback or _asked_by(caller_context.approval_controller),
        message_callback=message_callback or caller_context.message_callback,
        creation_defaults=creation_defaults or caller_context.creation_defaults,
        caller=caller_context,
        tool_rules=tool_rules,
        models=models,
        limits=limits,
        max_depth=max_depth,
        trust=trust,
        python=python,
    )
    return await _run(order, input_data, attachments if attachments is not None else caller_context.attachments)


def _asked_by(controller: ApprovalController) -> Union[ApprovalCallback, None]:
    """A controller that has nobody to ask is nobody to ask."""
    return controller if controller.tool_rules or controller.approval_callback is not None else None


async def _called_within(
    context: CallContext,
    worker: str,
    input_data: Any,
    attachments: Union[Sequence[AttachmentInput], None],
) -> WorkerRunResult:
    given: Any = "" if input_data is None else input_data
    if attachments:
        files = [file if isinstance(file, Attachment) else one for file, one in zip(attachments, attached(attachments))]
        if not all(isinstance(file, (str, Attachment)) for file in files):
            raise TypeError("within a run files are named by their paths, or are those that the caller was given")
        files = [Attachment(file) if isinstance(file, str) else file for file in files]
        plain = plain_input(given)
        if isinstance(plain, dict):
            given = {**plain, "attachments": [*plain.get("attachments", ()), *files]}
        else:
            given = [*(given if isinstance(given, (list, tuple)) else [given]), *files]
    output = await context.call_agent(worker, given)
    return WorkerRunResult(output, [], await context.usage(), [])


def call_worker(
    registry: Registry,
    worker: str,
    input_data: Any = None,
    caller_context: Union[WorkerContext, None] = None,
    attachments: Union[Sequence[AttachmentInput], None] = None,
    cli_model: Union[str, None] = None,
    approval_callback: Union[ApprovalCallback, None] = None,
    message_callback: Union[MessageCallback, None] = None,
    creation_defaults: Union[WorkerCreationDefaults, None] = None,
    *,
    tool_rules: Union[ToolRules, None] = None,
    models: Union[Mapping[str, str], None] = None,
    limits: Union[Mapping[str, Any], None] = None,
    max_depth: Union[int, None] = None,
    trust: Union[bool, str, None] = None,
    python: Union[str, None] = None,
) -> WorkerRunResult:
    """`call_worker_async`, waited for."""
    if isinstance(caller_context, CallContext):
        raise TypeError("within a run a call is awaited: use call_worker_async")
    return _waited(
        call_worker_async(
            registry,
            worker,
            input_data,
            caller_context,
            attachments,
            cli_model,
            approval_callback,
            message_callback,
            creation_defaults,
            tool_rules=tool_rules,
            models=models,
            limits=limits,
            max_depth=max_depth,
            trust=trust,
            python=python,
        )
    )


async def create_worker_async(
    registry: Registry,
    spec: WorkerSpec,
    defaults: Union[WorkerCreationDefaults, None] = None,
    force: bool = False,
) -> WorkerDefinition:
    """Writes a worker to `workers/generated/<name>.yaml` (or where the manifest says). `force` replaces one of that name."""

    effective = defaults or WorkerCreationDefaults()
    allowed = spec.allow_workers
    params = {
        "project": os.fspath(registry),
        "spec": {
            "name": spec.name,
            "instructions": spec.instructions,
            "description": spec.description,
            "model": spec.model,
            "toolsets": list(spec.toolsets),
            "allow_workers": None if allowed is None else list(allowed),
            "attachment_policy": _policy(spec.attachment_policy),
        },
        "defaults": _defaults(defaults),
        "force": force,
    }
    server = await Server.start()
    try:
        created = await server.request("create", params)
    finally:
        await server.stop()
    return WorkerDefinition(
        name=spec.name,
        instructions=spec.instructions,
        description=spec.description,
        model=spec.model or effective.default_model,
        toolsets=tuple(spec.toolsets) or tuple(effective.default_toolsets),
        allow_workers=spec.allow_workers if spec.allow_workers is not None else effective.default_allow_workers,
        attachment_policy=spec.attachment_policy or effective.default_attachment_policy,
        path=Path(created["path"]),
    )


def create_worker(
    registry: Registry,
    spec: WorkerSpec,
    defaults: Union[WorkerCreationDefaults, None] = None,
    force: bool = False,
) -> WorkerDefinition:
    """`create_worker_async`, waited for."""
    return _waited(create_worker_async(registry, spec, defaults, force))


def _waited(work: Coroutine[Any, Any, T]) -> T:
    """Runs to its end here; in a thread of its own if a loop runs here already."""
    try:
        asyncio.get_running_loop()
        is_running = True
    except RuntimeError:
        is_running = False
    if not is_running:
        return asyncio.run(work)
    context = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(context.run, asyncio.run, work).result()
