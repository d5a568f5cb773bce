"""llm-do's own toolsets, configured in Python. They run in llm-do, under the same rules as those of a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from pathlib import Path

_READING = ("read_file", "list_files")
_WRITING = ("write_file", "edit_file")

__all__ = ["BuiltInToolset", "FileSystemToolset", "ReadOnlyFileSystemToolset", "ShellToolset"]


class BuiltInToolset:
    """A toolset as the manifest's `toolsets` would define it."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.definition = dict(definition)
        self.rules: dict[str, str] = {}
        """`allow`, `ask` or `block` by tool."""


class FileSystemToolset(BuiltInToolset):
    """Files beneath a directory: `read_file`, `list_files`, `write_file`, `edit_file`.

    A relative path is relative to the project root and stays inside it. What reads is allowed unless `read_approval`,
    what writes asks unless `write_approval` is false; secrets and files of the project itself ask whatever is said here.
    """

    _mode = "rw"

    def __init__(
        self,
        base_path: Union[str, Path] = ".",
        *,
        suffixes: Sequence[str] = (),
        max_file_bytes: Union[int, None] = None,
        read_approval: bool = False,
        write_approval: bool = True,
    ) -> None:
        definition: dict[str, Any] = {"root": str(base_path), "mode": self._mode}
        if suffixes:
            definition["suffixes"] = list(suffixes)
        if max_file_bytes is not None:
            definition["max_file_bytes"] = max_file_bytes
        super().__init__({"filesystem": definition})
        # As the toolset has it: what reads is allowed, what writes asks.
        for tools, asks, usual in ((_READING, read_approval, False), (_WRITING, write_approval, True)):
            if asks is not usual:
                self.rules.update({tool: "ask" if asks else "allow" for tool in tools})


class ReadOnlyFileSystemToolset(FileSystemToolset):
    """Files beneath a directory, to be read."""

    _mode = "ro"


class ShellToolset(BuiltInToolset):
    """Commands by rules: `{"pattern": "git status", "approval": "allow"}`; the first that matches wins."""

    def __init__(
        self,
        rules: Sequence[Mapping[str, Any]],
        *,
        default: Union[str, None] = None,
        write: Sequence[str] = (),
        network: bool = False,
    ) -> None:
        definition: dict[str, Any] = {"rules": [dict(rule) for rule in rules]}
        if default is not None:
            definition["default"] = default
        if write:
            definition["write"] = list(write)
        if network:
            definition["network"] = True
        super().__init__({"shell": definition})
