"""Imports the files of a project, each exactly once, and finds what they offer."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from llm_do._host.faults import install_command, outdated_library, problem
from llm_do._host.places import ProjectFiles
from llm_do._host.signature import Unsupported, signature_of
from llm_do._host.tools import PlainTool
from llm_do.runtime import AgentSpec, EntrySpec, ToolsetSpec
from llm_do.toolsets import BuiltInToolset

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
NAMES = "names have 1 to 64 letters, digits, `_` or `-`"


def is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.match(name) is not None


class Mistake(Exception):
    """Something that a file exports and should not."""


class Exports:
    """Everything that the files of a project offer, by name."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._own = ProjectFiles(root)
        self.modules: dict[str, ModuleType] = {}
        self.toolsets: dict[str, Any] = {}
        self.tools: dict[str, Any] = {}
        self.agents: dict[str, AgentSpec] = {}
        self.entries: list[tuple[str, str, EntrySpec]] = []
        self.places: dict[tuple[str, str], str] = {}
        self.problems: list[dict[str, Any]] = []
        self._seen: dict[int, tuple[str, str]] = {}

    def load(self, files: list[str]) -> None:
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
            self._own.compile_always()
            sys.path_hooks.insert(0, self._finder)
            sys.path_importer_cache.clear()
            sys.meta_path.insert(0, PlainTools())
        for file in files:
            path = os.path.join(self.root, file)
            try:
                self.modules[file] = imported(path, file)
            except (Exception, SystemExit) as error:
                self.problems.append(problem(error, path, self.root))
        for file, module in self.modules.items():
            for offered in (self._toolsets_of, self._tools_of, self._specs_of):
                try:
                    offered(file, module)
                except Mistake as mistake:
                    self._complain(file, str(mistake))

    def _finder(self, path: str) -> FileFinder:
        """Finds modules of the project itself, not those that are installed beneath it."""
        if not os.path.isdir(path) or not self._own.hold(path):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (AsWritten, SOURCE_SUFFIXES))

    def _complain(self, file: str, fact: str, hint: str | None = None) -> None:
        self.problems.append({"file": os.path.join(self.root, file), "line": None, "fact": fact, "hint": hint, "traceback": ""})

    def _add(self, into: dict[str, Any], what: str, name: Any, value: Any, file: str) -> None:
        if not is_name(name):
            self._complain(file, f"{name!r} is not a name for a {what}", NAMES)
            return
        if name in into:
            # The same thing, imported by another listed file.
            if into[name] is not value:
                self._complain(file, f"a second {what} `{name}`; the first one is in {self.places[what, name]}")
            return
        into[name] = value
        self.places[what, name] = file

    def _toolsets_of(self, file: str, module: ModuleType) -> None:
        declared = getattr(module, "TOOLSETS", None)
        if declared is not None:
            for name, value in named(declared, "TOOLSETS", module):
                if not is_toolset(value) and not callable(value):
                    raise Mistake(f"`{name}` in TOOLSETS is neither a toolset nor a factory of one")
                self._add(self.toolsets, "toolset", name, value, file)
            return
        for name, value in public(module):
            if isinstance(value, ToolsetSpec) or is_toolset(value):
                self._add(self.toolsets, "toolset", name, value, file)

    def _tools_of(self, file: str, module: ModuleType) -> None:
        declared = getattr(module, "TOOLS", None)
        if declared is None:
            listed = getattr(module, "__all__", ())
            values = ((name, getattr(module, name, None)) for name in listed)
            declared = {name: value for name, value in values if isinstance(value, FunctionType) or is_tool(value)}
        for name, value in named(declared, "TOOLS", module):
            if not callable(value) and not is_tool(value):
                raise Mistake(f"`{name}` in TOOLS is neither a function nor a Tool")
            own = own_name(value)
            if own and own != name:
                raise Mistake(f"`{name}` in TOOLS is called `{own}`: the key must be its name")
            self._add(self.tools, "tool", name, value, file)

    def _specs_of(self, file: str, module: ModuleType) -> None:
        for variable, value in public(module):
            if isinstance(value, AgentSpec):
                self._add(self.agents, "agent", value.name, value, file)
            elif isinstance(value, EntrySpec) and id(value) not in self._seen:
                self._seen[id(value)] = (file, variable)
                self.entries.append((file, variable, value))

    def also(self, used: AgentSpec, by: AgentSpec) -> None:
        """An agent that another one uses, whether or not it is a variable of a file."""
        if self.agents.get(used.name) != used:
            self._add(self.agents, "agent", used.name, used, self.places["agent", by.name])

    def live_tool(self, name: str) -> Any:
        """A single tool, ready to be called: a plain function without a library, anything else with PydanticAI."""
        value = self.tools[name]
        if not is_tool(value):
            try:
                return PlainTool(name, value, signature_of(value))
            except Unsupported as error:
                reason = str(error)
        else:
            reason = "it is a `Tool` of PydanticAI"
        try:
            from llm_do._host.pydantic_tools import function_toolset
        except ModuleNotFoundError as error:
            if (outdated := outdated_library()) is not None:
                raise Mistake(outdated) from error
            raise Mistake(f"the tool `{name}` needs PydanticAI, which is not installed ({reason})") from error
        return function_toolset(value)


