"""Sorts changes."""


def sorter(change: str) -> dict:
    """Says whether users notice a change, and how to tell them.

    Args:
        change: the text of the change
    """
    for line in change.splitlines():
        if line.startswith("users:"):
            return {"kind": "new", "line": line.removeprefix("users:").strip()}
    return {"kind": "internal", "line": ""}


TOOLS = [sorter]
