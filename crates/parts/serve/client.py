"""The Python SDK as a client on stdio: lists, calls, answers a question. client.py PROGRAM PROJECT"""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main() -> None:
    command, project = sys.argv[1:]
    asked = 0

    async def answer(context, params):
        nonlocal asked
        asked += 1
        assert "out.txt" in params.message, params.message
        return types.ElicitResult(action="accept", content={"answer": "once"})

    server = StdioServerParameters(command=command, args=["serve", "--mcp", project], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write, elicitation_callback=answer) as session:
        await session.initialize()
        listed = await session.list_tools()
        print(*[tool.name for tool in listed.tools])
        said = await session.call_tool("reader", {"input": "hello"})
        print(said.content[0].text)
        done = await session.call_tool("main", {"input": "write it"})
        failed = getattr(done, "is_error", None) or getattr(done, "isError", None)
        print("failed" if failed else "done", asked)


asyncio.run(main())
