"""What a program gives to a run as values: agents, tools, toolsets, an entry. They are read and called by the same code
that reads and calls those of a project's files; here it runs in the program's own process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Union

from llm_do._host import values
from llm_do._host.exports import NAMES, Mistake, is_name, is_tool, own_name
from llm_do._host.host import Host, arity
from llm_do._host.tools import run
from llm_do._host.wire import ENDS, Refused
from llm_do._serve import METHOD_NOT_FOUND, Failed, Server
from llm_do.approval import ApprovalCallback
from llm_do.errors import LlmDoError
from llm_do.faults import CallFailed, RunEnded
from llm_do.models import model_name
from llm_do.runtime import AgentSpec, Attachment, CallContext, EntrySpec, PromptInput, ToolsetSpec, plain_input
from llm_do.toolsets.builtins import BuiltIn

KEYS = ("description", "compatible_models", "approval", "allow_workers", "model_settings", "limits")
"""The keys of a worker file that a spec has under the same names."""

MakeContext = Callable[[Callable[[str, dict[str, Any]], Awaitable[Any]], Mapping[str, Any]], CallContext]


class Offer:
    """Everything that one run may use of the program, and the answers to what llm-do asks about it."""

    def __init__(
        self,
        root: str,
        callback: Union[ApprovalCallback, None] = None,
        make_context: MakeContext = CallContext,
    ) -> None:
        self._host = Host.of_values(root, make_context)
        self._host.connect(self._ask)
        self._callback = callback
        self._server: Server
        self._root = root
        self._agents: dict[str, AgentSpec] = {}
        self._texts: dict[str, str] = {}
        self._tools: dict[str, Any] = {}
        self._approvals: dict[str, str] = {}
        self._toolsets: dict[str, Any] = {}
        self._models: dict[str, str] = {}
        self._inputs: list[str] = []
        self._outputs: dict[str, Any] = {}
        self._asking: dict[str, dict[str, bool]] = {}
        self._uses: dict[str, list[str]] = {}
        self._entry: Union[EntrySpec, None] = None
        self._given: Any = None
        self.entered: Union[CallContext, None] = None
        """The context that the entry function was given last."""
        self.raised: Union[Exception, None] = None
        """What the entry function raised last: llm-do has only words for it."""

    def belongs_to(self, server: Server) -> None:
        self._server = server

    def add_agents(self, agents: Iterable[Any]) -> None:
        for agent in agents:
            self.add_agent(agent)

    def add_agent(self, given: Any) -> str:
        """An agent, with everything that it uses; its name."""
        agent = as_agent(given)
        if not is_name(agent.name):
            raise ValueError(f"{agent.name!r} is not a name for an agent: {NAMES}")
        known = self._agents.get(agent.name)
        if known is not None:
            if known != agent:
                raise ValueError(f"there are two agents `{agent.name}`")
            return agent.name
        self._agents[agent.name] = agent
        keys: dict[str, Any] = {"name": agent.name}
        for key in KEYS:
            value = getattr(agent, key)
            if value is not None:
                keys[key] = value
        self._add_model(agent, keys)
        if getattr(given, "requires_approval", False):
            self._asking[agent.name] = {"calls_require_approval": True}
        keys["tools"] = [self._tool(tool, agent) for tool in agent.tools]
        keys["toolsets"] = [self._toolset(toolset, agent) for toolset in agent.toolsets]
        self._uses[agent.name] = [*keys["tools"], *keys["toolsets"]]
        self._add_schemas(agent, keys)
        text = json.dumps(values.to_value(keys), ensure_ascii=False)
        self._texts[agent.name] = f"---\n{text}\n---\n{agent.instructions}\n"
        return agent.name

    def _add_model(self, agent: AgentSpec, keys: dict[str, Any]) -> None:
        if agent.model is None:
            return
        model = model_name(agent.model)
        if model.startswith("scripted:"):
            # A script that a program names is where the program says, not beneath the root.
            self._models[agent.name] = model
        else:
            keys["model"] = model

    def _add_schemas(self, agent: AgentSpec, keys: dict[str, Any]) -> None:
        if isinstance(agent.schema_in, type):
            try:
                keys["schema_in"] = self._host.add_class(agent.name, agent.schema_in)
            except Mistake as mistake:
                raise TypeError(str(mistake)) from mistake
            self._inputs.append(agent.name)
        elif agent.schema_in is not None:
            keys["schema_in"] = agent.schema_in
        if isinstance(agent.schema_out, type):
            keys["schema_out"] = agent.schema_out.model_json_schema()  # type: ignore[attr-defined]
            self._outputs[agent.name] = agent.schema_out.model_validate  # type: ignore[attr-defined]
        elif agent.schema_out is not None:
            keys["schema_out"] = agent.schema_out
            self._outputs[agent.name] = lambda value: value

    def _tool(self, tool: Any, agent: AgentSpec) -> str:
        if isinstance(tool, str):
            return tool
        if isinstance(tool, AgentSpec) or getattr(tool, "kind", None) == "worker":
            return self.add_agent(tool)
        return self.add_tool(tool, f"`tools` of `{agent.name}`")

    def add_tool(self, tool: Any, where: str = "tools") -> str:
        """A function, a `Tool` of PydanticAI, or an entry of one; its name."""
        value = getattr(tool, "tool", tool) if getattr(tool, "kind", None) == "tool" else tool
        name = own_name(value)
        if name is None or not (callable(value) or is_tool(value)):
            raise TypeError(f"{where} holds {tool!r}, which is neither a function nor a Tool")
        if self._tools.setdefault(name, value) is not value:
            raise ValueError(f"there are two tools `{name}`")
        if value is not tool:
            self._approvals[name] = "ask" if tool.requires_approval else "allow"
        return name

    def _toolset(self, toolset: Any, agent: AgentSpec) -> str:
        if isinstance(toolset, str):
            return toolset.check(self._root) if isinstance(toolset, BuiltIn) else toolset
        if isinstance(toolset, AgentSpec) or getattr(toolset, "kind", None) == "worker":
            return self.add_agent(toolset)
        for name, known in self._toolsets.items():
            if known is toolset:
                return name
        wanted = getattr(toolset, "id", None) or f"toolset_{len(self._toolsets) + 1}"
        name = wanted if wanted not in self._toolsets else f"{wanted}_{len(self._toolsets) + 1}"
        self._toolsets[name] = toolset
        return name

    def has(self, agent: AgentSpec) -> bool:
        return self._agents.get(agent.name) == agent

    def toolsets_of(self, agent: str) -> list[str]:
        return list(self._uses.get(agent, ()))

    def models(self) -> list[Any]:
        """What its agents want to ask."""
        return [agent.model for agent in self._agents.values()]

    def add_entry(self, entry: EntrySpec) -> None:
        self._entry = entry

    def give(self, given: Any) -> None:
        """What the entry function gets in the next turn."""
        self._given = given

    async def params(self) -> dict[str, Any]:
        """What is told of it when a run is opened."""
        tools = [_offered(await self._host.offer_tool(name, tool), self._approvals.get(name)) for name, tool in self._tools.items()]
        for name, toolset in self._toolsets.items():
            self._host.offer_toolset(name, toolset)
        params: dict[str, Any] = {
            "project": self._root,
            "agents": list(self._texts.values()),
            "tools": tools,
            "toolsets": {name: {"made": True} for name in self._toolsets},
            "inputs": self._inputs,
            "models": dict(self._models),
        }
        if self._asking:
            params["runtime"] = {"agent_approval_overrides": self._asking}
        if self._entry is not None:
            params["entry"] = {"function": self._entry.name, "schema": {"type": "object"}}
        return params

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """What llm-do asks."""
        from llm_do.workers import decide

        if method == "approve":
            return await decide(self._callback, params)
        known = getattr(self, f"_on_{method}", None)
        if known is None:
            raise Failed(METHOD_NOT_FOUND, f"there is no `{method}`")
        try:
            return await known(params)
        except Refused as refused:
            raise Failed(refused.code, refused.message) from refused

    async def _on_call_tool(self, params: dict[str, Any]) -> Any:
        answer = await self._host.serve("call", _routed(params))
        if "content" in answer:
            return {"content": [{"text": part["json"]} if "json" in part else part for part in answer["content"]]}
        if "json" in answer:
            return {"value": json.loads(answer["json"])}
        return {"value": answer["text"]} if "text" in answer else answer

    async def _on_judge_tool(self, params: dict[str, Any]) -> Any:
        return await self._host.serve("judge", _routed(params))

    async def _on_open_toolset(self, params: dict[str, Any]) -> Any:
        context = {key: params[key] for key in ("agent", "model", "depth")}
        made = await self._host.serve("open", {"toolset": params["toolset"], "context": context})
        if "built_in" not in made:
            return {"instance": made["instance"], "tools": [_offered(tool) for tool in made["tools"]]}
        configured = made["built_in"]
        allowed = {tool: "allow" for tool, rule in configured["approval"].items() if rule.get("pre_approved")}
        return {"definition": configured["definition"], "rules": {**configured["rules"], **allowed}}

    async def _on_close_toolset(self, params: dict[str, Any]) -> Any:
        return await self._host.serve("close", {"instance": params["instance"]})

    async def _on_render_input(self, params: dict[str, Any]) -> Any:
        return await self._host.serve("render", {"class": params["agent"], "value": params["value"]})

    async def _on_call_entry(self, params: dict[str, Any]) -> Any:
        return await self._host.serving(params, self._enter(_routed(params)))

    async def _enter(self, params: dict[str, Any]) -> Any:
        entry = self._entry
        assert entry is not None
        context = self._host.context(params)
        self.entered = context
        try:
            result = await run(entry.main, *(self._given, context)[: arity(entry.main)])
        except Exception as error:
            self.raised = error
            raise
        return {"value": values.to_value(result)}

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """What code asks of the run that it is part of."""
        try:
            answer = await self._server.request(method, params)
        except LlmDoError as error:
            if error.code == ENDS:
                raise RunEnded(error.message) from None
            raise CallFailed(error.message) from None
        value = answer["value"]
        typed = self._outputs.get(params.get("name") or params.get("agent", ""))
        return value if typed is None else self.typed(typed, value)

    def output_of(self, agent: str, value: Any) -> Any:
        """An answer as the agent's spec types it."""
        typed = self._outputs.get(agent)
        return value if typed is None else self.typed(typed, value)

    @staticmethod
    def typed(typed: Callable[[Any], Any], value: Any) -> Any:
        return typed(json.loads(value) if isinstance(value, str) else value)


