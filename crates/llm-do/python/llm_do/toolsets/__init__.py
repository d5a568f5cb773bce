"""llm-do's own toolsets, configured in Python. They run in llm-do, under the same rules as those of a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from pathlib import Path

_READING = ("read_file", "list_files", "search_files")
_WRITING = ("write_file", "edit_file")

__all__ = ["BuiltInToolset", "FileSystemToolset", "ReadOnlyFileSystemToolset", "ShellToolset"]


class BuiltInToolset:
    """A toolset as the manifest's `toolsets` would define it."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.definition = dict(definition)
        self.rules: dict[str, str] = {}
        """`allow`, `ask` or `block` by tool."""


class FileSystemToolset(BuiltInToolset):
    """Files beneath a directory: `read_file`, `list_files`, `search_files`, `write_file`, `edit_file`.

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
        config: Union[Mapping[str, Any], None] = None,
    ) -> None:
        if config is not None:
            # The same keywords, as a mapping.
            FileSystemToolset.__init__(self, **_keywords(config, type(self).__name__, FileSystemToolset.__init__))
            return
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
        rules: Sequence[Mapping[str, Any]] = (),
        *,
        default: Union[str, Mapping[str, Any], None] = None,
        write: Sequence[str] = (),
        network: bool = False,
        config: Union[Mapping[str, Any], None] = None,
    ) -> None:
        if config is not None:
            # The same keywords, as a mapping.
            ShellToolset.__init__(self, **_keywords(config, "ShellToolset", ShellToolset.__init__))
            return
        definition: dict[str, Any] = {"rules": [_rule(rule) for rule in rules]}
        if default is not None:
            definition["default"] = default if isinstance(default, str) else _rule(default)["approval"]
        if write:
            definition["write"] = list(write)
        if network:
            definition["network"] = True
        super().__init__({"shell": definition})


def _keywords(config: Mapping[str, Any], kind: str, function: Any) -> dict[str, Any]:
    """The keywords that a mapping has, and no others: one that nobody knows would be lost."""
    code = function.__code__
    known = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name not in ("self", "config")]
    unknown = [str(key) for key in config if key not in known]
    if unknown:
        raise TypeError(f"`config` of {kind} has `{unknown[0]}`; there are: {', '.join(known)}")
    return dict(config)


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """`approval_required` is another word for `approval`."""
    written = dict(rule)
    if "approval_required" in written:
        written["approval"] = "ask" if written.pop("approval_required") else "allow"
    return written


def __getattr__(name: str) -> Any:
    import sys

    from llm_do._host.successors import missing

    raise missing(sys.modules[__name__], name)
