"""What goes in, and what comes out."""

from pydantic import BaseModel, Field

from llm_do.runtime import PromptContent, WorkerArgs


class Request(WorkerArgs):
    """What the library is asked for."""

    topic: str = Field(min_length=2)
    length: int = Field(default=20, gt=0, description="words")

    def prompt_messages(self) -> list[PromptContent]:
        return [f"Write about {self.topic} in at most {self.length} words."]


class Verdict(BaseModel):
    points: int = Field(ge=0, le=10)
    reason: str