def _routed(params: dict[str, Any]) -> dict[str, Any]:
    """As the host of a project's files is asked."""
    instance = params.get("instance", params.get("tool"))
    return {**params, "instance": instance, "context": {**params.get("context", {}), "call": params.get("call")}}


def _offered(spec: dict[str, Any], approval: Union[str, None] = None) -> dict[str, Any]:
    words = {"allow": "allow", "ask": "ask", "dynamic": "judge"}
    return {
        "name": spec["name"],
        "description": spec["description"],
        "parameters": spec["parameters"],
        "approval": approval or words[spec["verdict"]],
        "sequential": spec["sequential"],
        "takes_context": spec["takes_context"],
    }


def as_agent(given: Any) -> AgentSpec:
    """An agent, or what can be one."""
    if isinstance(given, AgentSpec):
        return given
    spec = getattr(given, "agent_spec", None)
    if callable(spec):
        made: AgentSpec = spec()
        return made
    raise TypeError(f"{given!r} is no agent: give an AgentSpec or a WorkerEntry")


def agents_near(function: Any) -> list[AgentSpec]:
    """The agents that a function can see: those of its module, as with files of a project, and those around it."""
    found = [value for name, value in vars(function).items() if isinstance(value, AgentSpec)] if hasattr(function, "__dict__") else []
    inner = getattr(function, "__wrapped__", function)
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or () if _is_filled(cell)]
    for value in [*getattr(inner, "__globals__", {}).values(), *cells]:
        if isinstance(value, AgentSpec):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(one for one in value if isinstance(one, AgentSpec))
        elif isinstance(value, dict):
            found.extend(one for one in value.values() if isinstance(one, AgentSpec))
    return found


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def given_to(entry: EntrySpec, value: Any) -> Any:
    """An input as an entry function takes it: an instance of its input class, else a `PromptInput`."""
    from llm_do._host.host import annotated_class

    kind: Any = entry.schema_in or annotated_class(entry.main)
    if kind is None:
        return prompt_input(value)
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        required = [name for name, field in kind.model_fields.items() if field.is_required()]
        if len(required) == 1:
            value = {required[0]: value}
    return kind.model_validate(value)


def prompt_input(value: Any) -> Any:
    """Text, a list of texts and attachments, or an object, as one thing with a text and files."""
    if isinstance(value, PromptInput) or hasattr(value, "prompt_messages"):
        return value
    if value is None or isinstance(value, str):
        return PromptInput(value or "")
    if isinstance(value, (list, tuple)):
        texts = [part for part in value if not isinstance(part, Attachment)]
        files = [part for part in value if isinstance(part, Attachment)]
        return PromptInput("\n".join(text if isinstance(text, str) else values.to_json(text) for text in texts), files)
    if isinstance(value, Mapping) and isinstance(value.get("input"), str):
        files = [file if isinstance(file, Attachment) else Attachment(file) for file in value.get("attachments") or ()]
        return PromptInput(value["input"], files)
    return PromptInput(values.to_json(value))


def sent(given: Any) -> Any:
    """What the trace shows of an entry's input."""
    plain = plain_input(given)
    return plain if isinstance(plain, dict) else {"input": plain}


def in_this_thread(work: Any) -> Any:
    """Runs a coroutine to its end where no loop runs."""
    return asyncio.run(work)


__all__ = ["Offer", "ToolsetSpec", "agents_near", "as_agent", "given_to", "prompt_input", "sent"]
