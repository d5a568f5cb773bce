"""The program llm-do as a child: JSON-RPC 2.0 on its stdin and stdout, one message per line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sysconfig
from asyncio import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Union

from llm_do.errors import BinaryNotFound, ServerDied, UsageError, from_answer

PROTOCOL = 1
LONGEST_LINE = 256 * 1024 * 1024
METHOD_NOT_FOUND = -32601
INTERNAL = -32603
# Its toolsets may take some time to clean up.
CLOSING_SECONDS = 30.0

Question = Callable[[dict[str, Any]], Awaitable[Any]]
Listener = Callable[[dict[str, Any]], Awaitable[None]]


def find_binary() -> str:
    """The program: named by `LLM_DO_BIN`, beside this package or its interpreter, or on the path."""
    named = os.environ.get("LLM_DO_BIN")
    if named:
        if os.access(named, os.X_OK) and os.path.isfile(named):
            return named
        raise BinaryNotFound(f"`LLM_DO_BIN` is `{named}`, which is no program")
    beside = (Path(__file__).parent / "bin", Path(sysconfig.get_path("scripts") or "."))
    for directory in beside:
        candidate = directory / "llm-do"
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return str(candidate)
    found = shutil.which("llm-do")
    if found is None:
        places = ", ".join(str(directory) for directory in beside)
        raise BinaryNotFound(
            f"the program llm-do is not there: neither in {places} nor on the path",
            hint="install it with `cargo install --path crates/llm-do-cli`, or set LLM_DO_BIN to where it is",
        )
    return found


class Server:
    """One `llm-do serve --stdio`. It ends when its stdin does, so also when this process is killed."""

    def __init__(self, process: subprocess.Process, answer: Question, listen: Union[Listener, None]) -> None:
        self._process = process
        self._answer = answer
        self._listen = listen
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._questions: dict[int, asyncio.Task[None]] = {}
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._last_words = bytearray()
        self._ended: Union[ServerDied, None] = None
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the exception of a callback of ours."""
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._hear(), self._tell())]

    @classmethod
    async def start(cls, answer: Question, listen: Union[Listener, None]) -> Server:
        binary = find_binary()
        try:
            # A session of its own: Ctrl-C is ours, and it may ask nobody at the terminal.
            process = await asyncio.create_subprocess_exec(
                binary,
                "serve",
                "--stdio",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                limit=LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise BinaryNotFound(f"`{binary}` cannot be started: {error}") from error
        server = cls(process, answer, listen)
        try:
            await server.request("hello", {"protocol": PROTOCOL})
        except BaseException as error:
            if not isinstance(error, UsageError):
                server.kill()
            await server.stop()
            raise
        return server

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Asks, and waits for the answer."""
        if self._ended is not None:
            raise self._ended
        self._next += 1
        identifier = self._next
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[identifier] = future
        try:
            await self._send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
            return await future
        finally:
            self._waiting.pop(identifier, None)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def told(self) -> None:
        """Waits until every event that has come was listened to."""
        await self._events.join()

    async def stop(self) -> None:
        """Lets it close what is open, and waits for its end."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSING_SECONDS)
        except asyncio.TimeoutError:
            pass
        finally:
            self.kill()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        for task in (*self._tasks, *self._questions.values()):
            task.cancel()
        # Whoever waits until everything was listened to must not wait for what nobody will listen to.
        while not self._events.empty():
            self._events.get_nowait()
            self._events.task_done()

    async def _send(self, message: dict[str, Any]) -> None:
        self._write(message)
        stdin = self._process.stdin
        assert stdin is not None
        try:
            await stdin.drain()
        except (ConnectionError, BrokenPipeError):
            # Its end is told by whoever reads.
            pass

    def _write(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line.encode("utf-8", "replace") + b"\n")

    async def _read(self) -> None:
        """Hears messages until there are none any more; then everybody who waits is told why."""
        stdout = self._process.stdout
        assert stdout is not None
        reason = ""
        try:
            while line := await stdout.readline():
                if not line.endswith(b"\n"):
                    break
                self._understand(json.loads(line))
        except ValueError as error:
            reason = f"it said what cannot be read: {error}"
        if reason:
            self._process.kill()
        code = await self._process.wait()
        how = reason or (f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}")
        words = self._last_words.decode("utf-8", "replace").strip()
        self._ended = ServerDied(f"llm-do is gone: {how}" + (f"; its last words:\n{words}" if words else ""))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._ended)

    async def _hear(self) -> None:
        """Keeps the last of what it says on stderr, for whoever reads that it died."""
        stderr = self._process.stderr
        assert stderr is not None
        while piece := await stderr.read(4096):
            self._last_words += piece
            del self._last_words[:-4096]

    def _understand(self, message: dict[str, Any]) -> None:
        method, identifier = message.get("method"), message.get("id")
        if method is None:
            future = self._waiting.pop(identifier, None) if isinstance(identifier, int) else None
            if future is not None and not future.done():
                error = message.get("error")
                if error is None:
                    future.set_result(message.get("result"))
                else:
                    future.set_exception(from_answer(error))
        elif method == "event":
            self._events.put_nowait(message["params"]["event"])
        elif method == "$/cancelRequest":
            question = self._questions.get(message["params"]["id"])
            if question is not None:
                question.cancel()
        elif isinstance(identifier, int):
            self._questions[identifier] = asyncio.create_task(self._decide(identifier, method, message.get("params")))

    async def _decide(self, identifier: int, method: str, params: Any) -> None:
        """Answers a question of the server."""
        try:
            if method != "approve":
                error = {"code": METHOD_NOT_FOUND, "message": f"there is no `{method}`"}
                await self._send({"jsonrpc": "2.0", "id": identifier, "error": error})
                return
            try:
                decision = await self._answer(params)
            except NobodyToAsk:
                error = {"code": METHOD_NOT_FOUND, "message": "nobody is there to ask"}
                await self._send({"jsonrpc": "2.0", "id": identifier, "error": error})
                return
            # Nothing to approve can follow from an answer that cannot be sent.
            await self._send({"jsonrpc": "2.0", "id": identifier, "result": decision})
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
            words = f"{type(error).__name__}: {error}"
            await self._send({"jsonrpc": "2.0", "id": identifier, "error": {"code": INTERNAL, "message": words}})
        finally:
            self._questions.pop(identifier, None)

    async def _tell(self) -> None:
        """Passes events on, one after the other."""
        while True:
            event = await self._events.get()
            try:
                if self._listen is not None and not self.trouble.done():
                    await self._listen(event)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self.fail(error)
            finally:
                self._events.task_done()

    def fail(self, error: BaseException) -> None:
        if not self.trouble.done():
            self.trouble.set_exception(error)
            # Marked as seen: whoever waits for a turn raises it, and without a turn nobody does.
            self.trouble.exception()

    def reset(self) -> None:
        """The next turn begins without the trouble of the last."""
        if self.trouble.done():
            self.trouble = asyncio.get_running_loop().create_future()


class NobodyToAsk(Exception):
    """There is no callback: the question waits for somebody else, which ends the run."""
