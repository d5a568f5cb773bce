"""Events as lines of text."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO, Union

__all__ = ["HeadlessDisplayBackend"]

_LONGEST = 200


class HeadlessDisplayBackend:
    """Prints a line for each event that matters: with verbosity 0 what went wrong, with 1 calls and their results, with 2
    what the models say."""

    def __init__(self, stream: Union[TextIO, None] = None, verbosity: int = 0) -> None:
        self._stream, self.verbosity = stream, verbosity

    def display(self, event: Mapping[str, Any]) -> None:
        line = rendered(event, self.verbosity)
        if line is not None:
            print(line, file=self._stream or sys.stderr, flush=True)

    handle_event = display


def rendered(event: Mapping[str, Any], verbosity: int) -> Union[str, None]:
    """What is shown of an event, if anything is."""
    kind = event.get("type")
    place = "  " * int(event.get("depth") or 0)
    who = event.get("agent") or event.get("name") or ""
    if kind in ("run_failed", "notice", "limit_reached", "tool_refused"):
        words = event.get("error") or event.get("text") or event.get("limit") or event.get("reason") or ""
        return f"{place}{who}: {_short(words)}"
    if verbosity >= 1 and kind == "call_started":
        return f"{place}{event.get('name')} starts: {_short(event.get('input'))}"
    if verbosity >= 1 and kind == "tool_called":
        return f"{place}{who} calls {event.get('tool')} {_short(event.get('arguments'))}"
    if verbosity >= 1 and kind == "tool_returned":
        told = event.get("result") if event.get("error") is None else f"error: {event['error']}"
        return f"{place}{event.get('tool')} → {_short(told)}"
    if verbosity >= 1 and kind == "call_finished":
        return f"{place}{event.get('name')} is done"
    if verbosity >= 2 and kind == "text":
        return f"{place}{who}: {_short(event.get('text'))}"
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = "".join(mark if mark.isprintable() else " " for mark in text)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
