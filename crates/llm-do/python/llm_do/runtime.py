"""What Python files export, and what their code receives."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from llm_do.faults import CallFailed, RunEnded

if TYPE_CHECKING:
    from pathlib import Path

    from llm_do._args import AgentArgs, WorkerArgs

__all__ = [
    "AgentArgs",
    "AgentSpec",
    "Attachment",
    "CallContext",
    "CallFailed",
    "EntrySpec",
    "FunctionEntry",
    "PromptContent",
    "PromptInput",
    "RunEnded",
    "ToolsetSpec",
    "WorkerArgs",
]


class _Value:
    """Equal if its fields are. Not a dataclass: those are made by code that costs more than the rest of this module."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), *(repr(field) for field in self._fields())))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Attachment(_Value):
    """A file that travels with an input; the path is relative to the project root."""

    __slots__ = ("media_type", "path")

    def __init__(self, path: Union[str, Path], media_type: Union[str, None] = None) -> None:
        self.path, self.media_type = path, media_type


PromptContent = Union[str, Attachment]
"""A piece of a user message."""


class PromptInput(_Value):
    """The input of an entry or an agent without a class of its own."""

    __slots__ = ("attachments", "input")

    def __init__(self, input: str, attachments: Union[list[Attachment], None] = None) -> None:
        self.input, self.attachments = input, attachments or []

    def prompt_messages(self) -> list[PromptContent]:
        return [self.input, *self.attachments]


class ToolsetSpec(_Value):
    """A toolset, made anew for each call of an agent that uses it.

    The factory takes nothing, or the context of the call; it may be async. The toolset's name is the name of the
    module's variable, or its key in `TOOLSETS`.
    """

    __slots__ = ("factory",)

    def __init__(self, factory: Callable[..., Any]) -> None:
        self.factory = factory


class EntrySpec(_Value):
    """Where a run starts: `main(args, ctx)`, sync or async. It has no model; it calls agents through the context."""

    __slots__ = ("main", "name", "schema_in")

    def __init__(self, name: str, main: Callable[..., Any], schema_in: Union[type, None] = None) -> None:
        self.name, self.main, self.schema_in = name, main, schema_in


FunctionEntry = EntrySpec
"""Another name of `EntrySpec`."""


class AgentSpec(_Value):
    """An agent that is defined in Python: the keys of a worker file.

    `toolsets` and `tools` are names, or objects that a listed file exports.
    """

    __slots__ = (
        "allow_workers",
        "approval",
        "compatible_models",
        "description",
        "entry",
        "instructions",
        "limits",
        "model",
        "model_settings",
        "name",
        "schema_in",
        "schema_out",
        "tools",
        "toolsets",
    )

    def __init__(
        self,
        name: str,
        instructions: str,
        description: Union[str, None] = None,
        model: Union[str, None] = None,
        compatible_models: Union[Sequence[str], None] = None,
        tools: Sequence[Any] = (),
        toolsets: Sequence[Any] = (),
        schema_in: Union[type, None] = None,
        schema_out: Union[type, None] = None,
        approval: Union[Mapping[str, str], None] = None,
        allow_workers: Union[Sequence[str], None] = None,
        model_settings: Union[Mapping[str, Any], None] = None,
        limits: Union[Mapping[str, Any], None] = None,
        entry: bool = False,
    ) -> None:
        self.name, self.instructions, self.description = name, instructions, description
        self.model, self.compatible_models, self.model_settings = model, compatible_models, model_settings
        self.tools, self.toolsets, self.approval, self.allow_workers = tools, toolsets, approval, allow_workers
        self.schema_in, self.schema_out, self.limits, self.entry = schema_in, schema_out, limits, entry


