"""Starts the host: takes the channel away from user code, then serves until llm-do is gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

from llm_do._host.channel import Channel
from llm_do._host.host import Host
from llm_do._host.output import Output


def main() -> None:
    # Descriptor 0 is the channel. User code must find nothing there, neither to read nor to inherit.
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.register_at_fork(after_in_child=channel.close)
    threading.Thread(target=die_with, args=(channel,), daemon=True).start()
    asyncio.run(serve(channel))


async def serve(connection: socket.socket) -> None:
    host = Host()
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: Channel(host.serve, die), sock=connection)
    sys.stdout = Output("stdout", 1, channel.tell)
    sys.stderr = Output("stderr", 2, channel.tell)
    host.connect(lambda method, params: answered(host, channel, method, params))
    await loop.create_future()


async def answered(host: Host, channel: Channel, method: str, params: dict[str, Any]) -> Any:
    """What came back from llm-do, as the value that code expects."""
    answer = await channel.ask(method, params)
    kind = answer.get("class") if isinstance(answer, dict) and "text" in answer else None
    if kind is not None:
        return host._classes.parse(kind, answer["text"])
    if isinstance(answer, dict):
        return answer["value"] if "value" in answer else answer["text"]
    return answer


def die_with(channel: socket.socket) -> None:
    """Ends the process with everything it started once llm-do is gone, even while a tool blocks the loop."""
    poll = select.poll()
    poll.register(channel.fileno(), 0)
    poll.poll()
    die()


def die() -> None:
    os.killpg(0, signal.SIGKILL)
