"""What Python files of an llm-do project import.

`llm_do.runtime` has the things that a file exports and the context that its code receives, `llm_do.toolsets` has
llm-do's own toolsets to be configured in Python. Nothing here needs a dependency until a Pydantic class or a PydanticAI
toolset is used.
"""

from llm_do.faults import CallFailed, RunEnded

__all__ = ["CallFailed", "RunEnded"]
