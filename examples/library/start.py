"""Where a run starts."""

from llm_do.runtime import CallContext
from schemas import Request


async def start(request: Request, ctx: CallContext) -> dict:
    """Code decides what is worth a model."""
    answer = await ctx.call_agent("librarian", request)
    return {"topic": request.topic, "answer": answer, "words": await ctx.call("word_count", {"text": answer})}
