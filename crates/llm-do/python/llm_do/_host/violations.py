"""Pydantic's complaints in words. Needs Pydantic only, not PydanticAI."""

from __future__ import annotations

from typing import Any

_MOST = 20


def violations(error: Any) -> str:
    """One clause for each mistake."""
    found = error.errors(include_url=False, include_context=False)
    shown = [f"`{'.'.join(map(str, one['loc'])) or 'the value'}`: {one['msg']}" for one in found[:_MOST]]
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "; ".join([*shown, *more])
