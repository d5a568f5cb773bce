from llm_do import ApprovalDecision, ApprovalError, approve_all_callback, run_worker, strict_mode_callback

fixed = {
    "registry": "examples/seeds/project",
    "input_data": "write",
    "cli_model": "scripted:examples/seeds/project/script.yaml",
}

# Auto-approve everything (for tests)
result = run_worker(**fixed, approval_callback=approve_all_callback)
print(result.output)

# Reject all approval-required tools (strict mode)
try:
    result = run_worker(**fixed, approval_callback=strict_mode_callback)
except ApprovalError as error:
    print(type(error).__name__, error.exit_code)

# Custom callback
def my_callback(tool_name: str, payload: dict, reason: str) -> ApprovalDecision:
    # Show prompt to user, get decision
    print(tool_name, payload, reason)
    return ApprovalDecision(
        approved=True,
        approve_for_session=True,  # Don't ask again for same operation
    )

print(run_worker(**fixed, approval_callback=my_callback).output)

# prints:
# Done: wrote 5 characters to report.md
# ApprovalError 4
# write_file {'path': 'report.md', 'content': 'fine\n'} writes report.md: it stays as it is
# Done: wrote 5 characters to report.md
