"""Where things are that the llm-do which was written in Python had elsewhere."""

from __future__ import annotations

from types import ModuleType
from typing import Union

_MODULES = {
    "agent_toolset": "llm_do.toolsets.agent",
    "base": "llm_do.runtime",
    "cli": "the program `llm-do`",
    "config": "`project.json`, `runtime` and `limits` in it",
    "context": "llm_do.ctx",
    "ctx_runtime": "llm_do.ctx and llm_do.entries",
    "custom_toolset": "`TOOLS` or `TOOLSETS` of a Python file",
    "delegation_toolset": "the names of agents under `toolsets`, or `dynamic_agents`",
    "filesystem_toolset": "llm_do.toolsets.filesystem",
    "model_compat": "`compatible_models` of a worker file",
    "oauth": "the variables with keys, as `llm-do models` lists them",
    "program": "the program `llm-do`",
    "project": "llm_do.runtime for values, `project.json` for files",
    "prompts": "`prompt` of a worker file",
    "registry": "llm_do.workers",
    "runtime.agent_file": "worker files, and llm_do.AgentSpec for values",
    "runtime.agent_runner": "llm_do.runtime.shared",
    "runtime.auth": "the variables with keys, as `llm-do models` lists them",
    "runtime.context": "llm_do.runtime.deps",
    "runtime.contracts": "llm_do.runtime",
    "runtime.discovery": "`python_files` in `project.json`",
    "runtime.entries": "llm_do.runtime",
    "runtime.manifest": "`project.json`",
    "runtime.registry": "llm_do.runtime.shared",
    "runtime.runner": "llm_do.runtime.shared",
    "runtime.runtime": "llm_do.runtime.shared",
    "runtime.schema_refs": "`schema_in_ref` of a worker file",
    "runtime.tooling": "llm_do.toolsets",
    "runtime.worker": "llm_do.runtime (AgentSpec)",
    "runtime.worker_file": "worker files, and llm_do.AgentSpec for values",
    "sandbox": "llm_do.toolsets.filesystem",
    "shell": "llm_do.toolsets.shell",
    "shell_toolset": "llm_do.toolsets.shell",
    "tool_approval": "llm_do.approval",
    "toolset_loader": "llm_do.toolsets.loader",
    "types": "llm_do",
    "ui.runner": "llm_do.ui",
    "worker_sandbox": "llm_do.toolsets.filesystem",
}

_NAMES = {
    "Worker": "AgentSpec of llm_do.runtime",
    "WorkerInput": "PromptInput of llm_do.runtime",
    "WorkerInvocable": "AgentSpec of llm_do.runtime",
    "WorkerToolset": "agent_as_toolset of llm_do.toolsets.agent",
    "build_entry": "Runtime.run_entry of llm_do.runtime",
    "entry": "EntrySpec of llm_do.runtime",
    "load_toolsets_from_files": "`python_files` in `project.json`",
    "run_invocation": "Runtime.run_entry of llm_do.runtime",
    "tool_context": "a first parameter `ctx: CallContext`",
}


def of_module(module: str) -> Union[str, None]:
    """What has taken the place of `llm_do.…`: the nearest one that is known."""
    name = module.partition(".")[2]
    while name:
        if name in _MODULES:
            return f"its successor is {_MODULES[name]}"
        name = name.rpartition(".")[0]
    return "docs/coming-from-python.md says what became of it"


def of_name(name: str) -> str:
    found = _NAMES.get(name)
    return f"its successor is {found}" if found else "docs/python-api.md lists every name that there is"


def gone(module: str) -> Union[ModuleNotFoundError, None]:
    """What an import of a module says that there was, and is no longer."""
    if module.partition(".")[2] not in _MODULES:
        return None
    return ModuleNotFoundError(f"No module named {module!r}: {of_module(module)}", name=module)


def missing(module: ModuleType, name: str) -> Exception:
    """What a module says of a name that it does not have. One that there was is an error of its import: of any other that
    is imported Python tells no more than the name."""
    whole, fact = f"{module.__name__}.{name}", f"cannot import name {name!r} from {module.__name__!r}"
    if name in _NAMES:
        return ImportError(f"{fact}: {of_name(name)}", name=module.__name__)
    if gone(whole) is not None and not _is_module(whole):
        return ImportError(f"{fact}: {of_module(whole)}", name=whole)
    words = f"module {module.__name__!r} has no attribute {name!r}: {of_name(name)}"
    return AttributeError(words, name=name, obj=module)


def _is_module(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
