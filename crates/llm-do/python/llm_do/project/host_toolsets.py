"""The toolsets that every project has."""

from __future__ import annotations

import os
from typing import Union

from llm_do.toolsets.builtins import BuiltIn, build_builtin_toolsets

__all__ = ["build_host_toolsets"]


def build_host_toolsets(cwd: Union[str, os.PathLike[str]], project_root: Union[str, os.PathLike[str]]) -> dict[str, BuiltIn]:
    """The same as `build_builtin_toolsets`."""
    return build_builtin_toolsets(cwd, project_root)