class PlainTools:
    """Lets `@toolset.tool` take functions without a context, which PydanticAI wants to be `@toolset.tool_plain`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "pydantic_ai.toolsets.function":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            executed = spec.loader.exec_module
            spec.loader.exec_module = lambda module: taking_plain(executed, module)  # type: ignore[method-assign]
        return spec


def taking_plain(execute: Any, module: ModuleType) -> None:
    execute(module)
    kind: Any = getattr(module, "FunctionToolset", None)
    usual = getattr(kind, "tool", None)
    if usual is None:
        return

    def tool(self: Any, function: Any = None, /, **named: Any) -> Any:
        if function is None:
            return lambda given: tool(self, given, **named)
        return (usual if wants_context(function) else kind.tool_plain)(self, function, **named)

    kind.tool = tool


def wants_context(function: Any) -> bool:
    """Whether a function's first parameter is the context; one that nothing is said of may be."""
    import inspect

    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and (first.annotation is first.empty or "RunContext" in str(first.annotation))


class AsWritten(SourceFileLoader):
    """Compiles a file anew: a kept one counts as the same for a second after a change that keeps the length."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def imported(path: str, file: str) -> ModuleType:
    """The module of a file, executed once, whatever names it is imported by."""
    for module in list(sys.modules.values()):
        known = getattr(module, "__file__", None)
        if known is not None and is_same_file(known, path):
            return answering_to_its_stem(module)
    name = os.path.splitext(os.path.normpath(file))[0].replace(os.sep, ".")
    if name in sys.modules:
        name = f"llm_do_project.{name}"
    spec = importlib.util.spec_from_file_location(name, path, loader=AsWritten(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return answering_to_its_stem(module)


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one place. A hard link is another place, and may be another module."""
    try:
        # To follow a path takes much longer, and nearly all of them end here.
        return os.path.samefile(one, other) and os.path.realpath(one) == os.path.realpath(other)
    except OSError:
        return False


def answering_to_its_stem(module: ModuleType) -> ModuleType:
    """A sibling that imports it by its own name gets the same module, unless the name is somebody else's."""
    stem = module.__name__.rsplit(".", 1)[-1]
    if stem not in sys.modules and importlib.util.find_spec(stem) is None:
        sys.modules[stem] = module
    return module


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in list(vars(module).items()) if not name.startswith("_"))


def named(declared: Any, what: str, module: ModuleType) -> Iterator[tuple[Any, Any]]:
    """A mapping, or a list of things that know their names."""
    if isinstance(declared, Mapping):
        yield from declared.items()
        return
    if not isinstance(declared, (list, tuple)):
        raise Mistake(f"{what} is neither a dict nor a list")
    for value in declared:
        name = own_name(value) or next((key for key, other in public(module) if other is value), None)
        if name is None:
            raise Mistake(f"{value!r} in {what} has no name: write a dict")
        yield name, value


def own_name(value: Any) -> str | None:
    if is_tool(value):
        name: str = value.name
        return name
    if is_toolset(value):
        return getattr(value, "id", None)
    return getattr(value, "__name__", None)


def is_tool(value: Any) -> bool:
    module = sys.modules.get("pydantic_ai.tools")
    return module is not None and isinstance(value, module.Tool)


def is_toolset(value: Any) -> bool:
    if isinstance(value, (BuiltInToolset, ToolsetSpec)):
        return True
    module = sys.modules.get("pydantic_ai.toolsets")
    return module is not None and isinstance(value, module.AbstractToolset)


def needs_install(error: ModuleNotFoundError) -> str:
    return f"{error}; install it with: {install_command()}"
