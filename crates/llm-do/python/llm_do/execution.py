"""How an agent is run: by the program llm-do, whoever asks for it."""

from __future__ import annotations

from typing import Any

from llm_do.workers import WorkerRunResult, run_worker, run_worker_async

__all__ = ["default_agent_runner", "default_agent_runner_async"]


async def default_agent_runner_async(*arguments: Any, **named: Any) -> WorkerRunResult:
    """`run_worker_async`: there is one runner."""
    return await run_worker_async(*arguments, **named)


def default_agent_runner(*arguments: Any, **named: Any) -> WorkerRunResult:
    """`run_worker`: there is one runner."""
    return run_worker(*arguments, **named)
