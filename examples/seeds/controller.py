from llm_do import ApprovalController, ApprovalDecision, WorkerRegistry, run_worker

registry = WorkerRegistry("examples/seeds/project")
definition = registry.load_definition("my-worker")
print(definition.tool_rules)
asked = []

def my_callback(tool_name, payload, reason):
    asked.append((tool_name, payload))
    return ApprovalDecision(approved=True, approve_for_session=True)

def do_write():
    return "written"

controller = ApprovalController(
    tool_rules=definition.tool_rules,
    approval_callback=my_callback,
)

# Used internally by tools
for _ in range(2):
    result = controller.maybe_run(
        tool_name="sandbox.write",
        payload={"path": "output/file.txt"},
        func=lambda: do_write(),
    )
print(result, asked)

# The same controller guards the tools of a run
guard = ApprovalController({"sandbox.write": {"approval_required": True}}, my_callback)
guard.maybe_run(tool_name="sandbox.write", payload={}, func=do_write)
model = "scripted:examples/seeds/project/script.yaml"
print(run_worker(registry, "my-worker", "write", cli_model=model, approval_callback=guard).output, len(asked))

# prints:
# {'read_file': ToolRule(allowed=True, approval_required=False, description=None), 'write_file': ToolRule(allowed=True, approval_required=True, description=None)}
# written [('sandbox.write', {'path': 'output/file.txt'})]
# Done: wrote 5 characters to report.md 3
