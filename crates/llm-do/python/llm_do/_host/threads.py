"""Threads for functions that are not async.

A function that waits for what it has called keeps its thread, and what it has called may need one too: a pool of fixed size
would wait for itself for ever. So only functions that work count against the bound, those that wait do not; and where there
are no more threads at all, a call fails instead of waiting.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from llm_do._host.output import CURRENT_CALL

# More that work at once would only wait for each other.
_MOST_BUSY = 128
# More than llm-do lets calls stand within each other.
_MOST = 1_200
_IDLE_SECONDS = 10.0

T = TypeVar("T")
Work = tuple["Future[Any]", Callable[[], Any]]


class Threads(Executor):
    """Daemons, so that a function which never returns does not hold the program."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy, self._paused, self._idle = 0, 0, 0
        self._queued: deque[Work] = deque()
        self._ready: deque[Work] = deque()
        self._here = threading.local()
        # Of each call of llm-do, how many functions work on it.
        self._calls: dict[int | None, int] = {}

    def submit(self, fn: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        work = functools.partial(self._work, CURRENT_CALL.get(), functools.partial(fn, *arguments, **named))
        with self._changed:
            self._queued.append((future, work))
            self._advance()
        return future

    def _work(self, call: int | None, function: Callable[[], T]) -> T:
        with self._changed:
            self._calls[call] = self._calls.get(call, 0) + 1
        try:
            return function()
        finally:
            with self._changed:
                self._calls[call] -= 1
                if not self._calls[call]:
                    del self._calls[call]

    def works_on(self, call: int) -> bool:
        """Whether a function still works on a call, whoever waits for it."""
        with self._changed:
            return call in self._calls

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While a function waits for what it has called."""
        if not getattr(self._here, "is_one", False):
            yield
            return
        with self._changed:
            self._busy, self._paused = self._busy - 1, self._paused + 1
            self._advance()
        try:
            yield
        finally:
            with self._changed:
                self._busy, self._paused = self._busy + 1, self._paused - 1

    def _advance(self) -> None:
        """Gives what is queued to threads, as far as that may be."""
        while self._queued and self._busy < _MOST_BUSY:
            work = self._queued.popleft()
            if self._idle:
                self._idle -= 1
                self._ready.append(work)
                self._changed.notify()
            elif not self._started(work):
                continue
            self._busy += 1

    def _started(self, work: Work) -> bool:
        if self._busy + self._paused >= _MOST:
            _fail(work, f"{_MOST} functions that are not async wait for what they have called: make them async")
            return False
        try:
            threading.Thread(target=self._live, args=(work,), name="tool", daemon=True).start()
        except RuntimeError as error:
            _fail(work, f"{error}: {self._paused} functions that are not async wait for what they have called")
            return False
        return True

    def _live(self, work: Work) -> None:
        self._here.is_one = True
        while True:
            _run(work)
            # What it gave is nobody's to keep.
            del work
            with self._changed:
                self._busy, self._idle = self._busy - 1, self._idle + 1
                self._advance()
                while not self._ready:
                    if not self._changed.wait(_IDLE_SECONDS) and not self._ready:
                        self._idle -= 1
                        return
                work = self._ready.popleft()


def _run(work: Work) -> None:
    future, function = work
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _fail(work: Work, words: str) -> None:
    future = work[0]
    if future.set_running_or_notify_cancel():
        future.set_exception(RuntimeError(words))


@functools.lru_cache(maxsize=None)
def threads() -> Threads:
    """Those of the process."""
    return Threads()
