"""What Python files export, and what their code receives; and, for programs, runtimes of what they give as values."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from llm_do.faults import CallFailed, RunEnded

if TYPE_CHECKING:
    from pathlib import Path

    from llm_do._args import AgentArgs, WorkerArgs
    from llm_do.models import resolve_model
    from llm_do.runtime.approval import RunApprovalPolicy
    from llm_do.runtime.args import get_display_text
    from llm_do.runtime.call import CallFrame, CallScope, OpeningScope
    from llm_do.runtime.delegation import RuntimeCreator, RuntimeDelegator
    from llm_do.runtime.events import RuntimeEvent
    from llm_do.runtime.shared import Runtime, RuntimeConfig
    from llm_do.workers import (
        WorkerCreationDefaults,
        WorkerDefinition,
        WorkerRegistry,
        call_worker,
        call_worker_async,
        create_worker,
        create_worker_async,
        run_worker,
        run_worker_async,
    )

__all__ = [
    "AgentArgs",
    "AgentSpec",
    "Attachment",
    "CallConfig",
    "CallContext",
    "CallFailed",
    "CallFrame",
    "CallScope",
    "EntrySpec",
    "FunctionEntry",
    "PromptContent",
    "PromptInput",
    "RunApprovalPolicy",
    "RunEnded",
    "Runtime",
    "RuntimeConfig",
    "RuntimeCreator",
    "RuntimeDelegator",
    "RuntimeEvent",
    "ToolsProxy",
    "ToolsetSpec",
    "WorkerArgs",
    "WorkerRuntime",
    "call_worker",
    "call_worker_async",
    "create_worker",
    "create_worker_async",
    "get_display_text",
    "resolve_model",
    "run_worker",
    "run_worker_async",
]

_LATER = {
    "AgentArgs": "_args",
    "CallFrame": "runtime.call",
    "CallScope": "runtime.call",
    "RunApprovalPolicy": "runtime.approval",
    "Runtime": "runtime.shared",
    "RuntimeConfig": "runtime.shared",
    "RuntimeCreator": "runtime.delegation",
    "RuntimeDelegator": "runtime.delegation",
    "RuntimeEvent": "runtime.events",
    "WorkerArgs": "_args",
    "call_worker": "workers",
    "call_worker_async": "workers",
    "create_worker": "workers",
    "create_worker_async": "workers",
    "get_display_text": "runtime.args",
    "resolve_model": "models",
    "run_worker": "workers",
    "run_worker_async": "workers",
}
"""Where names are that cost something to import, or need Pydantic: whoever uses one pays for it, and nobody else."""


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
    """A file that travels with an input; a path that is not absolute is relative to the project root.

    One that code was given can be read, and passed on as it is: nobody is asked about it again.
    """

    __slots__ = ("_data", "_given", "media_type", "name", "path")

    def __init__(self, path: Union[str, Path], media_type: Union[str, None] = None) -> None:
        self.path, self.media_type = path, media_type
        self.name = str(path).rsplit("/", 1)[-1]
        self._data: Union[str, None] = None
        self._given: Union[int, None] = None

    @classmethod
    def given(cls, number: int, file: Mapping[str, Any]) -> Attachment:
        """The file with this number among those that a call was given."""
        attachment = cls(file.get("path") or file["name"], file["media_type"])
        attachment.name, attachment._data, attachment._given = file["name"], file.get("data"), number
        return attachment

    def read_bytes(self) -> bytes:
        if self._data is not None:
            import base64

            return base64.b64decode(self._data)
        with open(self.path, "rb") as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def _fields(self) -> tuple[Any, ...]:
        return (str(self.path), self.media_type)

    def __repr__(self) -> str:
        return f"Attachment(path={str(self.path)!r}, media_type={self.media_type!r})"


PromptContent = Union[str, Attachment]
"""A piece of a user message."""


class PromptInput(_Value):
    """The input of an entry or an agent without a class of its own: a `WorkerArgs`, though it needs no Pydantic.

    `input` is what was said: a text, or readable JSON if a value was given, which is `value`.
    """

    __slots__ = ("attachments", "input", "value")
    # What Pydantic looks for before it asks whose instance something is.
    __pydantic_decorators__ = None

    def __init__(self, input: str, attachments: Union[list[Attachment], None] = None, value: Any = None) -> None:
        self.input, self.attachments = input, attachments or []
        self.value = input if value is None else value

    @classmethod
    def of(cls, value: Any, attachments: list[Attachment]) -> PromptInput:
        """Whatever was given, as what was said, and the files that came with it."""
        if isinstance(value, str):
            return cls(value, attachments)
        if isinstance(value, list) and all(isinstance(item, str) or is_file(item) for item in value):
            return cls("\n".join(item for item in value if isinstance(item, str)), attachments, value)
        if isinstance(value, dict):
            others = {key: item for key, item in value.items() if key != "attachments" or not is_files(item)}
            if not others or (list(others) == ["input"] and isinstance(others["input"], str)):
                return cls(others.get("input", ""), attachments, value if len(value) > 1 else None)
            return cls(json.dumps(others, indent=2, ensure_ascii=False), attachments, value)
        return cls("" if value is None else json.dumps(value, indent=2, ensure_ascii=False), attachments, value)

    def __str__(self) -> str:
        return self.input

    def prompt_messages(self) -> list[PromptContent]:
        return [self.input, *self.attachments]

    def _fields(self) -> tuple[Any, ...]:
        return (self.input, self.attachments)


def is_file(item: Any) -> bool:
    return isinstance(item, dict) and list(item) == ["attachment"] and isinstance(item["attachment"], str)


def is_files(items: Any) -> bool:
    return items is None or (isinstance(items, list) and all(isinstance(item, str) for item in items))


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


class FunctionEntry(EntrySpec):
    """An `EntrySpec` whose function is `fn`, and its input class `input_model`; the other words are taken too."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        fn: Union[Callable[..., Any], None] = None,
        input_model: Union[type, None] = None,
        *,
        main: Union[Callable[..., Any], None] = None,
        schema_in: Union[type, None] = None,
    ) -> None:
        function = fn or main
        if function is None:
            raise TypeError(f"the entry `{name}` has no function: give `fn`")
        super().__init__(name, function, input_model or schema_in)

    @property
    def fn(self) -> Callable[..., Any]:
        return self.main

    @property
    def input_model(self) -> Union[type, None]:
        return self.schema_in

    def _fields(self) -> tuple[Any, ...]:
        return (self.main, self.name, self.schema_in)

    def __repr__(self) -> str:
        return f"FunctionEntry(name={self.name!r}, fn={self.main!r}, input_model={self.schema_in!r})"


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
        for key, names in (("tools", tools), ("toolsets", toolsets)):
            if isinstance(names, str):
                raise TypeError(f"`{key}` of `{name}` is a list: give [{names!r}]")
        self.name, self.instructions, self.description = name, instructions, description
        self.model, self.compatible_models, self.model_settings = model, compatible_models, model_settings
        self.tools, self.toolsets, self.approval, self.allow_workers = tools, toolsets, approval, allow_workers
        self.schema_in, self.schema_out, self.limits, self.entry = schema_in, schema_out, limits, entry

    @property
    def toolset_specs(self) -> tuple[Any, ...]:
        """What it declares: of each of these every call gets instances of its own."""
        return (*self.tools, *self.toolsets)

    def start(self, runtime: Runtime) -> OpeningScope:
        """Opens it for many turns: `async with agent.start(runtime) as scope:`. Sets up only; the first turn is a turn too."""
        return runtime.start(self)


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

    __slots__ = ("_ask_runtime", "_call", "_loop", "_messages", "_seen", "agent", "depth", "model", "path", "prompt")

    def __init__(self, ask: Callable[[str, dict[str, Any]], Awaitable[Any]], seen: Mapping[str, Any]) -> None:
        self._ask_runtime = ask
        self._seen = seen
        self._call: Union[int, str, None] = seen.get("call")
        self._messages: Union[list[Any], None] = None
        asyncio = sys.modules.get("asyncio")
        self._loop = None if asyncio is None else asyncio._get_running_loop()
        self.agent: str = seen.get("agent", "")
        """The agent whose call this is."""
        self.depth: int = seen.get("depth", 0)
        self.path: list[str] = seen.get("path", [])
        """The agents and the code from the entry down; the last one is who calls."""
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
            told = self._seen.get("messages") or []
            self._messages = json.loads(told) if isinstance(told, str) else told
        return self._messages

    @property
    def attachments(self) -> list[Attachment]:
        """The files that the agent was given in this turn."""
        return [Attachment.given(number, file) for number, file in enumerate(self._seen.get("attachments", ()))]

    @property
    def traceparent(self) -> Union[str, None]:
        """The span of this call, as W3C Trace Context writes it, for whoever works for it elsewhere; nothing if the run is not
        traced."""
        return self._seen.get("traceparent")

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

        The result is what the tool or the agent gave: text is text, a value is a value.
        """
        return await self._ask("call", {"name": name, "input": await self._input(name, {} if input is None else input)})

    async def call_agent(self, agent: Union[str, AgentSpec], input: Any) -> Any:
        """Calls an agent. Its answer is text, or an instance of the class (or the value of the schema) of its output."""
        name = agent.name if isinstance(agent, AgentSpec) else agent
        return await self._ask("call_agent", {"agent": name, "input": await self._input(name, input)})

    async def _input(self, name: str, input: Any) -> Any:
        """An input class speaks for itself where nobody wants its fields."""
        if hasattr(input, "prompt_messages") and hasattr(input, "model_dump"):
            if await self._ask("is_untyped", {"name": name}):
                said = input.prompt_messages()
                return plain_input([said] if isinstance(said, (str, Attachment)) else list(said))
        return plain_input(input)

    def waited(self, work: Any) -> Any:
        """What an awaitable gives, for code that is not async: a tool that is no coroutine runs on a thread of its own."""
        import asyncio

        if self._loop is None or asyncio._get_running_loop() is self._loop:
            work.close()
            raise CallFailed("this is async code: await it instead")
        from llm_do._host.threads import threads

        with threads().waiting():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call_sync(self, name: str, input: Any = None) -> Any:
        """`call`, for a tool that is not async."""
        return self.waited(self.call(name, input))

    @property
    def registry(self) -> WorkerRegistry:
        """The project that the agent is of."""
        from llm_do.workers import WorkerRegistry

        return WorkerRegistry(self.project_root)

    @property
    def worker(self) -> WorkerDefinition:
        """The agent as its file defines it."""
        return self.registry.load_definition(self.agent)

    @property
    def effective_model(self) -> Union[str, None]:
        """`provider:model` of the agent."""
        return self.model

    @property
    def sandbox_toolset(self) -> Sandbox:
        """The files of the agent, by root and path."""
        return Sandbox(self)

    @property
    def sandbox_manager(self) -> Sandbox:
        """The same: there is one way to files, and it is the agent's tools."""
        return Sandbox(self)

    @property
    def creation_defaults(self) -> WorkerCreationDefaults:
        """What a worker that this run creates gets is decided by the run."""
        from llm_do.workers import WorkerCreationDefaults

        return WorkerCreationDefaults()

    @property
    def approval_controller(self) -> Any:
        """A controller with the rules of the agent's file, for what a tool does besides calling tools."""
        from llm_do.approval import ApprovalController

        return ApprovalController(tool_rules=self.worker.tool_rules)

    @property
    def message_callback(self) -> None:
        """Events of a run are heard by whoever started it."""
        return None

    @property
    def custom_tools_path(self) -> Union[Path, None]:
        """The file that the agent's own tools would be in, if it is there."""
        found = self.project_root / "workers" / self.agent / "tools.py"
        return found if found.exists() else None

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


