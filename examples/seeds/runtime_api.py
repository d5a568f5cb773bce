import asyncio

from llm_do import ApprovalDecision, WorkerRegistry
from llm_do import run_worker, run_worker_async

registry = WorkerRegistry("examples/seeds/project")
heard = []

def callback(tool_name, payload, reason):
    return ApprovalDecision(approved=True)

def on_message(event):
    heard.append(event["type"])

# Sync version
result = run_worker(
    registry=registry,
    worker="my-worker",
    input_data={"task": "..."},
    attachments=None,              # Optional files to expose
    cli_model="scripted:examples/seeds/project/script.yaml",      # Fallback model
    approval_callback=callback,    # For tool approvals
    message_callback=on_message,   # For streaming events
)
print(result.output, len(result.messages), heard[0], heard[-1])

async def main():
    # Async version
    result = await run_worker_async(
        registry=registry,
        worker="my-worker",
        input_data={"task": "..."},
        cli_model="scripted:examples/seeds/project/script.yaml",
    )
    print(result.output)

asyncio.run(main())

# prints:
# I do the task 2 call_started call_finished
# I do the task
