import asyncio

from llm_do import ApprovalController, ApprovalDecision, WorkerContext, WorkerRegistry, call_worker_async
from llm_do.protocols import WorkerCreator, WorkerDelegator
from llm_do.runtime import RuntimeCreator, RuntimeDelegator

registry = WorkerRegistry("examples/seeds/project")
payload, files = "help me", ["examples/seeds/README.md"]
asked = []

def ask(tool_name, payload, reason):
    asked.append(tool_name)
    return ApprovalDecision(approved=payload["name"] != "spy", note="no spies")

context = WorkerContext(
    registry=registry,
    worker=registry.load_definition("my-worker"),
    effective_model="scripted:examples/seeds/project/script.yaml",
    approval_controller=ApprovalController(approval_callback=ask),
)

async def main():
    result = await call_worker_async(
        registry=registry,
        worker="target-worker",
        input_data=payload,
        caller_context=context,    # Required: parent worker's context
        attachments=files,
    )
    print(result.output)
    delegator: WorkerDelegator = RuntimeDelegator(context)
    print(await delegator.call_async("target-worker", "help", []))
    try:
        await delegator.call_async("my-worker", "help yourself", [])
    except PermissionError as error:
        print(error.message)

asyncio.run(main())

creator: WorkerCreator = RuntimeCreator(context)
print(creator.create("helper", "Help."))
try:
    creator.create("spy", "Spy.")
except PermissionError as error:
    print(error)
print(asked)

# prints:
# At your service
# At your service
# `my-worker` may not call `my-worker`
# {'name': 'helper', 'path': 'workers/generated/helper.yaml'}
# `worker.create` was refused: no spies
# ['worker.create', 'worker.create']
