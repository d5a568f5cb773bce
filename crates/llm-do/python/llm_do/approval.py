"""Who agrees before a tool runs: decisions, callbacks that make them, and a controller that remembers them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from llm_do.errors import ApprovalError

__all__ = [
    "ApprovalCallback",
    "ApprovalController",
    "ApprovalDecision",
    "ApprovalReason",
    "ToolRule",
    "ToolRules",
    "approve_all_callback",
    "strict_mode_callback",
]

T = TypeVar("T")


@dataclass(frozen=True)
class ApprovalDecision:
    """An answer to the question whether a tool may run.

    `approve_for_session` covers this exact call for the rest of the run; with `for_tool` also, the tool whatever its
    arguments. `arguments` are other arguments to run it with, which are judged again. A refusal with a `note` is read by
    the model; `end_run` ends the run instead. A question with a `form` is answered with `values`: one for each of its
    fields, by their names; a refusal declines it.
    """

    approved: bool
    approve_for_session: bool = False
    note: Union[str, None] = None
    for_tool: bool = False
    arguments: Union[Mapping[str, Any], None] = None
    end_run: bool = False
    values: Union[Mapping[str, Any], None] = None


class ApprovalReason(str):
    """Why somebody is asked: a text, with what else there is to see."""

    path: Sequence[str] = ()
    """The workers from the entry down."""
    preview: Union[str, None] = None
    """What would change, line by line."""
    foreign: Union[str, None] = None
    """What somebody else says about the call, such as the tool's own code: not llm-do's words."""
    description: Union[str, None] = None
    """What the program's own rule for the tool says."""
    remember: Sequence[str] = ()
    """Which answers for the session are taken: `"call"`, `"tool"`."""
    id: Union[str, None] = None
    form: Union[Mapping[str, Any], None] = None
    """What a person fills in, if yes is no answer: a `question`, and `fields` with `name`, `type`, `options`, `required`. These
    are the words of whoever asks, not llm-do's."""


ApprovalCallback = Callable[[str, Any, str], Union[ApprovalDecision, Awaitable[ApprovalDecision]]]
"""`(tool_name, payload, reason)` → a decision, sync or async."""


def approve_all_callback(tool_name: str, payload: Any, reason: str) -> ApprovalDecision:
    """Every question is answered with yes. For tests."""
    return ApprovalDecision(approved=True)


def strict_mode_callback(tool_name: str, payload: Any, reason: str) -> ApprovalDecision:
    """Every question is answered with no, which ends the run."""
    return ApprovalDecision(approved=False, note="every question is answered with no in this run", end_run=True)


@dataclass(frozen=True)
class ToolRule:
    """What a program says about a tool."""

    allowed: bool = True
    approval_required: bool = False
    description: Union[str, None] = None

    @staticmethod
    def of(rule: Union[ToolRule, Mapping[str, Any]]) -> ToolRule:
        return rule if isinstance(rule, ToolRule) else ToolRule(**rule)


ToolRules = Mapping[str, Union[ToolRule, Mapping[str, Any]]]
"""Rules by tool."""


class ApprovalController:
    """Runs what its rules allow, asks where they ask, and remembers approvals for as long as it lives.

    A tool without a rule asks; without a callback nobody answers, which refuses. A controller may be given to
    `run_worker` as its `approval_callback`: then its rules hold there too, and what it remembers holds for several runs.
    """

    def __init__(
        self,
        tool_rules: Union[ToolRules, None] = None,
        approval_callback: Union[ApprovalCallback, None] = None,
    ) -> None:
        self.tool_rules = {tool: ToolRule.of(rule) for tool, rule in (tool_rules or {}).items()}
        self.approval_callback = approval_callback
        self._approved: set[tuple[str, Union[str, None]]] = set()

    def maybe_run(self, tool_name: str, payload: Any, func: Callable[[], T]) -> T:
        """Runs `func` if it may run, else raises `ApprovalError`, which is a `PermissionError`."""
        reason = self._reason(tool_name)
        if reason is not None and not self._is_remembered(tool_name, payload):
            self._settle(tool_name, payload, _given_now(self._ask(tool_name, payload, reason)))
        return func()

    async def maybe_run_async(self, tool_name: str, payload: Any, func: Callable[[], Union[T, Awaitable[T]]]) -> T:
        """The same, where the callback or the function may be async."""
        reason = self._reason(tool_name)
        if reason is not None and not self._is_remembered(tool_name, payload):
            self._settle(tool_name, payload, await maybe_await(self._ask(tool_name, payload, reason)))
        return await maybe_await(func())

    async def __call__(self, tool_name: str, payload: Any, reason: str) -> ApprovalDecision:
        """As the callback of a run: what was approved for the session is not asked again."""
        if self._is_remembered(tool_name, payload):
            return ApprovalDecision(approved=True)
        decision = await maybe_await(self._ask(tool_name, payload, reason))
        self._remember(tool_name, payload, decision)
        return decision

    def _reason(self, tool_name: str) -> Union[str, None]:
        """Why somebody has to be asked; `None` if nobody has."""
        rule = self.tool_rules.get(tool_name)
        if rule is None:
            return f"there is no rule for `{tool_name}`"
        if not rule.allowed:
            raise ApprovalError(f"`{tool_name}` is not allowed")
        if not rule.approval_required:
            return None
        return rule.description or f"a rule for `{tool_name}` asks"

    def _ask(self, tool_name: str, payload: Any, reason: str) -> Union[ApprovalDecision, Awaitable[ApprovalDecision]]:
        if self.approval_callback is None:
            return ApprovalDecision(approved=False, note="nobody is there to ask")
        return self.approval_callback(tool_name, payload, reason)

    def _settle(self, tool_name: str, payload: Any, decision: ApprovalDecision) -> None:
        if not checked(decision).approved:
            raise ApprovalError(f"`{tool_name}` was refused" + (f": {decision.note}" if decision.note else ""))
        if decision.arguments is not None:
            raise TypeError("other arguments cannot be given to a function that has its own")
        self._remember(tool_name, payload, decision)

    def _remember(self, tool_name: str, payload: Any, decision: ApprovalDecision) -> None:
        if checked(decision).approved and decision.approve_for_session and decision.arguments is None:
            self._approved.add((tool_name, None if decision.for_tool else _canonical(payload)))

    def _is_remembered(self, tool_name: str, payload: Any) -> bool:
        return (tool_name, None) in self._approved or (tool_name, _canonical(payload)) in self._approved


def checked(decision: Any) -> ApprovalDecision:
    """Whatever is no decision allows nothing."""
    if not isinstance(decision, ApprovalDecision):
        raise TypeError(f"an approval callback gives an ApprovalDecision, not {decision!r}")
    return decision


async def maybe_await(value: Union[T, Awaitable[T]]) -> T:
    if inspect.isawaitable(value):
        given: T = await value
        return given
    return value


def _given_now(value: Any) -> Any:
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("the approval callback is async: use maybe_run_async")
    return value


def _canonical(payload: Any) -> str:
    return json.dumps(payload, sort_keys=True, default=repr)
