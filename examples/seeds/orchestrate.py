import asyncio

from pydantic_ai.tools import RunContext
from llm_do import Context, ToolEntry, WorkerEntry

async def other_tool(ctx: RunContext[Context], q: str) -> list[dict]:
    return [{"about": q, "depth": ctx.deps.depth}]

async def my_tool(ctx: RunContext[Context], query: str, limit: int = 10) -> list[dict]:
    # Access orchestration via ctx.deps
    result = await ctx.deps.call("other_tool", {"q": query})
    return result

librarian = WorkerEntry(
    name="librarian",
    instructions="Ask your tool.",
    tools=[ToolEntry(tool=my_tool), ToolEntry(tool=other_tool, requires_approval=False)],
)

async def main():
    ctx = Context.from_worker(librarian, model="scripted:examples/seeds/research.yaml")
    print(await ctx.tools.librarian(input="What about ferns?"))
    print(await ctx.call("other_tool", {"q": "moss"}))
    for t in ctx.trace:
        print(t.name, t.kind, t.depth, t.input_data, t.output_data, t.error)

asyncio.run(main())

# prints:
# It says [{"about":"ferns","depth":2}]
# [{'about': 'moss', 'depth': 0}]
# librarian worker 0 {'input': 'What about ferns?'} It says [{"about":"ferns","depth":2}] None
# my_tool tool 1 {'query': 'ferns'} [{"about":"ferns","depth":2}] None
# other_tool tool 2 {'q': 'ferns'} [{"about":"ferns","depth":2}] None
# other_tool tool 0 {'q': 'moss'} [{"about":"moss","depth":0}] None
