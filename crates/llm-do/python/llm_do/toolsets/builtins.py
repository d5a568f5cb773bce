"""llm-do's own toolsets, by their names."""

from __future__ import annotations

import os
from typing import Union

__all__ = ["BuiltIn", "build_builtin_toolsets"]

NAMES = (
    "filesystem_cwd",
    "filesystem_cwd_ro",
    "filesystem_project",
    "filesystem_project_ro",
    "shell_readonly",
    "shell_file_ops",
    "ask_user",
    "dynamic_agents",
)

_Path = Union[str, "os.PathLike[str]"]


class BuiltIn(str):
    """The name of a toolset that llm-do has, for a project with this root."""

    root: str

    def check(self, root: str) -> str:
        """Its name, if it is meant for this root."""
        if os.path.realpath(self.root) != os.path.realpath(root):
            raise ValueError(f"`{self}` was built for the project root {self.root}, and this one is {root}")
        return str(self)


def build_builtin_toolsets(cwd: _Path, project_root: Union[_Path, None] = None) -> dict[str, BuiltIn]:
    """What `toolsets` of an agent takes, by name. They work in the working directory and beneath the root of the run."""
    if os.path.realpath(cwd) != os.path.realpath(os.getcwd()):
        raise ValueError(f"`cwd` is {os.fspath(cwd)}, and llm-do's toolsets work in the working directory, {os.getcwd()}")
    made = {name: BuiltIn(name) for name in NAMES}
    for toolset in made.values():
        toolset.root = os.path.abspath(cwd if project_root is None else project_root)
    return made
