"""What a project brings to its agents."""

from __future__ import annotations

from llm_do.project.host_toolsets import build_host_toolsets

__all__ = ["build_host_toolsets"]
