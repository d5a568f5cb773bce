import asyncio

from pydantic_ai.tools import RunContext, Tool
from ctx import Context
from entries import ToolEntry, WorkerEntry

# Standard PydanticAI tool signature
async def search(ctx: RunContext[Context], query: str) -> list[str]:
    """Search for documents."""
    return ["doc1.pdf", "doc2.pdf"]

# Create entries
search_tool = ToolEntry(tool=Tool(search, name="search"))

researcher = WorkerEntry(
    name="researcher",
    instructions="Research the topic using available tools.",
    model="scripted:examples/seeds/research.yaml",  # or None to use ctx.model
    tools=[search_tool],
)

async def main():
    # Run
    ctx = Context.from_worker(researcher, model="scripted:examples/seeds/research.yaml")
    result = await ctx.call("researcher", {"topic": "AI safety"})
    print(result)

    # Inspect
    for t in ctx.trace:
        print(f"{t.name} ({t.kind}) depth={t.depth}")
    print(ctx.usage)

asyncio.run(main())

# prints:
# I found ["doc1.pdf","doc2.pdf"]
# researcher (worker) depth=0
# search (tool) depth=1
# {'scripted:examples/seeds/research.yaml': Usage(requests=2, input_tokens=0, output_tokens=0)}
