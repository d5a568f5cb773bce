"""Runs that are watched: headless, or with questions at the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from llm_do.approval import ApprovalDecision
from llm_do.ctx import Context
from llm_do.errors import LlmDoError
from llm_do.runtime.approval import RunApprovalPolicy
from llm_do.runtime.shared import Runtime
from llm_do.ui.adapter import adapt_event
from llm_do.ui.display import HeadlessDisplayBackend

__all__ = ["RunConfig", "RunUiResult", "run_ui"]


@dataclass(frozen=True)
class RunConfig:
    """What is run, and how."""

    entry: Any
    project_root: Union[str, os.PathLike[str], None] = None
    approval_mode: str = "prompt"
    verbosity: int = 1
    model: Union[str, None] = None
    max_depth: int = 5
    return_permission_errors: bool = False
    agents: Any = ()


@dataclass(frozen=True)
class RunUiResult:
    """What came of it: the result, or the error, with the exit code that `llm-do run` would have had."""

    result: Any
    exit_code: int = 0
    error: Union[LlmDoError, None] = None
    context: Union[Context, None] = None


async def run_ui(*, input: Any = None, config: Union[RunConfig, None] = None, mode: str = "headless", **more: Any) -> RunUiResult:
    """Runs an entry and shows what happens on stderr. `mode="tui"` asks on the terminal; `llm-do chat` is the chat.

    The keys of `config` may be given as keywords of their own.
    """
    if mode not in ("headless", "tui"):
        raise ValueError(f"`mode` is {mode!r}, which is neither 'headless' nor 'tui'")
    order = config or RunConfig(**more)
    display = HeadlessDisplayBackend(verbosity=order.verbosity)
    if mode == "tui":
        sys.stderr.write("questions are asked here; `llm-do chat` is the chat\n")
    policy = RunApprovalPolicy(
        mode=order.approval_mode,
        approval_callback=ask_at_terminal if mode == "tui" and order.approval_mode == "prompt" else None,
        return_permission_errors=order.return_permission_errors,
    )
    runtime = Runtime(
        project_root=order.project_root,
        run_approval_policy=policy,
        on_event=lambda event: display.display(adapt_event(event)),
        verbosity=order.verbosity,
        model=order.model,
        max_depth=order.max_depth,
        agents=order.agents,
    )
    async with runtime:
        try:
            result, context = await runtime.run_entry(order.entry, input)
        except LlmDoError as error:
            sys.stderr.write(f"error: {error}\n")
            return RunUiResult(None, error.exit_code, error)
    return RunUiResult(result, 0, None, context)


async def ask_at_terminal(tool_name: str, payload: Mapping[str, Any], reason: str) -> ApprovalDecision:
    """A question with y, a (for the session) and n. Whatever else is typed is a no."""
    shown = f"{' › '.join(getattr(reason, 'path', ()))}: {tool_name} {dict(payload)!r}\n{reason}\nrun it? [y/a/n] "
    sys.stderr.write("".join(mark if mark.isprintable() or mark == "\n" else "�" for mark in shown))
    sys.stderr.flush()
    typed = (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip().lower()
    return ApprovalDecision(approved=typed in ("y", "a"), approve_for_session=typed == "a")
