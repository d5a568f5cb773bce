from llm_do.runtime import PromptContent, WorkerArgs


class PitchInput(WorkerArgs):
    company: str
    claim: str = "none"

    def prompt_messages(self) -> list[PromptContent]:
        return [f"{self.company} claims: {self.claim}"]
