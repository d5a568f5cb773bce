"""The base of typed inputs. Apart from `runtime`, because it needs Pydantic."""

from __future__ import annotations

from pydantic import BaseModel

from llm_do.runtime import PromptContent, PromptInput


class WorkerArgs(BaseModel):
    """A typed input: its fields are what callers give, `prompt_messages` is what the agent reads."""

    def prompt_messages(self) -> list[PromptContent]:
        raise NotImplementedError(f"{type(self).__name__} has no prompt_messages()")


AgentArgs = WorkerArgs

# It is one in all but Pydantic, which nobody needs for plain text.
WorkerArgs.register(PromptInput)
