"""Starts the host: takes the channel away from user code, imports the files, then serves until llm-do is gone."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Any, Union

from llm_do._host.host import Host
from llm_do._host.output import Output
from llm_do._host.places import add_places
from llm_do._host.wire import Wire


def main() -> None:
    # Descriptor 0 is the channel. User code must find nothing there, neither to read nor to inherit.
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.register_at_fork(after_in_child=lambda: os.close(descriptor))
    threading.Thread(target=die_with, args=(descriptor,), daemon=True).start()
    wire = Wire(descriptor)
    sys.stdout = Output("stdout", 1, wire.tell)
    sys.stderr = Output("stderr", 2, wire.tell)
    add_places()
    host = Host()
    try:
        request = wire.first()
    except EOFError:
        die()
    outcome = host.import_files(request["params"])
    if outcome is not None:
        wire.send({"jsonrpc": "2.0", "id": request["id"], **outcome})
    # From here on there is a loop; what the files need of it they have imported already.
    import asyncio

    asyncio.run(serve(wire, host, None if outcome is not None else request["id"]))


async def serve(wire: Wire, host: Host, unfinished: Union[int, None]) -> None:
    """Serves; the import is finished here if it needs a loop."""
    import asyncio
    import socket

    from llm_do._host.channel import Channel

    loop = asyncio.get_running_loop()
    connection = socket.socket(fileno=wire.descriptor)
    connection.setblocking(False)
    _, channel = await loop.create_connection(lambda: Channel(host.serve, die), sock=connection)
    wire.hand_over(channel.send)
    host.connect(lambda method, params: answered(host, channel, method, params))
    if unfinished is not None:
        channel.begin(unfinished, "finish_import", {})
    await loop.create_future()


async def answered(host: Host, channel: Any, method: str, params: dict[str, Any]) -> Any:
    """What came back from llm-do, as the value that code expects."""
    answer = await channel.ask(method, params)
    kind = answer.get("class") if isinstance(answer, dict) and "text" in answer else None
    if kind is not None:
        return host._classes.parse(kind, answer["text"])
    if isinstance(answer, dict):
        return answer["value"] if "value" in answer else answer["text"]
    return answer


def die_with(descriptor: int) -> None:
    """Ends the process with everything it started once llm-do is gone, even while a tool blocks the loop."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    die()


def die() -> None:
    # SIGKILL: the module with its name would have to be imported.
    os.killpg(0, 9)
