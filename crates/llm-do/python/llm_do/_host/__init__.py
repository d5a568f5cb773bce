"""The side of llm-do that lives in the interpreter: private, and not for import by projects."""
