from llm_do import WorkerRegistry, create_worker, WorkerSpec, WorkerCreationDefaults

registry = WorkerRegistry("examples/seeds/project")

spec = WorkerSpec(
    name="new-worker",
    instructions="You are a helpful assistant.",
    description="A simple worker",
)

definition = create_worker(
    registry=registry,
    spec=spec,
    defaults=WorkerCreationDefaults(default_model="openai:gpt-4"),
    force=False,  # Set True to overwrite existing
)
print(definition.name, definition.path, definition.model)

# prints:
# new-worker workers/generated/new-worker.yaml openai:gpt-4