class Sandbox:
    """Files that an agent may use, as code asks for them: by the name of a root and a path beneath it.

    Each is a call of the agent's own file tools, with their gate and their trace. In a tool that is not async the result
    comes at once; in one that is, it is awaited.
    """

    __slots__ = ("_context",)

    def __init__(self, context: CallContext) -> None:
        self._context = context

    def read_text(self, root: str, path: str) -> Any:
        """What a file holds."""
        return self._called("read_file", {"path": _beneath(root, path)}, _content)

    def write_text(self, root: str, path: str, content: str) -> Any:
        """Writes a file, if somebody agrees."""
        return self._called("write_file", {"path": _beneath(root, path), "content": content})

    def list_files(self, root: str, pattern: str = "**/*") -> Any:
        """The files of a root."""
        return self._called("list_files", {"path": root, "pattern": pattern})

    def _called(self, tool: str, arguments: dict[str, Any], read: Callable[[Any], Any] = lambda result: result) -> Any:
        import asyncio

        async def work() -> Any:
            return read(await self._context.call(tool, arguments))

        return work() if asyncio._get_running_loop() is not None else self._context.waited(work())


def _content(result: Any) -> Any:
    """The text of a file, of all that is said of it."""
    told = json.loads(result) if isinstance(result, str) else result
    return told["content"]


def _beneath(root: str, path: str) -> str:
    return f"{root}/{path}" if root else path


def plain_input(value: Any) -> Any:
    """An input as JSON: text, a list of texts and attachments, or an object."""
    if isinstance(value, Attachment):
        return {"attachment": plain_file(value)}
    if isinstance(value, PromptInput):
        return {"input": value.input, "attachments": [plain_file(file) for file in value.attachments]}
    if isinstance(value, (list, tuple)):
        return [plain_input(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain_field(item) for key, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return value


def plain_field(value: Any) -> Any:
    if isinstance(value, Attachment):
        return plain_file(value)
    if isinstance(value, PromptInput):
        return value.input
    if isinstance(value, (list, tuple)):
        return [plain_field(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain_field(item) for key, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return value


def plain_file(file: Attachment) -> Any:
    """Its path; one that the caller was given itself by its number."""
    return str(file.path) if file._given is None else {"given": file._given}


ToolsProxy = Tools
"""Another name of `Tools`."""

WorkerRuntime = CallContext
"""Another name of `CallContext`."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"llm_do.{_LATER[name]}"), name)
    import sys

    from llm_do._host.successors import missing

    raise missing(sys.modules[__name__], name)
