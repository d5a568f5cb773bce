"""The work with the OpenAI Agents SDK."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

import work as bench


def agent_at(base_url, name, tools):
    client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="key")
    model = OpenAIChatCompletionsModel(model=bench.MODEL, openai_client=client)
    return Agent(name=name, instructions=bench.INSTRUCTIONS, model=model, tools=tools)


def nested(base_urls):
    tools = []
    for base_url, name in reversed(list(zip(base_urls, bench.LEVELS))):
        agent = agent_at(base_url, name, tools)
        tools = [agent.as_tool(tool_name=name, tool_description="Answers")]
    return agent


def prepare(base_urls, work, number):
    set_tracing_disabled(True)
    called = [0]

    @function_tool
    async def read_file(path: str) -> str:
        """Reads a text file"""
        called[0] += 1
        if work == "parallel":
            await asyncio.sleep(bench.SLOWNESS)
        return bench.NOTES

    tools = [read_file] if work in ("loop", "parallel") else []
    agent = nested(base_urls) if work == "nested" else agent_at(base_urls[0], "main", tools)

    async def hold():
        if work == "stream":
            parts = []
            async for event in Runner.run_streamed(agent, bench.QUESTION).stream_events():
                if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                    parts.append(event.data.delta)
            return "".join(parts), 0
        result = await Runner.run(agent, bench.QUESTION, max_turns=number + 2)
        return result.final_output, called[0]

    return hold


bench.run(prepare)
