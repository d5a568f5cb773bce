"""An MCP server with the official library: over stdio, or with `http` on loopback, where it prints its port."""

import socket
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("desk", log_level="WARNING")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63fccfc0f01f0005050201"
    "5fc8f1d20000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Adds two numbers."""
    return {"sum": a + b}


@server.tool()
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
async def steps(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half way")
    await ctx.info("a word on the way")
    return "done"


@server.tool()
async def confirm(ctx: Context) -> str:
    from pydantic import BaseModel

    class Answer(BaseModel):
        sure: bool

    return str(await ctx.elicit("sure?", Answer))


@server.tool()
def fail() -> str:
    raise ToolError("no such shelf")


if sys.argv[1] == "stdio":
    server.run()
else:
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listening])
