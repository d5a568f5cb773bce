"""Files beneath a directory."""

from __future__ import annotations

from llm_do.toolsets import FileSystemToolset, ReadOnlyFileSystemToolset

__all__ = ["FileSystemToolset", "ReadOnlyFileSystemToolset"]
