"""Tools and workers as values behind one protocol: what `Context` calls by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Union

from llm_do.runtime import AgentSpec

if TYPE_CHECKING:
    from llm_do.ctx import Context
    from llm_do.runtime.call import OpeningScope
    from llm_do.runtime.shared import Runtime

__all__ = ["CallableEntry", "ModelType", "ToolEntry", "WorkerEntry"]

ModelType = str
"""`provider:model`: llm-do makes the requests."""


class CallableEntry(Protocol):
    """What can be called by name: a tool or a worker."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """`"tool"` or `"worker"`."""
        ...

    @property
    def requires_approval(self) -> bool: ...

    @property
    def model(self) -> Union[ModelType, None]: ...

    async def call(self, input_data: Any, ctx: Context, run_ctx: Any = None) -> Any: ...


class ToolEntry:
    """A function or a PydanticAI `Tool`, as something that can be called by name. It has no model."""

    kind = "tool"
    model: Union[ModelType, None] = None

    def __init__(self, tool: Any, requires_approval: bool = False) -> None:
        self.tool, self.requires_approval = tool, requires_approval

    @property
    def name(self) -> str:
        """The tool's own."""
        return str(getattr(self.tool, "name", None) or self.tool.__name__)

    async def call(self, input_data: Any, ctx: Context, run_ctx: Any = None) -> Any:
        """Calls it through a context: with its gate and its trace."""
        return await ctx.call(self.name, input_data)

    def __repr__(self) -> str:
        return f"ToolEntry({self.name!r})"


class WorkerEntry:
    """A worker: instructions, the tools and workers that it may use, and a model of its own or the context's."""

    kind = "worker"

    def __init__(
        self,
        name: str,
        instructions: str,
        model: Union[ModelType, None] = None,
        tools: Sequence[Any] = (),
        description: Union[str, None] = None,
        requires_approval: bool = False,
        toolsets: Sequence[Any] = (),
        schema_in: Any = None,
        schema_out: Any = None,
        model_settings: Union[Mapping[str, Any], None] = None,
    ) -> None:
        self.name, self.instructions, self.model, self.tools = name, instructions, model, tuple(tools)
        self.description, self.requires_approval, self.toolsets = description, requires_approval, tuple(toolsets)
        self.schema_in, self.schema_out, self.model_settings = schema_in, schema_out, model_settings

    def agent_spec(self) -> AgentSpec:
        """The same worker, as an agent of a run."""
        return AgentSpec(
            name=self.name,
            instructions=self.instructions,
            description=self.description,
            model=self.model,
            tools=[tool for tool in self.tools if getattr(tool, "kind", None) != "worker"],
            toolsets=[*self.toolsets, *(tool for tool in self.tools if getattr(tool, "kind", None) == "worker")],
            schema_in=self.schema_in,
            schema_out=self.schema_out,
            model_settings=self.model_settings,
        )

    async def call(self, input_data: Any, ctx: Context, run_ctx: Any = None) -> Any:
        """Calls it through a context."""
        return await ctx.call(self.name, input_data)

    def start(self, runtime: Runtime) -> OpeningScope:
        """Opens it for many turns."""
        return runtime.start(self)

    def __repr__(self) -> str:
        return f"WorkerEntry({self.name!r})"