class Tools:
    """The tools of the caller, by name: `await ctx.deps.tools.read_file(path="notes.md")`."""

    __slots__ = ("_context",)

    def __init__(self, context: CallContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("__"):
            raise AttributeError(name)

        async def call(**arguments: Any) -> Any:
            return await self._context.call(name, arguments)

        return call

    async def names(self) -> list[str]:
        """The tools that there are."""
        names: list[str] = await self._context._ask("tools", {})
        return names


class CallConfig(_Value):
    """What is fixed for one call."""

    __slots__ = ("depth", "invocation_name", "model")

    def __init__(self, invocation_name: str, depth: int, model: Union[str, None]) -> None:
        self.invocation_name, self.depth, self.model = invocation_name, depth, model


class CallContext:
    """What a tool or an entry function sees of its caller, and how it calls agents and tools.

    A tool receives it as `ctx.deps` of PydanticAI's `RunContext[CallContext]`, or directly as a first parameter that
    is annotated with `CallContext`. An entry function receives it as its second argument.
    """

    __slots__ = ("_ask_runtime", "_call", "_messages", "_seen", "agent", "depth", "model", "path", "prompt")

    def __init__(self, ask: Callable[[str, dict[str, Any]], Awaitable[Any]], seen: Mapping[str, Any]) -> None:
        self._ask_runtime = ask
        self._seen = seen
        self._call: Union[int, None] = seen.get("call")
        self._messages: Union[list[Any], None] = None
        self.agent: str = seen.get("agent", "")
        """The agent whose call this is."""
        self.depth: int = seen.get("depth", 0)
        self.path: list[str] = seen.get("path", [])
        """The agents from the entry down."""
        self.model: Union[str, None] = seen.get("model")
        """`provider:model` of the agent; an entry function has none."""
        self.prompt: str = seen.get("prompt", "")
        """What the agent was given in this turn, as text."""

    @property
    def project_root(self) -> Path:
        from pathlib import Path

        return Path(self._seen.get("project_root", "."))

    @property
    def messages(self) -> list[Any]:
        """The conversation so far, as plain values."""
        if self._messages is None:
            self._messages = json.loads(self._seen.get("messages") or "[]")
        return self._messages

    @property
    def attachments(self) -> list[Attachment]:
        """The files that the agent was given in this turn."""
        return [Attachment(file["name"], file["media_type"]) for file in self._seen.get("attachments", ())]

    @property
    def config(self) -> CallConfig:
        return CallConfig(invocation_name=self.agent, depth=self.depth, model=self.model)

    @property
    def frame(self) -> CallContext:
        """The state of the call: `frame.config`, `frame.prompt` and `frame.messages`."""
        return self

    @property
    def tools(self) -> Tools:
        return Tools(self)

    async def call(self, name: str, input: Any = None) -> Any:
        """Calls a tool of the caller, or an agent, by name: through the same gate, limits and trace as its model's calls.

        A result that is a JSON object or list comes as such, any other as text.
        """
        return await self._ask("call", {"name": name, "input": plain_input({} if input is None else input)})

    async def call_agent(self, agent: Union[str, AgentSpec], input: Any) -> Any:
        """Calls an agent. Its answer is text, or an instance of the class (or the value of the schema) of its output."""
        name = agent.name if isinstance(agent, AgentSpec) else agent
        return await self._ask("call_agent", {"agent": name, "input": plain_input(input)})

    async def usage(self) -> Any:
        """Tokens and money of the session so far."""
        return await self._ask("usage", {})

    async def trace(self) -> Any:
        """The calls of the session so far."""
        return await self._ask("trace", {})

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        if self._call is None:
            raise CallFailed("nothing can be called here: no call is under way")
        return await self._ask_runtime(method, {"call": self._call, **params})


def plain_input(value: Any) -> Any:
    """An input as JSON: text, a list of texts and attachments, or an object."""
    if isinstance(value, Attachment):
        return {"attachment": str(value.path)}
    if isinstance(value, PromptInput):
        return {"input": value.input, "attachments": [str(file.path) for file in value.attachments]}
    if isinstance(value, (list, tuple)):
        return [plain_input(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): str(item.path) if isinstance(item, Attachment) else plain_field(item) for key, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return value


def plain_field(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [str(item.path) if isinstance(item, Attachment) else item for item in value]
    return value


def __getattr__(name: str) -> Any:
    # Pydantic is imported by whoever uses it, and by nobody else.
    if name in ("AgentArgs", "WorkerArgs"):
        from llm_do import _args

        return getattr(_args, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
