"""What the Python runners have in common: `RUNNER BASE_URL (one | stream N | loop N | parallel N | runs N | nested SECOND_URL THIRD_URL)`.

A runner defines `prepare(base_urls, work, number)`, which gives a function that holds one conversation and returns its
last words and how often the tool was called; here it is run, on one thread, and its result is checked: a benchmark that
read something else measures nothing.
"""

import asyncio
import sys
import time

MODEL = "gpt-4.1-mini"
INSTRUCTIONS = "You are a friendly assistant. Answer briefly."
QUESTION = "Hello"
#: The agents of `nested`, and what each one's model calls the next.
LEVELS = ("main", "middle", "leaf")
NOTES = "a line of notes as people take them\n" * 16
PIECE = "and so the story goes further "
PIECES = 20
SLOWNESS = 0.020


def run(prepare):
    base_url, work, *rest = sys.argv[1:]
    number = int(rest[0]) if rest and work != "nested" else 0
    levels = [base_url, *rest] if work == "nested" else [base_url]
    sys.exit(asyncio.run(hold_all(prepare(levels, work, number), work, number)))


async def hold_all(hold, work, number):
    async def timed():
        started = time.perf_counter()
        text, calls = await hold()
        return text, calls, time.perf_counter() - started

    runs = number if work == "runs" else 1
    held = await asyncio.gather(*(timed() for _ in range(runs)))
    times = sorted(seconds for _, _, seconds in held)
    print("p99", int(times[min(runs * 99 // 100, runs - 1)] * 1_000_000))
    return 0 if all(is_right(text, calls, work, number) for text, calls, _ in held) else 1


def is_right(text, calls, work, number):
    if work == "one":
        return len(text) > 0
    pieces = number if work == "stream" else PIECES
    return len(text) == pieces * len(PIECE) and calls == (number if work in ("loop", "parallel") else 0)
