"""JSON-RPC 2.0 over one socket, both ways, one message per line."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from llm_do.faults import CallFailed, RunEnded

ENDS = -32002


class Refused(Exception):
    """A request that is answered with an error: what the model, or the person, reads."""

    def __init__(self, message: str, data: Any = None, code: int = -32001) -> None:
        super().__init__(message)
        self.message, self.data, self.code = message, data, code


class Channel(asyncio.Protocol):
    """One end of the connection. Messages may be sent from any thread; they are served on the loop."""

    def __init__(self, serve: Callable[[str, Any], Awaitable[Any]], lost: Callable[[], None]) -> None:
        self._serve = serve
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._pieces: list[bytes] = []
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._serving: dict[Any, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._pieces.append(data)
            return
        *lines, rest = data.split(b"\n")
        if self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
        self._pieces = [rest] if rest else []
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            waiting = self._waiting.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                error = message.get("error")
                if error is None:
                    waiting.set_result(message.get("result"))
                elif error["code"] == ENDS:
                    waiting.set_exception(RunEnded(error["message"]))
                else:
                    waiting.set_exception(CallFailed(error["message"]))
        elif method == "$/cancelRequest":
            task = self._serving.get(message["params"]["id"])
            if task is not None:
                task.cancel()
        else:
            # Without an id nobody waits for the answer, but the work is the same.
            identifier = message.get("id", object())
            task = self._loop.create_task(self._answer(identifier, method, message.get("params")))
            self._serving[identifier] = task

    async def _answer(self, identifier: Any, method: str, params: Any) -> None:
        try:
            try:
                outcome: dict[str, Any] = {"result": await self._serve(method, params)}
            except Refused as refused:
                outcome = {"error": {"code": refused.code, "message": refused.message, "data": refused.data}}
            if isinstance(identifier, int):
                self.send({"jsonrpc": "2.0", "id": identifier, **outcome})
        except asyncio.CancelledError:
            # Taken back: nobody reads an answer.
            pass
        finally:
            self._serving.pop(identifier, None)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._next += 1
        identifier = self._next
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[identifier] = future
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(identifier, None)
            self.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": identifier}})
            raise

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: dict[str, Any]) -> None:
        try:
            text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            # A message that cannot be sent must not leave anybody waiting.
            words = f"the value is not JSON: {error}"
            text = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32603, "message": words}})
        # Halves of surrogate pairs, which Python's text may hold, are no UTF-8.
        line = text.encode("utf-8", "replace") + b"\n"
        if threading.get_ident() == self._thread:
            self._transport.write(line)
        else:
            self._loop.call_soon_threadsafe(self._transport.write, line)
