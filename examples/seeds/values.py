import asyncio
from pathlib import Path

from llm_do.runtime import AgentSpec, EntrySpec, RunApprovalPolicy, Runtime, resolve_model
from llm_do.ui import RunConfig, run_ui

NAME = "scripted:examples/seeds/values.yaml"

def count_words(text: str) -> int:
    """Counts the words of a text."""
    return len(text.split())

EVALUATOR = AgentSpec(
    name="evaluator",
    model=resolve_model(NAME),
    instructions="Evaluate.",
    tools=[count_words],
)

async def main(input_data, runtime):
    first = await runtime.call_agent("evaluator", input_data)
    second = await runtime.call_agent(EVALUATOR, {"input": "and two more words"})
    return f"{first}, {second}"

ENTRY = EntrySpec(name="main", main=main)

async def run():
    events = []
    runtime = Runtime(
        project_root=Path("."),
        run_approval_policy=RunApprovalPolicy(mode="approve_all", return_permission_errors=True),
        on_event=events.append,
        verbosity=1,
    )
    result, ctx = await runtime.run_entry(ENTRY, {"input": "a pitch deck"})
    print(result, ctx.depth, [call.name for call in ctx.trace])
    print(events[0].type, events[-1].type)

    config = RunConfig(entry=ENTRY, project_root=Path("."), approval_mode="approve_all", verbosity=0)
    outcome = await run_ui(input="one", config=config, mode="headless")
    print(outcome.result, outcome.exit_code)

asyncio.run(run())

# prints:
# 3 words, 4 words 0 ['main', 'evaluator', 'count_words', 'evaluator', 'count_words']
# call_started call_finished
# 1 words, 4 words 0
