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
OLDEST_LIBRARY = (2, 66)
OLDEST_PYTHON_OF_LIBRARY = (3, 11)


def install_command(distribution: str = DISTRIBUTION) -> str:
    needed = needed_python() if distribution == DISTRIBUTION else ""
    return f"{interpreter()} -m pip install '{distribution}'{needed}"


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
    variable = missing_variable(error)
    places = [f"{os.path.relpath(frame.filename, root)}:{frame.lineno} in {frame.name}" for frame in own_frames(error, root)]
    where = f" ({' › '.join(places[-_MOST_FRAMES:])})" if places else ""
    more = f"; {variable_hint(variable)}" if variable else ""
    return Refused(f"{message}{where}{more}", {"traceback": trace(error)})


def missing_variable(error: BaseException) -> str | None:
    """The variable that `os.environ[…]` was asked for in vain."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    is_asked = isinstance(error, KeyError) and frames and frames[-1].filename in (os.__file__, "<frozen os>")
    name = error.args[0] if is_asked and error.args else None
    return name if isinstance(name, str) else None


def variable_hint(variable: str) -> str:
    return f'code of a project sees the variables that its manifest names, if they are set: "env": ["{variable}"]'


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
    return {"file": file, "line": line, "fact": words, "hint": hint_of(error), "traceback": trace(error)}


def hint_of(error: BaseException) -> str | None:
    """What to do about a file that cannot be imported."""
    if (variable := missing_variable(error)) is not None:
        return variable_hint(variable)
    if not isinstance(error, ImportError) or not error.name:
        return None
    top = error.name.split(".")[0]
    if top == "llm_do":
        from llm_do._host.successors import of_module, of_name

        if "its successor is" in str(error):
            return None
        # Its attribute for it is younger than some Pythons.
        wanted = str(error).partition("cannot import name '")[2].partition("'")[0]
        return of_name(wanted) if wanted else of_module(error.name)
    # An old one may also miss what libraries beneath it no longer have.
    if (top == "pydantic_ai" or passes(error, "pydantic_ai")) and (outdated := outdated_library()):
        return outdated
    return missing_module(top) if isinstance(error, ModuleNotFoundError) else None


def missing_module(top: str) -> str:
    """What to do about a module that is not there."""
    import importlib.util

    if top == "pydantic_ai_blocking_approval":
        return f"install it with: {interpreter()} -m pip install --no-deps pydantic-ai-blocking-approval"
    if top in ("pydantic_ai", "pydantic"):
        return f"install it with: {install_command()}"
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return f"`{top}` is there, in a version that does not have it"
    return f"install it with: {install_command(top)}"


def passes(error: BaseException, package: str) -> bool:
    """Whether it comes from within a package."""
    import traceback

    inside = f"{os.sep}{package}{os.sep}"
    return any(inside in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def needed_python() -> str:
    """What to add where the library that is needed cannot be installed."""
    if sys.version_info[:2] >= OLDEST_PYTHON_OF_LIBRARY:
        return ""
    wanted, found = (".".join(map(str, version[:2])) for version in (OLDEST_PYTHON_OF_LIBRARY, sys.version_info))
    return f", with Python {wanted} or newer: this one is {found}"


def outdated_library() -> str | None:
    """What is wrong with a PydanticAI that is older than what this is written for."""
    from importlib import metadata

    for name in ("pydantic-ai-slim", "pydantic-ai"):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        numbers = [int(part) for part in found.split(".")[:2] if part.isdigit()]
        if tuple(numbers) < OLDEST_LIBRARY:
            shown = ".".join(map(str, numbers))
            return f"llm-do needs PydanticAI {'.'.join(map(str, OLDEST_LIBRARY))} or newer, found {shown}: {install_command()}"
        return None
    return None
