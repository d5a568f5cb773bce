"""JSON-RPC 2.0 over one socket, both ways, one message per line."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from llm_do._host.wire import ENDS, Refused, line
from llm_do.faults import CallFailed, RunEnded


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
        for one in lines:
            self._hear(json.loads(one))

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
            self.begin(message.get("id", object()), method, message.get("params"))

    def begin(self, identifier: Any, method: str, params: Any) -> None:
        self._serving[identifier] = self._loop.create_task(self._answer(identifier, method, params))

    async def _answer(self, identifier: Any, method: str, params: Any) -> None:
        try:
            try:
                outcome: dict[str, Any] = {"result": await self._serve(method, params)}
            except Refused as refused:
                outcome = refused.outcome()
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
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        # Nothing is heard before this is awaited.
        self._waiting[identifier] = future
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(identifier, None)
            self.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": identifier}})
            raise

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: dict[str, Any]) -> None:
        sent = line(message)
        if threading.get_ident() == self._thread:
            self._transport.write(sent)
        else:
            self._loop.call_soon_threadsafe(self._transport.write, sent)
