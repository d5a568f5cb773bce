from llm_do import ToolEntry, WorkerEntry

__all__ = ["ToolEntry", "WorkerEntry"]
