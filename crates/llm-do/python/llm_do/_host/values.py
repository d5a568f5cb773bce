"""What Python code returns, as what a model reads."""

from __future__ import annotations

import enum
import json
import math
import sys
from typing import Any


def content(value: Any) -> dict[str, Any]:
    """A tool's result: text as it is, other values as such (a model reads compact JSON), binary content as files."""
    if isinstance(value, str):
        return {"text": value}
    parts = _parts(value)
    return {"json": to_json(value)} if parts is None else {"content": parts}


def _parts(value: Any) -> list[dict[str, Any]] | None:
    """`None` if it is a plain value."""
    messages = sys.modules.get("pydantic_ai.messages")
    if messages is None:
        return None
    if isinstance(value, messages.ToolReturn):
        parts = _parts(value.return_value) or [content(value.return_value)]
        extra = value.content
        if extra is None:
            return parts
        extra = [extra] if isinstance(extra, str) else list(extra)
        return [*parts, *(part for one in extra for part in (_parts(one) or [content(one)]))]
    if isinstance(value, messages.BinaryContent):
        data = _base64(value.data)
        ending = value.media_type.rsplit("/", 1)[-1]
        return [{"attachment": {"name": f"{value.identifier}.{ending}", "media_type": value.media_type, "data": data}}]
    if isinstance(value, (list, tuple)) and any(isinstance(one, messages.BinaryContent) for one in value):
        return [part for one in value for part in (_parts(one) or [content(one)])]
    return None


def to_json(value: Any) -> str:
    """Numbers that JSON has no form for are their names: a table with one of them is still worth reading."""
    core = sys.modules.get("pydantic_core")
    if core is not None:
        text: str = core.to_json(value, inf_nan_mode="strings").decode("utf-8", "replace")
        return text
    try:
        return _dumped(value)
    except ValueError as error:
        if "Circular" in str(error):
            raise
        return _dumped(_with_names(value))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _with_names(value: Any) -> Any:
    """The same, with names for numbers that are none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_names(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_names(one) for one in value]
    return value if isinstance(value, (str, int, float, type(None))) else _with_names(_plain(value))


def to_value(value: Any) -> Any:
    return json.loads(to_json(value))


def _plain(value: Any) -> Any:
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, enum.Enum):
        return value.value
    if hasattr(value, "__fspath__"):
        return str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        return _base64(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode("ascii")
