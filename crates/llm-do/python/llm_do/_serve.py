"""The program llm-do as a child: JSON-RPC 2.0 on its stdin and stdout, one message per line.

Read on a thread of its own, so that one child serves as many scopes as a program likes, in whatever loops.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sysconfig
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Union

from llm_do._host.wire import line
from llm_do.errors import BinaryNotFound, ServerDied, UsageError, from_answer

PROTOCOL = 1
METHOD_NOT_FOUND = -32601
INTERNAL = -32603
# Its toolsets may take some time to clean up.
CLOSING_SECONDS = 30.0

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""`(method, params)` → the result of a request of the server."""
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


class NobodyToAsk(Exception):
    """There is no callback: the question waits for somebody else, which ends the run."""


class Failed(Exception):
    """A request of the server that is answered with an error of this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Peer:
    """This side of one scope: hears its events in order, and answers what it is asked after them."""

    def __init__(self, answer: Answer, listen: Union[Listener, None] = None) -> None:
        self._answer, self._listen = answer, listen
        self.loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._attending = self.loop.create_task(self._attend())
        self._server: Server
        self.trouble: asyncio.Future[None] = self.loop.create_future()
        """Gets the exception of a callback of ours."""

    def belongs_to(self, server: Server) -> None:
        self._server = server

    def hear(self, message: dict[str, Any]) -> None:
        self._heard.put_nowait(message)

    def take_back(self, identifier: int) -> None:
        task = self._answering.get(identifier)
        if task is not None:
            task.cancel()

    async def told(self) -> None:
        """Waits until every event that has come was listened to."""
        await self._heard.join()

    async def close(self) -> None:
        tasks = [self._attending, *self._answering.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self) -> None:
        while True:
            message = await self._heard.get()
            try:
                if message["method"] != "event":
                    self._begin(message)
                elif self._listen is not None and not self.trouble.done():
                    await self._listen(message["params"]["event"])
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self.fail(error)
            finally:
                self._heard.task_done()

    def _begin(self, message: dict[str, Any]) -> None:
        identifier = message.get("id")
        work = self._reply(identifier, message["method"], message.get("params") or {})
        # Without an id nobody waits for the answer, but the work is the same.
        key = identifier if isinstance(identifier, int) else -id(work)
        task = self.loop.create_task(work)
        self._answering[key] = task
        task.add_done_callback(lambda _: self._answering.pop(key, None))

    async def _reply(self, identifier: Any, method: str, params: dict[str, Any]) -> None:
        """Answers a question of the server."""
        try:
            outcome = {"result": await self._answer(method, params)}
        except NobodyToAsk:
            outcome = {"error": {"code": METHOD_NOT_FOUND, "message": "nobody is there to ask"}}
        except Failed as failed:
            outcome = {"error": {"code": failed.code, "message": failed.message}}
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
            outcome = {"error": {"code": INTERNAL, "message": f"{type(error).__name__}: {error}"}}
        if isinstance(identifier, int):
            self._server.send({"jsonrpc": "2.0", "id": identifier, **outcome})

    def fail(self, error: BaseException) -> None:
        if not self.trouble.done():
            self.trouble.set_exception(error)
            # Marked as seen: whoever waits for a turn raises it, and without a turn nobody does.
            self.trouble.exception()

    def reset(self) -> None:
        """The next turn begins without the trouble of the last."""
        if self.trouble.done():
            self.trouble = self.loop.create_future()


class Server:
    """One `llm-do serve --stdio`. It ends when its stdin does, so also when this process is killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._writing = threading.Lock()
        self._tables = threading.Lock()
        self._next = 0
        self._next_scope = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._peers: dict[int, Peer] = {}
        self._asked_of: dict[int, Peer] = {}
        self._last_words = bytearray()
        self._ended: Union[ServerDied, None] = None
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._hearing.start()
        self._reading.start()

    @classmethod
    async def start(cls) -> Server:
        binary = find_binary()
        pipe = subprocess.PIPE
        try:
            # A session of its own: Ctrl-C is ours, and it may ask nobody at the terminal.
            process = subprocess.Popen(
                [binary, "serve", "--stdio"], stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise BinaryNotFound(f"`{binary}` cannot be started: {error}") from error
        server = cls(process)
        try:
            await server.request("hello", {"protocol": PROTOCOL})
        except BaseException as error:
            if not isinstance(error, UsageError):
                process.kill()
            await server.stop()
            raise
        return server

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    async def open(self, params: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Opens a scope, whose events and questions are this peer's; its number is ours to choose."""
        peer.belongs_to(self)
        with self._tables:
            self._next_scope += 1
            number = self._next_scope
            self._peers[number] = peer
        try:
            opened: dict[str, Any] = await self.request("open", {**params, "scope": number})
            return opened
        except BaseException:
            await self.forget(number)
            raise

    async def forget(self, scope: int) -> None:
        """Nothing is heard of a scope any more."""
        with self._tables:
            peer = self._peers.pop(scope, None)
        if peer is not None:
            await peer.close()

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Asks, and waits for the answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._tables:
            if self._ended is not None:
                raise self._ended
            self._next += 1
            identifier = self._next
            self._waiting[identifier] = future
        try:
            self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
            return await future
        finally:
            with self._tables:
                self._waiting.pop(identifier, None)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: dict[str, Any]) -> None:
        sent = line(message)
        stdin = self._process.stdin
        assert stdin is not None
        with self._writing:
            try:
                stdin.write(sent)
                stdin.flush()
            except (OSError, ValueError):
                # Its end is told by whoever reads.
                pass

    async def stop(self) -> None:
        """Lets it close what is open, and waits for its end."""
        await asyncio.get_running_loop().run_in_executor(None, self.end)

    def end(self) -> None:
        """The same, on this thread."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        with self._writing:
            try:
                stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        stdout.close()
        stderr.close()

    def _read(self) -> None:
        """Hears messages until there are none any more; then everybody who waits is told why."""
        stdout = self._process.stdout
        assert stdout is not None
        reason = ""
        try:
            for line in stdout:
                if not line.endswith(b"\n"):
                    break
                self._understand(json.loads(line))
        except ValueError as error:
            reason = f"it said what cannot be read: {error}"
            self._process.kill()
        code = self._process.wait()
        self._hearing.join()
        how = reason or (f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}")
        words = self._last_words.decode("utf-8", "replace").strip()
        ended = ServerDied(f"llm-do is gone: {how}" + (f"; its last words:\n{words}" if words else ""))
        with self._tables:
            self._ended = ended
            waiting = list(self._waiting.values())
        for future in waiting:
            _in_loop(future.get_loop(), _fail, future, ended)

    def _hear(self) -> None:
        """Keeps the last of what it says on stderr, for whoever reads that it died."""
        stderr = self._process.stderr
        assert stderr is not None
        while piece := os.read(stderr.fileno(), 4096):
            self._last_words += piece
            del self._last_words[:-4096]

    def _understand(self, message: dict[str, Any]) -> None:
        method, identifier = message.get("method"), message.get("id")
        if method is None:
            with self._tables:
                future = self._waiting.pop(identifier, None) if isinstance(identifier, int) else None
            if future is not None:
                _in_loop(future.get_loop(), _settle, future, message)
            return
        params = message.get("params") or {}
        if method == "$/cancelRequest":
            peer = self._asked_of.pop(params["id"], None)
            if peer is not None:
                _in_loop(peer.loop, peer.take_back, params["id"])
            return
        with self._tables:
            peer = self._peers.get(params.get("scope", -1))
        if peer is not None and isinstance(identifier, int):
            self._asked_of[identifier] = peer
        if peer is None or not _in_loop(peer.loop, peer.hear, message):
            if isinstance(identifier, int):
                error = {"code": METHOD_NOT_FOUND, "message": f"nobody is there for `{method}`"}
                self.send({"jsonrpc": "2.0", "id": identifier, "error": error})


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> bool:
    """Whether there is still a loop to call it in."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _settle(future: asyncio.Future[Any], message: dict[str, Any]) -> None:
    error = message.get("error")
    if error is not None:
        _fail(future, from_answer(error))
    elif not future.done():
        future.set_result(message.get("result"))
