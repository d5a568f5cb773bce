//! What an agent can do: its own tools, and in the worst case everything it reaches by calling others.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::{AgentSpec, AllowWorkers, Entry, Program, ToolsetUse, Typing};
use crate::model::provider::provider;
use crate::tools::approval::{CommandVerdict, DeclaredVerdict};
use crate::tools::source::ToolsetSource;
use crate::tools::{Capability, DeclaredTool};

/// A tool of an agent, with all that is known before a run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTool {
    pub name: String,
    /// The toolset that it comes from; several shells are one tool.
    pub toolsets: Vec<String>,
    pub verdict: DeclaredVerdict,
    pub capabilities: Vec<Capability>,
    /// The agent that it calls, if it is one.
    pub agent: Option<String>,
}

/// The way from an agent to something that it can do: the agents in between, and the tool at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The first agents of the way, the agent itself first.
    pub agents: Vec<String>,
    /// How many agents between those and the tool were left out.
    pub skipped: usize,
    pub last_agent: String,
    pub tool: String,
    /// Whether the tool asks first.
    pub asks: bool,
}

/// An agent's worst case: for each capability the shortest way to it.
pub type Worst = BTreeMap<Capability, Way>;

impl Program {
    /// Every agent's tools with the agent's rules and the run's policy applied. Toolsets with unknown tools have one
    /// entry named `*`.
    pub fn tools_of(&self, agent: &AgentSpec) -> Vec<AgentTool> {
        let mut tools: Vec<AgentTool> = Vec::new();
        for used in agent.tools.iter().chain(&agent.toolsets) {
            let Some(declared) = used.source.declared_tools() else {
                tools.push(unknown_tools(used));
                continue;
            };
            let is_shell = matches!(used.source.origin(), ToolsetSource::Shell(_));
            for tool in declared {
                let tool = AgentTool {
                    verdict: tool.verdict.under(used.rules.get(&tool.name).copied()),
                    name: tool.name,
                    toolsets: vec![used.name.clone()],
                    capabilities: tool.capabilities,
                    agent: None,
                };
                let shell = if is_shell { tools.iter_mut().find(|other| other.name == tool.name) } else { None };
                match shell {
                    Some(other) => merge_shells(other, tool),
                    None => tools.push(self.as_agent_call(used, tool)),
                }
            }
        }
        tools
    }

    /// Calling an agent may ask by policy, and its attachments are read here.
    fn as_agent_call(&self, used: &ToolsetUse, mut tool: AgentTool) -> AgentTool {
        let ToolsetSource::Agent(callee) = used.source.origin() else { return tool };
        let exception = self.policy.agent_approval_overrides.get(callee).and_then(|it| it.calls_require_approval);
        if exception.unwrap_or(self.policy.agent_calls_require_approval) && tool.verdict == DeclaredVerdict::Allow {
            tool.verdict = DeclaredVerdict::Ask;
        }
        if self.agents.get(callee).is_some_and(|agent| takes_attachments(&agent.input)) {
            tool.capabilities.push(Capability::ReadsFiles); // it can pass attachments
        }
        tool.agent = Some(callee.clone());
        tool
    }

    /// The agents that an agent can call, each once.
    pub fn callees(&self, agent: &AgentSpec) -> Vec<&str> {
        self.callees_with(agent, &self.tools_of(agent))
    }

    fn callees_with(&self, agent: &AgentSpec, tools: &[AgentTool]) -> Vec<&str> {
        let mut callees: Vec<&str> = Vec::new();
        let mut seen = HashSet::new();
        let mut add = |name: &str| {
            if let Some((name, _)) = self.agents.get_key_value(name)
                && seen.insert(name)
            {
                callees.push(name);
            }
        };
        for tool in tools.iter().filter(|tool| tool.verdict.can_run()) {
            if let Some(callee) = &tool.agent {
                add(callee);
            }
        }
        match &agent.allow_workers {
            Some(AllowWorkers::Only(names)) if calls_by_name(agent) => names.iter().for_each(|name| add(name)),
            // Without a list it may call what runs have created.
            None if calls_by_name(agent) => {
                let created = self.agents.values().filter(|agent| agent.file.starts_with(&self.generated_agents_dir));
                created.for_each(|agent| add(&agent.name));
            }
            Some(AllowWorkers::Only(_) | AllowWorkers::Any) | None => {}
        }
        callees
    }

