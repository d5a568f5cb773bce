"""The lines of the channel, and the channel itself for as long as there is no loop."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any, Union

ENDS = -32002


class Refused(Exception):
    """A request that is answered with an error: what the model, or the person, reads."""

    def __init__(self, message: str, data: Any = None, code: int = -32001) -> None:
        super().__init__(message)
        self.message, self.data, self.code = message, data, code

    def outcome(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "data": self.data}}


def line(message: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        words = f"the value is not JSON: {error}"
        # Whoever asks is told; an answer that cannot be sent must not leave the other side waiting.
        if "method" in message:
            raise TypeError(words) from error
        text = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32603, "message": words}})
    # Halves of surrogate pairs, which Python's text may hold, are no UTF-8.
    return text.encode("utf-8", "replace") + b"\n"


class Wire:
    """Speaks on a descriptor until somebody else takes it over. Files are imported with it: a loop costs more to import
    than most of them, and is not needed for that."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._lock = threading.Lock()
        self._successor: Union[Callable[[dict[str, Any]], None], None] = None

    def first(self) -> dict[str, Any]:
        """The first message. Nobody sends a second one before it is answered."""
        read = b""
        while b"\n" not in read:
            piece = os.read(self.descriptor, 65536)
            if not piece:
                raise EOFError
            read += piece
        message: dict[str, Any] = json.loads(read)
        return message

    def send(self, message: dict[str, Any]) -> None:
        with self._lock:
            if self._successor is None:
                rest = memoryview(line(message))
                while rest:
                    rest = rest[os.write(self.descriptor, rest) :]
                return
        self._successor(message)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def hand_over(self, successor: Callable[[dict[str, Any]], None]) -> None:
        with self._lock:
            self._successor = successor
