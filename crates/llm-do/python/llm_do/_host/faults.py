"""Exceptions of user code, in words for a model and for a person."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from llm_do._host.wire import ENDS, Refused
from llm_do.faults import RunEnded

if TYPE_CHECKING:
    import traceback

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LONGEST_MESSAGE = 4000
_MOST_FRAMES = 5

DISTRIBUTION = "pydantic-ai-slim==2.66.*"


def install_command(distribution: str = DISTRIBUTION) -> str:
    return f"{interpreter()} -m pip install '{distribution}'"


def interpreter() -> str:
    # Empty where it was found without a path.
    return sys.executable or "python3"


def own_frames(error: BaseException, root: str) -> list[traceback.FrameSummary]:
    """The frames in files of the project, the innermost last."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    inside = os.path.join(root, "")
    return [
        frame
        for frame in frames
        if frame.filename.startswith(inside) and "site-packages" not in frame.filename and not frame.filename.startswith(_HERE)
    ]


def refused(error: BaseException, root: str) -> Refused:
    """What a model reads of an exception: its type, its message, and where in the user's files it came from."""
    if isinstance(error, RunEnded):
        return Refused(str(error), code=ENDS)
    name = type(error).__name__
    if name in ("ModelRetry", "ToolFailed") and type(error).__module__.startswith("pydantic_ai"):
        return Refused(str(getattr(error, "message", error)))
    message = shown(error)
    places = [f"{os.path.relpath(frame.filename, root)}:{frame.lineno} in {frame.name}" for frame in own_frames(error, root)]
    where = f" ({' › '.join(places[-_MOST_FRAMES:])})" if places else ""
    return Refused(f"{message}{where}", {"traceback": trace(error)})


def shown(error: BaseException) -> str:
    try:
        words = str(error)
    except Exception:
        words = "(its message cannot be shown)"
    if len(words) > _LONGEST_MESSAGE:
        words = words[:_LONGEST_MESSAGE] + "…"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-40))


def problem(error: BaseException, path: str, root: str) -> dict[str, Any]:
    """A file that cannot be imported, with the line to look at."""
    file, line = path, None
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
        words = f"SyntaxError: {error.msg}"
    else:
        frames = own_frames(error, root)
        if frames:
            file, line = frames[-1].filename, frames[-1].lineno
        words = shown(error)
    hint = None
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.split(".")[0]
        distribution = DISTRIBUTION if top in ("pydantic_ai", "pydantic") else top
        if top == "pydantic_ai_blocking_approval":
            distribution = "pydantic-ai-blocking-approval"
            hint = f"{interpreter()} -m pip install --no-deps {distribution}"
        else:
            hint = install_command(distribution)
        hint = f"install it with: {hint}"
    return {"file": file, "line": line, "fact": words, "hint": hint, "traceback": trace(error)}
