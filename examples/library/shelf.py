"""Tools: a plain function, a toolset with state, and a function that calls an agent."""

from pydantic_ai import FunctionToolset, RunContext

from llm_do.runtime import CallContext, ToolsetSpec
from llm_do.toolsets.approval import set_toolset_approval_config


def word_count(text: str) -> int:
    """Counts the words of a text."""
    return len(text.split())


async def second_opinion(ctx: RunContext[CallContext], note: str) -> str:
    """Asks the critic about a note."""
    verdict = await ctx.deps.call_agent("critic", note)
    return f"{verdict.points} of 10: {verdict.reason}"


TOOLS = [word_count, second_opinion]


class Shelf(FunctionToolset[CallContext]):
    """Notes of one call of an agent: another call has a shelf of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.add_function(self.put, name="put_note")

    def put(self, note: str) -> int:
        """Puts a note on the shelf, and says how many there are."""
        self.notes.append(note)
        return len(self.notes)

    def cleanup(self) -> None:
        print(f"the shelf is cleared: {len(self.notes)} notes")


def make_shelf() -> Shelf:
    return set_toolset_approval_config(Shelf(), {"put_note": {"pre_approved": True}})


shelf = ToolsetSpec(factory=make_shelf)
