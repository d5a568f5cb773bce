"""Models behind endpoints of one's own."""

from __future__ import annotations

from llm_do.models import OpenAICompatibleProvider, register_model_factory, resolve_model

__all__ = ["OpenAICompatibleProvider", "register_model_factory", "resolve_model"]
