"""What `auditor` was as a prompt, as code. Only the words are left to a model."""

from llm_do.runtime import CallContext, PromptInput

from tally import tally


async def auditor(args: PromptInput, ctx: CallContext) -> dict:
    found = tally(args.input)
    advice = await ctx.call_agent("adviser", found)
    return {"report": args.input, **found, "advice": advice}
