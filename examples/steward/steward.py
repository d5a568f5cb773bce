"""Runs a worker and answers its approvals."""

import sys
from pathlib import Path

from llm_do import ApprovalDecision, LlmDoError, WorkerRegistry, run_worker

HERE = Path(__file__).parent


def decide(tool_name, payload, reason):
    """Drafts may be written; the rest of the project is nobody's to change."""
    is_draft = payload.get("path", "").startswith("drafts/")
    print(f"{' › '.join(reason.path)} › {tool_name}: {reason}: {'yes' if is_draft else 'no'}")
    if is_draft:
        return ApprovalDecision(approved=True, approve_for_session=True)
    return ApprovalDecision(approved=False, note="write beneath drafts/")


def show(event):
    if event["type"] == "tool_returned":
        print(f"{event['agent']}: {event['tool']} done")


def main():
    prompt = sys.argv[1] if len(sys.argv) > 1 else "Take the minutes"
    model = sys.argv[2] if len(sys.argv) > 2 else f"scripted:{HERE / 'script.yaml'}"
    try:
        result = run_worker(
            registry=WorkerRegistry(HERE / "clerk.worker"),
            worker="clerk",
            input_data=prompt,
            cli_model=model,
            approval_callback=decide,
            message_callback=show,
        )
    except LlmDoError as error:
        sys.exit(f"{error.kind}: {error}")
    print(result.output)
    print(f"{result.usage['total']['requests']} requests")


main()
