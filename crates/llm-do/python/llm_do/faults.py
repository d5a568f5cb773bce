"""What code meets when something that it called did not give a result."""

from __future__ import annotations

__all__ = ["CallFailed", "NotSure", "RunEnded"]


class CallFailed(Exception):
    """An agent or a tool that was called by name failed; the message says why. Code may catch it and go on."""


class RunEnded(BaseException):
    """The whole run ends: an approval is missing, a limit is reached, or a person ended it.

    Not an `Exception`, so that `except Exception` does not swallow it; the run ends whatever code makes of it.
    """


class NotSure(Exception):
    """Raised by code that answers in the place of an agent and does not know the answer: where the mode of the name is
    `fallback`, the agent is asked instead."""
