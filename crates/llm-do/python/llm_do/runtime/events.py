"""What happens in a run, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RuntimeEvent"]


class RuntimeEvent(dict[str, Any]):
    """An event: a dict with `type`, as `llm-do schema events` describes it; its fields are attributes too."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(event)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an event of type {self.get('type')!r} has no {name!r}") from None
