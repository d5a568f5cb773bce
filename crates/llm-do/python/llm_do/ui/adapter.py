"""Events of a run as what is shown of them."""

from __future__ import annotations

from typing import Any

from llm_do.runtime.events import RuntimeEvent

__all__ = ["adapt_event"]


def adapt_event(event: Any) -> RuntimeEvent:
    """An event that a display takes: that of the run, as it is."""
    return event if isinstance(event, RuntimeEvent) else RuntimeEvent(event)