    /// Whether an agent can call every other: its code may, or its `allow_workers` says so.
    pub fn calls_any(agent: &AgentSpec) -> bool {
        let has_code = agent.tools.iter().chain(&agent.toolsets).any(is_runnable_code);
        match &agent.allow_workers {
            Some(AllowWorkers::Any) => calls_by_name(agent),
            Some(AllowWorkers::Only(_)) => false,
            None => has_code,
        }
    }

    /// The worst case of every agent, in time linear in the size of the program.
    pub fn worst_cases(&self) -> BTreeMap<&str, Worst> {
        let graph = Graph::new(self);
        let mut worst: BTreeMap<&str, Worst> = graph.names.iter().map(|name| (*name, Worst::new())).collect();
        for capability in Capability::ALL {
            for (name, way) in graph.ways_to(capability) {
                worst.entry(name).or_default().insert(capability, way);
            }
        }
        worst
    }

    /// Agents that can call themselves, directly or through others.
    pub fn cyclic_agents(&self) -> Vec<&str> {
        Graph::new(self).cyclic()
    }

    /// Agents that no run reaches from the entry.
    pub fn unreached_agents(&self) -> Vec<&str> {
        match &self.entry {
            Entry::Agent(entry) => Graph::new(self).unreached(entry),
            Entry::Function(_) | Entry::Open => Vec::new(),
        }
    }
}

/// Whether something in an agent calls agents by name rather than as tools.
fn calls_by_name(agent: &AgentSpec) -> bool {
    let by_name = |used: &ToolsetUse| {
        let is_dynamic = matches!(used.source.origin(), ToolsetSource::DynamicAgents);
        // The tool that calls is the one that does not create; a variant may have given it another name.
        is_runnable_code(used)
            || (is_dynamic && can_run(used, |tool| !tool.capabilities.contains(&Capability::CreatesAgents)))
    };
    agent.tools.iter().chain(&agent.toolsets).any(by_name)
}

fn is_runnable_code(used: &ToolsetUse) -> bool {
    used.source.is_code() && can_run(used, |_| true)
}

/// Whether one of the tools that are meant is not blocked, as far as is known.
fn can_run(used: &ToolsetUse, is_meant: impl Fn(&DeclaredTool) -> bool) -> bool {
    used.source.declared_tools().is_none_or(|tools| {
        tools.into_iter().filter(is_meant).any(|tool| tool.verdict.under(used.rules.get(&tool.name).copied()).can_run())
    })
}

fn takes_attachments(input: &Typing) -> bool {
    match input {
        Typing::Untyped | Typing::Python(_) => true,
        Typing::Schema(schema) => schema
            .to::<serde_json::Value>()
            .is_ok_and(|schema| schema.get("properties").is_some_and(|fields| fields.get("attachments").is_some())),
    }
}

fn unknown_tools(used: &ToolsetUse) -> AgentTool {
    AgentTool {
        name: "*".to_owned(),
        toolsets: vec![used.name.clone()],
        verdict: DeclaredVerdict::Unknown,
        capabilities: used.source.capabilities().to_vec(),
        agent: None,
    }
}

/// Several shells of one agent are one tool: their rules in order, a default only at the end.
fn merge_shells(shell: &mut AgentTool, other: AgentTool) {
    shell.toolsets.extend(other.toolsets);
    for capability in other.capabilities {
        if !shell.capabilities.contains(&capability) {
            shell.capabilities.push(capability);
        }
    }
    if let (DeclaredVerdict::ByCommand(commands), DeclaredVerdict::ByCommand(more)) =
        (&mut shell.verdict, other.verdict)
    {
        let is_default = |command: &CommandVerdict| command.pattern == "*";
        commands.extend(more);
        let default = commands.iter().rposition(is_default).map(|at| commands[at].clone());
        commands.retain(|command| !is_default(command));
        commands.extend(default);
    }
}

