"""What a function says of itself: its parameters and its docstring.

Nearly all functions say it plainly and are read here: `inspect`, which can read any, takes longer to import than all the
other modules of the host, and llm-do waits until the tools are known.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from llm_do.toolsets.approval import ATTRIBUTE

REQUIRED = object()
"""The default of a parameter that has none."""

_TAKES_ANYTHING = 0x04 | 0x08
"""The flags of code with `*args` or `**named`."""


class Parameter:
    __slots__ = ("default", "name", "unnamed")

    def __init__(self, name: str, default: Any = REQUIRED, unnamed: str | None = None) -> None:
        self.name, self.default = name, default
        self.unnamed = unnamed
        """How one is written that cannot be given by its name."""


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    if _is_undecorated(function):
        code = function.__code__
        if not code.co_posonlyargcount and not code.co_flags & _TAKES_ANYTHING:
            defaults = _defaults(function)
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            return [Parameter(name, defaults.get(name, REQUIRED)) for name in names]
    import inspect

    def parameter(one: inspect.Parameter) -> Parameter:
        default = REQUIRED if one.default is one.empty else one.default
        named = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        return Parameter(one.name, default, None if named else str(one))

    return [parameter(one) for one in inspect.signature(function).parameters.values()]


def docstring_of(function: Callable[..., Any]) -> str:
    """Without its indentation."""
    # A method may have that of the class above.
    if _is_undecorated(function) and function.__name__ == function.__qualname__:
        return _without_indentation(function.__doc__) if isinstance(function.__doc__, str) else ""
    import inspect

    return inspect.getdoc(function) or ""


def _is_undecorated(function: Callable[..., Any]) -> bool:
    """Whether it is a function, and nobody gave it anything that says otherwise what it is."""
    return type(function) is types.FunctionType and vars(function).keys() <= {ATTRIBUTE}


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return {**dict(zip(names, values)), **(function.__kwdefaults__ or {})}


def _without_indentation(text: str) -> str:
    first, *others = text.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first.lstrip(), *(line[margin:] for line in others)]).strip("\n")
