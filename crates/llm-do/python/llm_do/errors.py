"""What a program meets when a worker that it ran did not give a result.

Every error has a `kind`, the exit code that `llm-do run` would have ended with, and mostly a `hint` that says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Union

__all__ = [
    "ApprovalError",
    "BinaryNotFound",
    "LimitReached",
    "LlmDoError",
    "OutputInvalid",
    "ProjectError",
    "ProviderError",
    "RunCancelled",
    "ServerDied",
    "UsageError",
    "WorkerFailed",
]


class LlmDoError(Exception):
    """A worker was not run, or gave no result."""

    kind = "failed"
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: Union[str, None] = None,
        kind: Union[str, None] = None,
        exit_code: Union[int, None] = None,
        data: Union[Mapping[str, Any], None] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code: Union[int, None] = None
        """That of the JSON-RPC answer."""
        if kind is not None:
            self.kind = kind
        if exit_code is not None:
            self.exit_code = exit_code
        details = data or {}
        self.partial: Union[str, None] = details.get("partial")
        """What the worker had said before it was stopped."""
        self.kept: bool = details.get("kept", False)
        """Whether what the turn said and did stays in the conversation."""
        self.finish: Union[str, None] = details.get("finish")
        """Why the reply is no whole answer, if that is what went wrong: `length`, `context_window`, `content_filter`, `error`."""
        self.pending: list[dict[str, Any]] = details.get("pending", [])
        """Calls that somebody would have had to approve."""
        self.untrusted: list[dict[str, str]] = details.get("untrusted", [])
        """What of the project nobody has agreed to: `class`, `words`, `place`, `source` and `digest` of each."""
        self.digest: Union[str, None] = details.get("digest")
        """That of the whole list, which `trust=` takes."""
        self.usage: Union[dict[str, Any], None] = details.get("usage")
        """What the run has used until then."""
        self.run_id: Union[str, None] = details.get("run")
        """The id of the run, if it is kept: `resume_run` goes on with it."""

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class WorkerFailed(LlmDoError):
    """A worker, its model's answer or a tool failed."""


class UsageError(LlmDoError):
    """What was asked for makes no sense."""

    kind, exit_code = "usage", 2


class ProjectError(UsageError):
    """The project has mistakes; the message lists them all, each with its place."""

    kind = "project"


class ProviderError(LlmDoError):
    """The model's provider does not answer, or not as it should."""

    kind, exit_code = "provider", 3


class ApprovalError(LlmDoError, PermissionError):
    """A call needs an approval that nobody gave, or it was refused."""

    kind, exit_code = "approval", 4


class LimitReached(LlmDoError):
    """A limit of the run or of a worker; `partial` has what was said until then."""

    kind, exit_code = "limit", 5


class OutputInvalid(LlmDoError):
    """The answer violates the worker's output schema."""

    kind, exit_code = "output", 6


class RunCancelled(LlmDoError):
    """Somebody ended the turn."""

    kind, exit_code = "cancelled", 130


class ServerDied(LlmDoError):
    """The program llm-do ended in the middle."""

    kind = "server"


class BinaryNotFound(LlmDoError):
    """The program llm-do is not there."""

    kind, exit_code = "binary", 2


_BY_KIND: dict[str, type[LlmDoError]] = {
    "usage": UsageError,
    "project": ProjectError,
    "provider": ProviderError,
    "approval": ApprovalError,
    "limit": LimitReached,
    "timeout": LimitReached,
    "output": OutputInvalid,
    "cancelled": RunCancelled,
    "terminated": RunCancelled,
}


_FLAG_OF_ONE = r"`(?:-m|--model) ([^=`]*)=([^`]*)`"
_FLAG_OF_ALL = r"`-m ([^=`]+)`"

_IN_PYTHON: tuple[tuple[str, str], ...] = (
    ("give a prompt, `--input-json`, or something on stdin", "give `input_data`"),
    ("give `input`, or `attachments`", "give `input_data`, or `attachments`"),
    ("takes no input from the command line", "takes no input"),
    ("leave out the prompt, or give `--no-stdin`", "leave out `input_data`"),
    ("write `model:` in its file", "write `model:` in its file (an AgentSpec has `model=`)"),
    ("from `--model`", "from `models`"),
    ("from `model`", "from `cli_model` (a Runtime and a Context have `model=`)"),
    ("a flag or `runtime.limits`", "`limits=` or `runtime.limits`"),
    ("`--fence thin` or `LLM_DO_FENCE=thin`", "`LLM_DO_FENCE=thin` in the environment"),
    ("`--agent NAME`", "`worker=NAME`"),
    ("`--approve-all`", "`approval_callback=approve_all_callback` (a Runtime has `run_approval_policy=`)"),
    ("`--timeout`", "`limits={'timeout_seconds': …}`"),
    ("`--max-cost-usd`", "`limits={'max_cost_usd': …}`"),
    ("`--allow-unknown-prices`", "`limits={'allow_unknown_prices': True}`"),
    ("`--python PATH`", "`python=PATH`"),
    ("`--trust`", "`trust=True`"),
    ("`trust: true`", "`trust=True`"),
    ("or look at it with `--show`", "or cancel it"),
    ("`force: true` beside `continue`", "`force=True`"),
)
"""What the program says of its flags and of its protocol, as what is written in Python."""


def in_python(words: str) -> str:
    """What was meant for somebody at a terminal, for somebody who writes Python."""
    for flag, keyword in _IN_PYTHON:
        words = words.replace(flag, keyword)
    if "`-" in words:
        words = re.sub(_FLAG_OF_ONE, r"`models={'\1': '\2'}`", words)
        words = re.sub(_FLAG_OF_ALL, r"`cli_model='\1'` (a Runtime and a Context have `model=`)", words)
    return re.sub(r"`trust: (\"[0-9a-f]+\")`", r"`trust=\1`", words)


def from_answer(error: Mapping[str, Any]) -> LlmDoError:
    """The error of a JSON-RPC answer."""
    data = error.get("data") or {}
    kind = data.get("kind", "failed")
    made = _BY_KIND.get(kind, WorkerFailed)
    words, hint = in_python(error.get("message", "")), data.get("hint")
    told = made(words, hint=None if hint is None else in_python(hint), kind=kind, exit_code=data.get("exit_code"), data=data)
    told.code = error.get("code")
    return told
