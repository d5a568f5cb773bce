from llm_do import Context

__all__ = ["Context"]
