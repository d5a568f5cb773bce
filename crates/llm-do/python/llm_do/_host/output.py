"""What user code prints: told to llm-do line by line, as what the call in which it was printed says."""

from __future__ import annotations

import contextvars
import io
import os
from collections.abc import Callable
from typing import Any

CURRENT_CALL: contextvars.ContextVar[int | None] = contextvars.ContextVar("llm_do_call", default=None)

_LONGEST_LINE = 8 * 1024


class Output(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`. What goes to the descriptor itself, such as the output of a subprocess, is heard apart."""

    def __init__(self, name: str, descriptor: int, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self._name = name
        self._descriptor = descriptor
        self._tell = tell
        self._process = os.getpid()
        self._pending: dict[int | None, str] = {}

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    @property
    def buffer(self) -> io.BufferedWriter:
        return os.fdopen(os.dup(self._descriptor), "wb")

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if os.getpid() != self._process:
            # A fork must not speak on our channel.
            os.write(self._descriptor, text.encode("utf-8", "replace"))
            return len(text)
        call = CURRENT_CALL.get()
        pending = self._pending.pop(call, "") + text
        end = len(pending) if len(pending) >= _LONGEST_LINE else pending.rfind("\n") + 1
        if end:
            self._say(call, pending[:end])
        if end < len(pending):
            self._pending[call] = pending[end:]
        return len(text)

    def flush(self) -> None:
        pending = self._pending.pop(CURRENT_CALL.get(), "")
        if pending and os.getpid() == self._process:
            self._say(CURRENT_CALL.get(), pending)

    def _say(self, call: int | None, text: str) -> None:
        self._tell("output", {"call": call, "stream": self._name, "text": text})
