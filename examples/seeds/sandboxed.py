from llm_do import WorkerRegistry, approve_all_callback, run_worker

result = run_worker(
    registry=WorkerRegistry("examples/seeds/sandboxed"),
    worker="main",
    input_data="Read the file",
    cli_model="scripted:examples/seeds/sandboxed/script.yaml",
    approval_callback=approve_all_callback,
)
print(result.output.strip())

# prints:
# what the sandbox holds