/// Who calls whom, by index. One more node stands for "any agent", so that code which may call all of them costs one
/// edge.
struct Graph<'a> {
    program: &'a Program,
    names: Vec<&'a str>,
    callees: Vec<Vec<usize>>,
    tools: Vec<Vec<AgentTool>>,
}

/// The tool, server-side tool or model that gives a capability.
#[derive(Clone)]
struct Means {
    name: String,
    asks: bool,
}

/// One step of a way: where it goes on, where it ends, and how many agents that is.
#[derive(Clone, Copy)]
struct Found {
    next: Option<usize>,
    source: usize,
    agents: usize,
}

impl<'a> Graph<'a> {
    fn new(program: &'a Program) -> Self {
        let names: Vec<&str> = program.agents.keys().map(String::as_str).collect();
        let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        let any = names.len();
        let mut callees: Vec<Vec<usize>> = Vec::with_capacity(any + 1);
        let mut tools = Vec::with_capacity(any);
        for agent in program.agents.values() {
            let own_tools = program.tools_of(agent);
            let names = program.callees_with(agent, &own_tools);
            let mut called: Vec<usize> = names.iter().filter_map(|name| index.get(name).copied()).collect();
            if Program::calls_any(agent) {
                called.push(any);
            }
            callees.push(called);
            tools.push(own_tools);
        }
        callees.push((0..any).collect());
        Self { program, names, callees, tools }
    }

    fn callers(&self) -> Vec<Vec<usize>> {
        let mut callers = vec![Vec::new(); self.callees.len()];
        for (caller, callees) in self.callees.iter().enumerate() {
            for callee in callees {
                callers[*callee].push(caller);
            }
        }
        callers
    }

    /// What gives an agent a capability of its own; rather something that does not ask than something that does, and
    /// rather a tool than the attachments of a call.
    fn own(&self, agent: usize, capability: Capability) -> Option<Means> {
        let spec = &self.program.agents[self.names[agent]];
        let is_server = matches!(capability, Capability::ReachesNetwork | Capability::SpendsMoney);
        if let Some(tool) = spec.server_tools.first().filter(|_| is_server) {
            return Some(Means { name: tool.kind.name().to_owned(), asks: false });
        }
        let is_paid = provider(&spec.model.provider).is_none_or(|row| row.paid);
        if capability == Capability::SpendsMoney && is_paid {
            return Some(Means { name: spec.model.to_string(), asks: false });
        }
        let gives = |tool: &&AgentTool| tool.capabilities.contains(&capability) && tool.verdict.can_run();
        let tool = self.tools[agent]
            .iter()
            .filter(gives)
            .min_by_key(|tool| (tool.verdict.always_asks(), tool.agent.is_some()))?;
        let name = match (tool.name.as_str(), &tool.agent) {
            ("*", _) => format!("{} (any tool)", tool.toolsets[0]),
            (name, Some(_)) => format!("{name} (attachments)"),
            (name, None) => name.to_owned(),
        };
        Some(Means { name, asks: tool.verdict.always_asks() })
    }

    /// Breadth first from the agents that have the capability themselves, against the direction of calls: the first
    /// way found is a shortest one.
    fn ways_to(&self, capability: Capability) -> Vec<(&'a str, Way)> {
        let mut found: Vec<Option<Found>> = vec![None; self.callees.len()];
        let mut means: BTreeMap<usize, Means> = BTreeMap::new();
        let mut queue = VecDeque::new();
        for (agent, step) in found.iter_mut().enumerate().take(self.names.len()) {
            if let Some(own) = self.own(agent, capability) {
                means.insert(agent, own);
                *step = Some(Found { next: None, source: agent, agents: 1 });
                queue.push_back(agent);
            }
        }
        let callers = self.callers();
        while let Some(agent) = queue.pop_front() {
            let Some(Found { source, agents, .. }) = found[agent] else { continue };
            for caller in &callers[agent] {
                if found[*caller].is_none() {
                    // The node "any agent" is none itself.
                    let agents = agents + usize::from(*caller < self.names.len());
                    found[*caller] = Some(Found { next: Some(agent), source, agents });
                    queue.push_back(*caller);
                }
            }
        }
        let ways = self.names.iter().enumerate().filter_map(|(agent, name)| {
            let source = found[agent]?.source;
            Some((*name, self.way(&found, agent, means[&source].clone())))
        });
        ways.collect()
    }

