"""Inputs: what entries and agents are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm_do.runtime import Attachment, PromptContent, PromptInput

if TYPE_CHECKING:
    from llm_do._args import AgentArgs, WorkerArgs

__all__ = ["AgentArgs", "Attachment", "PromptContent", "PromptInput", "WorkerArgs", "get_display_text"]


def get_display_text(value: Any) -> str:
    """An input as a person reads it: its texts, and its files by name."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Attachment):
        return f"[{value.path}]"
    if hasattr(value, "prompt_messages"):
        return get_display_text(value.prompt_messages())
    if isinstance(value, (list, tuple)):
        return "\n".join(get_display_text(part) for part in value)
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return "\n".join([value["input"], *(f"[{getattr(file, 'path', file)}]" for file in value.get("attachments") or ())])
    from llm_do._host.values import to_json

    return to_json(value)


def __getattr__(name: str) -> Any:
    if name in ("AgentArgs", "WorkerArgs"):
        from llm_do import _args

        return getattr(_args, name)
    import sys

    from llm_do._host.successors import missing

    raise missing(sys.modules[__name__], name)
