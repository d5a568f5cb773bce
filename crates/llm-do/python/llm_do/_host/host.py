"""What llm-do asks of the interpreter, method by method."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from llm_do._host import values
from llm_do._host.wire import Refused
from llm_do._host.classes import Classes
from llm_do._host.exports import Exports, Mistake, needs_install
from llm_do._host.faults import problem, refused, shown
from llm_do._host.output import CURRENT_CALL
from llm_do._host.signature import Invalid
from llm_do._host.tools import ApprovalNeeded, PlainTool, Toolset, known_tools, maybe_await, run
from llm_do.faults import NotSure, RunEnded
from llm_do.runtime import AgentSpec, CallContext, EntrySpec, PromptInput, ToolsetSpec
from llm_do.toolsets import BuiltInToolset
from llm_do.toolsets.builtins import BuiltIn

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


class Host:
    """Serves the requests of llm-do."""

    def __init__(self) -> None:
        self._ask: Ask
        self._root = ""
        self._exports: Exports
        self._classes: Classes
        self._open: dict[int, Toolset] = {}
        self._single: dict[str, Toolset] = {}
        self._broken: set[str] = set()
        self._next = 0
        self._make_context: Any = CallContext
        # The calls that are worked on.
        self._calls: set[int | None] = set()

    def connect(self, ask: Ask) -> None:
        self._ask = ask

    @classmethod
    def of_values(cls, root: str, make_context: Any) -> Host:
        """One for what a program gives as values, in its own process."""
        host = cls()
        host._root, host._make_context = root, make_context
        host._exports, host._classes = Exports(root), Classes(root)
        return host

    async def offer_tool(self, name: str, tool: Any) -> dict[str, Any]:
        """A single tool that is given as a value: its spec."""
        self._exports.tools[name] = tool
        live = self._exports.live_tool(name)
        self._single[name] = live if isinstance(live, PlainTool) else await self._open_tool(name)
        return self._single[name].specs()[0]

    def offer_toolset(self, name: str, toolset: Any) -> None:
        self._exports.toolsets[name] = toolset

    def add_class(self, reference: str, kind: Any) -> dict[str, Any]:
        """An input class that is given as a value: its schema."""
        return self._classes.add(reference, kind)

    async def serve(self, method: str, params: Any) -> Any:
        return await self.serving(params, getattr(self, f"on_{method}")(params))

    async def serving(self, params: Any, work: Awaitable[Any]) -> Any:
        import asyncio

        seen = params.get("context") or {}
        call = seen.get("call")
        token = CURRENT_CALL.set(call)
        self._calls.add(call)
        try:
            return await work
        except (asyncio.CancelledError, Refused):
            raise
        except Mistake as mistake:
            raise Refused(str(mistake)) from mistake
        except (Exception, RunEnded, SystemExit, KeyboardInterrupt) as error:
            raise refused(error, self._root) from error
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            CURRENT_CALL.reset(token)
            self._calls.discard(call)

    async def on_has_stopped(self, params: Any) -> bool:
        """Whether nothing works any more on a call that was taken back."""
        import asyncio

        from llm_do._host.threads import threads

        call = params["call"]
        for _ in range(20):
            if call not in self._calls and not threads().works_on(call):
                return True
            await asyncio.sleep(0.05)
        return False

    def context(self, params: Any) -> CallContext:
        made: CallContext = self._make_context(self._ask, {**params.get("context", {}), "project_root": self._root})
        return made

    def import_files(self, params: Any) -> dict[str, Any] | None:
        """Imports the files and says what they offer; `None` if only a loop can find out all of it."""
        try:
            self._root = params["root"]
            if params.get("memory"):
                limit_memory(params["memory"])
            self._exports, self._classes = Exports(self._root), Classes(self._root)
            self._exports.load(params["files"])
            waiting = False
            for name in self._exports.tools:
                waiting = not self._export_plain(name) or waiting
            return None if waiting else {"result": self._offer()}
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return refused(error, self._root).outcome()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    async def on_finish_import(self, params: Any) -> Any:
        """The tools that need PydanticAI, which needs a loop."""
        for name in self._exports.tools:
            if name not in self._single and name not in self._broken:
                try:
                    self._single[name] = await self._open_tool(name)
                except Exception as error:
                    self._exclude(name, error)
        return self._offer()

    def _offer(self) -> dict[str, Any]:
        exports = self._exports
        tools = [name for name in exports.tools if name in self._single]
        return {
            "tools": [{"file": exports.places["tool", name], "tool": self._single[name].specs()[0]} for name in tools],
            "toolsets": [{"name": name, "file": exports.places["toolset", name], **self._known(name)} for name in exports.toolsets],
            "agents": self._agents(),
            "entries": [{"file": file, "function": variable} for file, variable, _ in exports.entries],
            "providers": self._providers(),
            "problems": exports.problems,
        }

    def _known(self, name: str) -> dict[str, Any]:
        """What is known of a toolset before a call opens it: all of one that its module has made, for all calls."""
        value = self._exports.toolsets[name]
        if isinstance(value, BuiltInToolset):
            return {"built_in": _definition(value)}
        tools = known_tools(value)
        return {} if tools is None else {"tools": tools}

    def _export_plain(self, name: str) -> bool:
        """Whether a tool is settled: it needs no loop, or cannot be one."""
        try:
            live = self._exports.live_tool(name)
        except Exception as error:
            self._exclude(name, error)
            return True
        if isinstance(live, PlainTool):
            self._single[name] = live
            return True
        return False

    def _exclude(self, name: str, error: Exception) -> None:
        self._broken.add(name)
        file = self._exports.places["tool", name]
        if isinstance(error, Mistake):
            self._complain(file, error)
        else:
            self._exports.problems.append(problem(error, os.path.join(self._root, file), self._root))

    def _providers(self) -> list[str]:
        models = sys.modules.get("llm_do.models")
        return [] if models is None else models.registered()

    async def on_endpoint(self, params: Any) -> Any:
        from llm_do.models import endpoint

        found = endpoint(params["provider"], params["model"])
        return {"base_url": found.base_url, "api_key": found.api_key}

    def _complain(self, file: str, mistake: Mistake) -> None:
        from llm_do._host.faults import install_command

        hint = f"install it with: {install_command()}" if "not installed" in str(mistake) else None
        self._exports.problems.append(
            {"file": os.path.join(self._root, file), "line": None, "fact": str(mistake), "hint": hint, "traceback": ""}
        )

    async def _open_tool(self, name: str) -> Toolset:
        from llm_do._host.pydantic_tools import PydanticToolset
        from llm_do.toolsets.approval import get_toolset_approval_config, set_toolset_approval_config

        live = self._exports.live_tool(name)
        config = get_toolset_approval_config(self._exports.tools[name])
        if config:
            set_toolset_approval_config(live, config)
        return await PydanticToolset.open(live, self.context({}), None)

    def _agents(self) -> list[dict[str, Any]]:
        """Those that files export, and those that they use."""
        told: dict[str, dict[str, Any]] = {}
        while waiting := [agent for name, agent in self._exports.agents.items() if name not in told]:
            told.update({agent.name: self._agent(agent) for agent in waiting})
        return list(told.values())

    def _agent(self, agent: AgentSpec) -> dict[str, Any]:
        keys: dict[str, Any] = {"name": agent.name, "instructions": agent.instructions}
        for key in ("description", "model", "compatible_models", "approval", "allow_workers", "model_settings", "limits"):
            value = getattr(agent, key)
            if value is not None:
                keys[key] = value
        if agent.entry:
            keys["entry"] = True
        for key, known in (("tools", self._exports.tools), ("toolsets", self._exports.toolsets)):
            names = [self._name_of(value, known, agent, key) for value in getattr(agent, key)]
            if names:
                keys[key] = names
        for key in ("schema_in", "schema_out"):
            kind = getattr(agent, key)
            if kind is not None:
                keys[f"{key}_ref"] = f"{kind.__module__}.{kind.__qualname__}"
        file = self._exports.places["agent", agent.name]
        return {"file": file, "keys": values.to_value(keys)}

    def _name_of(self, value: Any, known: dict[str, Any], agent: AgentSpec, key: str) -> str:
        if isinstance(value, str):
            return value.check(self._root) if isinstance(value, BuiltIn) else value
        if isinstance(value, AgentSpec):
            self._exports.also(value, agent)
            return value.name
        name = next((name for name, other in known.items() if other is value), None)
        if name is None:
            file = self._exports.places["agent", agent.name]
            self._complain(file, Mistake(f"`{key}` of agent `{agent.name}` holds {value!r}, which no listed file exports"))
            return "?"
        return name

    async def on_classes(self, params: Any) -> Any:
        answers: list[dict[str, Any]] = []
        for wanted in params["classes"]:
            try:
                schema = self._classes.resolve(
                    wanted["reference"], wanted.get("file"), wanted.get("module"), wanted["class"], wanted["direction"]
                )
                answers.append({"schema": schema})
            except Mistake as mistake:
                answers.append({"fact": str(mistake)})
            except (Exception, SystemExit) as error:
                answers.append({"fact": shown(error)})
        return answers

    async def on_open(self, params: Any) -> Any:
        context = self.context(params)
        value = self._exports.toolsets[params["toolset"]]
        made, fresh = value, False
        if isinstance(value, ToolsetSpec) or (callable(value) and not self._is_toolset(value)):
            made, fresh = await self._made(value, context), True
        if isinstance(made, BuiltInToolset):
            return {"built_in": _definition(made)}
        if made is None:
            return {"instance": 0, "tools": []}
        live = await self._live(made, context, fresh)
        self._next += 1
        self._open[self._next] = live
        return {"instance": self._next, "tools": live.specs()}

    def _is_toolset(self, value: Any) -> bool:
        from llm_do._host.exports import is_toolset

        return is_toolset(value)

    async def _made(self, value: Any, context: CallContext) -> Any:
        import inspect

        factory = value.factory if isinstance(value, ToolsetSpec) else value
        wants = [
            parameter
            for parameter in inspect.signature(factory).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
        ]
        if not wants:
            return await maybe_await(factory())
        annotation = str(wants[0].annotation)
        if "CallContext" in annotation and "RunContext" not in annotation:
            return await maybe_await(factory(context))
        from llm_do._host.pydantic_tools import run_context

        return await maybe_await(factory(run_context(context)))

    async def _live(self, made: Any, context: CallContext, fresh: bool) -> Toolset:
        if not self._is_toolset(made):
            raise Mistake(f"the factory gave {made!r}, which is no toolset")
        try:
            from llm_do._host.pydantic_tools import PydanticToolset
        except ModuleNotFoundError as error:
            raise Mistake(needs_install(error)) from error
        except ImportError as error:
            raise Mistake(str(error)) from error
        # A toolset that the module shares outlives this call.
        cleanup = getattr(made, "cleanup", None) if fresh else None
        return await PydanticToolset.open(made, context, cleanup)

    def _toolset(self, params: Any) -> Toolset:
        instance = params["instance"]
        return self._single[instance] if isinstance(instance, str) else self._open[instance]

    async def on_judge(self, params: Any) -> Any:
        context = self.context(params)
        return await self._toolset(params).judge(params["tool"], params["arguments"], context)

    async def on_call(self, params: Any) -> Any:
        context = self.context(params)
        try:
            result = await self._toolset(params).call(params["tool"], params["arguments"], context, params)
        except Invalid as invalid:
            raise Refused(f"invalid arguments: {invalid}") from invalid
        except ApprovalNeeded as needed:
            return {"approval_needed": str(needed)}
        return values.content(result)

    async def on_close(self, params: Any) -> Any:
        live = self._open.pop(params["instance"], None)
        if live is not None:
            await live.close()

    async def on_render(self, params: Any) -> Any:
        return await self._judged(lambda: {"parts": self._classes.rendered(params["class"], params["value"])})

    async def on_validate(self, params: Any) -> Any:
        def dumped() -> dict[str, Any]:
            return {"value": values.to_value(self._classes.parse(params["class"], params["text"]))}

        return await self._judged(dumped)

    async def _judged(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        from pydantic import ValidationError

        try:
            return work()
        except ValidationError as error:
            from llm_do._host.violations import violations

            return {"invalid": violations(error)}

    async def on_answer(self, params: Any) -> Any:
        """What a function answers in the place of an agent: its fields by name, anything else as it is."""
        function = getattr(self._exports.modules.get(params["file"]), params["function"], None)
        if not callable(function):
            raise Mistake(f"{params['file']} has no function `{params['function']}`")
        given = params["value"]
        try:
            result = await (run(function, **given) if isinstance(given, dict) else run(function, given))
        except NotSure as unsure:
            return {"not_sure": str(unsure)}
        return {"value": values.to_value(result)}

    async def on_entry(self, params: Any) -> Any:
        """What an entry takes: asked once, before it runs."""
        entry = self._entry(params["file"], params["function"])
        kind = entry.schema_in or annotated_class(entry.main)
        schema = None
        if kind is not None:
            schema = self._classes.add(f"{params['file']}:{params['function']}", kind)
        return {"name": entry.name, "schema": schema}

    async def on_enter(self, params: Any) -> Any:
        entry = self._entry(params["file"], params["function"])
        context = self.context(params)
        value = params["value"]
        if entry.schema_in or annotated_class(entry.main):
            from pydantic import ValidationError

            from llm_do._host.violations import violations

            try:
                given = self._classes.instance(f"{params['file']}:{params['function']}", value)
            except ValidationError as error:
                raise Refused(f"the input does not fit: {violations(error)}") from error
        else:
            given = PromptInput.of(value, context.attachments)
        arguments = (given, context)[: arity(entry.main)]
        result = await run(entry.main, *arguments)
        return {"value": values.to_value(result)}

    def _entry(self, file: str, function: str) -> EntrySpec:
        module = self._exports.modules.get(file)
        value = getattr(module, function, None)
        if isinstance(value, EntrySpec):
            return value
        if not callable(value):
            raise Mistake(f"{file} has no function `{function}`")
        return EntrySpec(name=function, main=value)


def limit_memory(more: int) -> None:
    """From now on the process may take so many bytes more than it has, whatever the code in it wants."""
    import resource

    try:
        with open("/proc/self/statm") as sizes:
            taken = int(sizes.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        taken = more
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


def _definition(toolset: BuiltInToolset) -> dict[str, Any]:
    from llm_do.toolsets.approval import get_toolset_approval_config

    return {"definition": toolset.definition, "approval": get_toolset_approval_config(toolset), "rules": toolset.rules}


def arity(function: Any) -> int:
    import inspect

    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    return len([one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)])


def annotated_class(function: Any) -> Any:
    """The input class that a function's first parameter names, if it names one."""
    import inspect
    import typing

    try:
        hints = typing.get_type_hints(function)
    except Exception:
        return None
    first = next(iter(inspect.signature(function).parameters), None)
    kind = hints.get(first) if first else None
    arguments = sys.modules.get("llm_do._args")
    if arguments is None or kind is PromptInput or kind is arguments.WorkerArgs:
        return None
    if isinstance(kind, type) and issubclass(kind, arguments.WorkerArgs):
        return kind
    return None