    /// Only the first steps are walked: a chain of ten thousand agents would make the whole quadratic.
    fn way(&self, found: &[Option<Found>], start: usize, means: Means) -> Way {
        let Some(Found { source, agents: all, .. }) = found[start] else {
            unreachable!("only found agents have a way")
        };
        let (mut agents, mut at) = (Vec::new(), Some(start));
        while let Some(index) = at.filter(|_| agents.len() < Way::LONGEST) {
            // The node "any agent" has no name and is not shown.
            agents.extend(self.names.get(index).map(|name| (*name).to_owned()));
            at = found[index].and_then(|step| step.next);
        }
        let skipped = all - agents.len() - usize::from(at.is_some());
        Way { agents, skipped, last_agent: self.names[source].to_owned(), tool: means.name, asks: means.asks }
    }

    /// Agents on a cycle: strongly connected components of more than one node, and self-calls. Iterative, because a
    /// chain of ten thousand agents must not overflow the stack.
    fn cyclic(&self) -> Vec<&'a str> {
        let components = self.components();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for component in &components[..self.names.len()] {
            *sizes.entry(*component).or_default() += 1;
        }
        let any = self.names.len();
        let cyclic = |agent: &usize| {
            sizes[&components[*agent]] > 1
                || self.callees[*agent].contains(agent)
                || self.callees[*agent].contains(&any)
        };
        (0..any).filter(cyclic).map(|agent| self.names[agent]).collect()
    }

    /// Tarjan's algorithm with a stack of its own.
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let count = self.callees.len();
        let (mut order, mut low, mut component) = (vec![UNSEEN; count], vec![0; count], vec![UNSEEN; count]);
        let (mut next_order, mut next_component) = (0, 0);
        let mut path = Vec::new();
        for start in 0..count {
            let mut work = if order[start] == UNSEEN { vec![(start, 0)] } else { Vec::new() };
            while let Some((node, edge)) = work.pop() {
                if edge == 0 {
                    (order[node], low[node]) = (next_order, next_order);
                    next_order += 1;
                    path.push(node);
                }
                if let Some(&callee) = self.callees[node].get(edge) {
                    work.push((node, edge + 1));
                    if order[callee] == UNSEEN {
                        work.push((callee, 0));
                    } else if component[callee] == UNSEEN {
                        low[node] = low[node].min(order[callee]);
                    }
                    continue;
                }
                if low[node] == order[node] {
                    while let Some(member) = path.pop() {
                        component[member] = next_component;
                        if member == node {
                            break;
                        }
                    }
                    next_component += 1;
                }
                if let Some((parent, _)) = work.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
            }
        }
        component
    }

    fn unreached(&self, entry: &str) -> Vec<&'a str> {
        let mut reached = vec![false; self.callees.len()];
        let mut queue: Vec<usize> = self.names.iter().position(|name| *name == entry).into_iter().collect();
        while let Some(agent) = queue.pop() {
            if !std::mem::replace(&mut reached[agent], true) {
                queue.extend(&self.callees[agent]);
            }
        }
        (0..self.names.len()).filter(|agent| !reached[*agent]).map(|agent| self.names[agent]).collect()
    }
}

impl Way {
    /// Longer ways are shown without their middle.
    const LONGEST: usize = 6;

    /// `main → researcher → web_search`.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.agents.clone();
        if self.skipped > 0 {
            words.push(format!("({} more)", self.skipped));
        }
        if self.agents.last() != Some(&self.last_agent) {
            words.push(self.last_agent.clone());
        }
        words.push(self.tool.clone());
        words
    }
}

#[cfg(test)]
mod tests;
