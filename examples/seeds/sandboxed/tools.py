from pydantic_ai import FunctionToolset, RunContext
from llm_do import WorkerContext

kit = FunctionToolset()
agent = kit

@agent.tool
def my_tool(ctx: RunContext[WorkerContext], arg: str) -> str:
    return ctx.deps.sandbox_toolset.read_text("sandbox", "file.txt")
