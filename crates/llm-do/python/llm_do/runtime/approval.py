"""Who answers the questions of a runtime's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from llm_do.approval import ApprovalCallback, ApprovalController, approve_all_callback, strict_mode_callback

__all__ = ["RunApprovalPolicy"]

MODES = ("prompt", "approve_all", "reject_all")


@dataclass(frozen=True)
class RunApprovalPolicy:
    """`prompt` asks the callback (without one nobody answers, and a call that needs an answer ends the run),
    `approve_all` and `reject_all` ask nobody. With `return_permission_errors` a model reads of a refusal and goes on."""

    mode: str = "prompt"
    approval_callback: Union[ApprovalCallback, None] = None
    return_permission_errors: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"`mode` is {self.mode!r}, which is none of {', '.join(MODES)}")

    def remembered(self) -> Union[ApprovalCallback, None]:
        """The callback, with a memory that lasts as long as the runtime."""
        callback = self.approval_callback
        if callback is None or isinstance(callback, ApprovalController):
            return callback
        if callback in (approve_all_callback, strict_mode_callback):
            return callback
        return ApprovalController(approval_callback=callback)
