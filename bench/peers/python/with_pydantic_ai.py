"""The work with PydanticAI's agents."""

import asyncio

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import work as bench


def agent_at(base_url):
    provider = OpenAIProvider(base_url=f"{base_url}/v1", api_key="key")
    return Agent(OpenAIChatModel(bench.MODEL, provider=provider), instructions=bench.INSTRUCTIONS)


def nested(base_urls):
    agents = [agent_at(base_url) for base_url in base_urls]
    for caller, callee, name in zip(agents, agents[1:], bench.LEVELS[1:]):
        caller.tool_plain(name=name, description="Answers")(asking(callee))
    return agents[0]


def asking(agent):
    async def ask(input: str) -> str:
        return (await agent.run(input)).output

    return ask


def prepare(base_urls, work, _number):
    agent = nested(base_urls) if work == "nested" else agent_at(base_urls[0])
    limits = UsageLimits(request_limit=None)
    called = [0]

    async def read_file(path: str) -> str:
        """Reads a text file"""
        called[0] += 1
        if work == "parallel":
            await asyncio.sleep(bench.SLOWNESS)
        return bench.NOTES

    if work in ("loop", "parallel"):
        agent.tool_plain(read_file)

    async def hold():
        if work == "stream":
            parts = []
            async with agent.run_stream(bench.QUESTION) as result:
                async for text in result.stream_text(delta=True, debounce_by=None):
                    parts.append(text)
            return "".join(parts), 0
        result = await agent.run(bench.QUESTION, usage_limits=limits)
        return result.output, called[0]

    return hold


bench.run(prepare)
