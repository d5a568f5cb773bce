import asyncio

from llm_do.runtime import AgentSpec, Runtime

worker = AgentSpec(name="main", model="scripted:examples/seeds/turns.yaml", instructions="Talk.", toolsets=["filesystem_cwd_ro"])
prompt, another_prompt = "hello", "and goodbye"

async def main():
    runtime = Runtime()
    async with worker.start(runtime) as scope:
        result = await scope.run_turn({"input": prompt})
        print(result)
        result = await scope.run_turn({"input": another_prompt})
        print(result)
        print(scope.frame.prompt, len(scope.frame.messages), scope.frame.depth, scope.frame.active_toolsets)

    # Without `async with`
    scope = await worker.start(runtime)
    print(await scope.run_turn({"input": "again"}))
    await scope.close()
    print({model: usage.requests for model, usage in runtime.usage.items()}, len(runtime.message_log))

asyncio.run(main())

# prints:
# You said hello; this is answer 1
# You said and goodbye; this is answer 2
# and goodbye 4 0 ('filesystem_cwd_ro',)
# You said again; this is answer 1
# {'scripted:examples/seeds/turns.yaml': 3} 6
