//! What an agent can do: its own tools, and in the worst case everything it reaches by calling others.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::{AgentSpec, AllowWorkers, Entry, Program, ToolsetUse, Typing};
use crate::model::name::ModelName;
use crate::model::provider::provider;
use crate::tools::approval::{CommandVerdict, DeclaredVerdict, Rule};
use crate::tools::source::ToolsetSource;
use crate::tools::{Capabilities, Capability, DeclaredTool};

/// A tool of an agent, with all that is known before a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ReachableTool<'a> {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The toolset that it comes from; several shells are one tool.
    pub toolsets: Vec<&'a str>,
    /// What becomes of a call.
    pub verdict: DeclaredVerdict,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The agent that it calls, if it is one.
    pub agent: Option<&'a str>,
}

/// The way from an agent to something that it can do: the agents in between, and the tool at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachPath<'a> {
    /// The first agents of the way, the agent itself first.
    pub agents: Vec<&'a str>,
    /// How many agents between those and the tool were left out.
    pub skipped: usize,
    pub last_agent: &'a str,
    pub tool: &'a str,
    /// Whether the tool asks first.
    pub asks: bool,
}

/// An agent's worst case: for each capability, in the order of `Capability::ALL`, the shortest way to it.
pub type Worst<'a> = Vec<(Capability, ReachPath<'a>)>;

impl Program {
    /// Every agent's tools with the agent's rules and the run's policy applied. Toolsets with unknown tools have one
    /// entry named `*`.
    pub fn tools_of<'a>(&self, agent: &'a AgentSpec) -> Vec<ReachableTool<'a>> {
        let mut tools: Vec<ReachableTool<'a>> = Vec::new();
        for used in agent.tools.iter().chain(&agent.toolsets) {
            let Some(declared) = used.source.declared_tools() else {
                tools.push(unknown_tools(used));
                continue;
            };
            let is_shell = matches!(used.source.origin(), ToolsetSource::Shell(_));
            for tool in declared.into_owned() {
                let tool = ReachableTool {
                    verdict: tool.verdict.under(used.rule_for(&tool.name)),
                    name: tool.name,
                    toolsets: vec![&used.name],
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
    fn as_agent_call<'a>(&self, used: &'a ToolsetUse, mut tool: ReachableTool<'a>) -> ReachableTool<'a> {
        let Some(callee) = used.source.callee() else { return tool };
        let exception = self.policy.agent_approval_overrides.get(callee).and_then(|it| it.calls_require_approval);
        if exception.unwrap_or(self.policy.agent_calls_require_approval) && tool.verdict == DeclaredVerdict::Allow {
            tool.verdict = DeclaredVerdict::Ask;
        }
        if self.agents.get(callee).is_some_and(|agent| takes_attachments(&agent.input)) {
            tool.capabilities = tool.capabilities.and(Capability::ReadsFiles); // it can pass attachments
        }
        tool.agent = Some(callee);
        tool
    }

    /// Whether an agent can call every other: its code may, or its `allow_workers` says so.
    pub(crate) fn calls_any(agent: &AgentSpec) -> bool {
        match &agent.allow_workers {
            Some(AllowWorkers::Any) => calls_by_name(agent),
            Some(AllowWorkers::Only(_)) => false,
            None => agent.tools.iter().chain(&agent.toolsets).any(is_runnable_code),
        }
    }
}

/// Whether something in an agent calls agents by name rather than as tools.
fn calls_by_name(agent: &AgentSpec) -> bool {
    let by_name = |used: &ToolsetUse| {
        let is_dynamic = matches!(used.source.origin(), ToolsetSource::DynamicAgents(_));
        // The tool that calls is the one that does not create; a variant may have given it another name.
        is_runnable_code(used)
            || (is_dynamic && can_run(used, |tool| !tool.capabilities.contains(Capability::CreatesAgents)))
    };
    agent.tools.iter().chain(&agent.toolsets).any(by_name)
}

fn is_runnable_code(used: &ToolsetUse) -> bool {
    used.source.is_code() && can_run(used, |_| true)
}

/// Whether one of the tools that are meant is not blocked, as far as is known.
fn can_run(used: &ToolsetUse, is_meant: impl Fn(&DeclaredTool) -> bool) -> bool {
    let is_runnable = |tool: &DeclaredTool| {
        let verdict = tool.verdict.clone();
        is_meant(tool) && verdict.under(used.rule_for(&tool.name)).can_run()
    };
    used.source.declared_tools().is_none_or(|tools| tools.iter().any(is_runnable))
}

fn takes_attachments(input: &Typing) -> bool {
    match input {
        Typing::Untyped | Typing::Python(_) => true,
        Typing::Schema(schema) => schema
            .to::<serde_json::Value>()
            .is_ok_and(|schema| schema.get("properties").is_some_and(|fields| fields.get("attachments").is_some())),
    }
}

fn unknown_tools(used: &ToolsetUse) -> ReachableTool<'_> {
    ReachableTool {
        name: "*".into(),
        toolsets: vec![&used.name],
        verdict: DeclaredVerdict::Unknown,
        capabilities: used.source.capabilities(),
        agent: None,
    }
}

/// Several shells of one agent are one tool: their rules in order, then the default that was written. Unwritten ones block,
/// and of written ones linking takes no two that differ.
fn merge_shells<'a>(shell: &mut ReachableTool<'a>, other: ReachableTool<'a>) {
    shell.toolsets.extend(other.toolsets);
    shell.capabilities = shell.capabilities.union(other.capabilities);
    if let (DeclaredVerdict::ByCommand(commands), DeclaredVerdict::ByCommand(more)) =
        (&mut shell.verdict, other.verdict)
    {
        let is_default = |command: &CommandVerdict| command.pattern == "*";
        let commands = commands.to_mut();
        commands.extend(more.into_owned());
        let defaults = || commands.iter().filter(|command| is_default(command));
        let default = defaults().find(|command| command.verdict != Rule::Block).or_else(|| defaults().next()).cloned();
        commands.retain(|command| !is_default(command));
        commands.extend(default);
    }
}

/// Who calls whom: made once, and asked about all agents.
pub struct Graph<'a> {
    program: &'a Program,
    /// In the order of their names.
    pub nodes: Vec<AgentNode<'a>>,
}

/// An agent of the graph. Others are meant by their places in it.
pub struct AgentNode<'a> {
    /// The agent.
    pub agent: &'a AgentSpec,
    /// The tools that it can call.
    pub tools: Vec<ReachableTool<'a>>,
    /// The agents that it can call by what its file says, each once.
    pub callees: Vec<usize>,
    /// Whether it can call every other besides.
    pub calls_any: bool,
    /// What gives it a capability of its own, in the order of [`Capability::ALL`].
    own: [Option<Means>; Capability::ALL.len()],
}

/// The tool, server-side tool or model that gives a capability.
#[derive(Clone)]
struct Means {
    name: Cow<'static, str>,
    asks: bool,
}

/// One step of a way: where it goes on, where it ends, and how many agents that is.
#[derive(Clone, Copy)]
struct ReachStep {
    next: Option<usize>,
    source: usize,
    agents: usize,
}

impl<'a> Graph<'a> {
    /// Finds the tools of every agent of the program, and which agents each of them can call.
    pub fn new(program: &'a Program) -> Self {
        let node = |agent: &'a Arc<AgentSpec>| {
            let tools = program.tools_of(agent);
            let own = Capability::ALL.map(|capability| own(agent, &tools, capability));
            AgentNode { agent, tools, callees: Vec::new(), calls_any: Program::calls_any(agent), own }
        };
        let mut graph = Self { program, nodes: program.agents.values().map(node).collect() };
        let is_created = |node: &AgentNode<'_>| node.agent.file.starts_with(&program.generated_agents_dir);
        let created: Vec<usize> = (0..graph.nodes.len()).filter(|place| is_created(&graph.nodes[*place])).collect();
        let mut last_caller: Vec<Option<usize>> = vec![None; graph.nodes.len()];
        for caller in 0..graph.nodes.len() {
            let mut callees = graph.named(caller, &created);
            callees.retain(|callee| last_caller[*callee].replace(caller) != Some(caller));
            graph.nodes[caller].callees = callees;
        }
        graph
    }

    /// The place of an agent.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.agent.name.as_str().cmp(name)).ok()
    }

    /// The agents that an agent can call, some more than once.
    fn named(&self, caller: usize, created: &[usize]) -> Vec<usize> {
        let AgentNode { agent, tools, .. } = &self.nodes[caller];
        let called = tools.iter().filter(|tool| tool.verdict.can_run()).filter_map(|tool| tool.agent);
        let mut named: Vec<usize> = called.filter_map(|name| self.place(name)).collect();
        match &agent.allow_workers {
            Some(AllowWorkers::Only(names)) if calls_by_name(agent) => {
                named.extend(names.iter().filter_map(|name| self.place(name)));
            }
            // Without a list it may call what runs have created.
            None if calls_by_name(agent) => named.extend(created),
            Some(AllowWorkers::Only(_) | AllowWorkers::Any) | None => {}
        }
        named
    }

    /// One more node than there are agents stands for "any agent", so that code which may call all of them costs one
    /// edge.
    fn any(&self) -> usize {
        self.nodes.len()
    }

    /// The edges of a node, one by one.
    fn callee(&self, node: usize, edge: usize) -> Option<usize> {
        match self.nodes.get(node) {
            None => Some(edge).filter(|callee| *callee < self.any()),
            Some(AgentNode { callees, calls_any, .. }) => {
                callees.get(edge).copied().or_else(|| (*calls_any && edge == callees.len()).then(|| self.any()))
            }
        }
    }

    fn all_callees(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..).map_while(move |edge| self.callee(node, edge))
    }

    fn callers(&self) -> Vec<Vec<usize>> {
        let mut callers = vec![Vec::new(); self.any() + 1];
        for caller in 0..=self.any() {
            self.all_callees(caller).for_each(|callee| callers[callee].push(caller));
        }
        callers
    }

    /// The worst case of every agent, by its place, in time linear in the size of the program.
    pub fn worst_cases(&self) -> Vec<Worst<'_>> {
        let callers = self.callers();
        let mut worst = vec![Worst::new(); self.nodes.len()];
        for capability in Capability::ALL {
            self.add_ways_to(capability, &callers, &mut worst);
        }
        worst
    }

    /// Breadth first from the agents that have the capability themselves, against the direction of calls: the first
    /// way found is a shortest one.
    fn add_ways_to<'g>(&'g self, capability: Capability, callers: &[Vec<usize>], worst: &mut [Worst<'g>]) {
        let mut found: Vec<Option<ReachStep>> = vec![None; callers.len()];
        let mut queue = VecDeque::new();
        let means = |agent: usize| self.nodes[agent].own[capability as usize].as_ref();
        for source in (0..self.nodes.len()).filter(|agent| means(*agent).is_some()) {
            found[source] = Some(ReachStep { next: None, source, agents: 1 });
            queue.push_back(source);
        }
        while let Some(agent) = queue.pop_front() {
            let Some(ReachStep { source, agents, .. }) = found[agent] else { continue };
            for caller in &callers[agent] {
                if found[*caller].is_none() {
                    // The node "any agent" is none itself.
                    let agents = agents + usize::from(*caller < self.any());
                    found[*caller] = Some(ReachStep { next: Some(agent), source, agents });
                    queue.push_back(*caller);
                }
            }
        }
        for (start, worst) in worst.iter_mut().enumerate() {
            if let Some(ReachStep { source, .. }) = found[start]
                && let Some(means) = means(source)
            {
                worst.push((capability, self.way(&found, start, means)));
            }
        }
    }

    /// Only the first steps are walked: a chain of ten thousand agents would make the whole quadratic.
    fn way<'g>(&'g self, found: &[Option<ReachStep>], start: usize, means: &'g Means) -> ReachPath<'g> {
        let Some(ReachStep { source, agents: all, .. }) = found[start] else {
            unreachable!("only found agents have a way")
        };
        let (mut agents, mut at) = (Vec::with_capacity(all.min(ReachPath::LONGEST)), Some(start));
        while let Some(index) = at.filter(|_| agents.len() < ReachPath::LONGEST) {
            // The node "any agent" has no name and is not shown.
            agents.extend(self.nodes.get(index).map(|node| node.agent.name.as_str()));
            at = found[index].and_then(|step| step.next);
        }
        let skipped = all - agents.len() - usize::from(at.is_some());
        ReachPath { agents, skipped, last_agent: &self.nodes[source].agent.name, tool: &means.name, asks: means.asks }
    }

    /// Why the model of an agent has to be asked anew, whatever it replied before: what the agent reaches that writes, asks, or
    /// leaves this machine. `None`: all that it reaches only looks.
    pub fn why_asked_anew(&self, place: usize, worst: &Worst<'_>) -> Option<String> {
        const DOES: [Capability; 4] =
            [Capability::WritesFiles, Capability::RunsCommands, Capability::ReachesNetwork, Capability::CreatesAgents];
        if self.nodes[place].agent.script.is_some() {
            return Some("its model is a script, which costs nothing".to_owned());
        }
        if let Some((capability, path)) = worst.iter().find(|(capability, _)| DOES.contains(capability)) {
            return Some(format!("{} {}", path.words().join(" → "), capability.words()));
        }
        let (mut reached, mut queue) = (vec![false; self.any() + 1], VecDeque::from([place]));
        while let Some(place) = queue.pop_front() {
            if std::mem::replace(&mut reached[place], true) {
                continue;
            }
            if let Some(AgentNode { agent, tools, .. }) = self.nodes.get(place)
                && let Some(tool) = tools.iter().find(|tool| tool.verdict.may_ask())
            {
                return Some(format!("{} → {} asks first", agent.name, tool.name));
            }
            queue.extend(self.all_callees(place));
        }
        None
    }

    /// Agents that can call themselves, directly or through others: strongly connected components of more than one
    /// node, and self-calls.
    pub fn cyclic(&self) -> Vec<&'a str> {
        let components = self.components();
        let mut sizes = vec![0_usize; components.len()];
        for component in &components[..self.nodes.len()] {
            sizes[*component] += 1;
        }
        let is_cyclic = |(place, node): &(usize, &AgentNode<'a>)| {
            sizes[components[*place]] > 1 || node.callees.contains(place) || node.calls_any
        };
        self.nodes.iter().enumerate().filter(is_cyclic).map(|(_, node)| node.agent.name.as_str()).collect()
    }

    /// Tarjan's algorithm with a stack of its own, because a chain of ten thousand agents must not overflow the stack.
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let count = self.any() + 1;
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
                if let Some(callee) = self.callee(node, edge) {
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

    /// Agents that no run reaches from the entry.
    pub fn unreached(&self) -> Vec<&'a str> {
        let Entry::Agent(entry) = &self.program.entry else { return Vec::new() };
        let mut reached = vec![false; self.any() + 1];
        let mut queue: Vec<usize> = self.place(entry).into_iter().collect();
        while let Some(agent) = queue.pop() {
            if !std::mem::replace(&mut reached[agent], true) {
                queue.extend(self.all_callees(agent));
            }
        }
        self.nodes
            .iter()
            .zip(reached)
            .filter(|(_, reached)| !reached)
            .map(|(node, _)| node.agent.name.as_str())
            .collect()
    }
}

/// What gives an agent a capability of its own; rather something that does not ask than something that does, and rather a
/// tool than the attachments of a call.
fn own(agent: &AgentSpec, tools: &[ReachableTool<'_>], capability: Capability) -> Option<Means> {
    let is_server = matches!(capability, Capability::ReachesNetwork | Capability::SpendsMoney);
    if let Some(tool) = agent.server_tools.first().filter(|_| is_server) {
        return Some(Means { name: tool.kind.name().into(), asks: false });
    }
    let is_paid = |model: &&ModelName| !model.is_none() && provider(&model.provider).is_none_or(|row| row.paid);
    if let Some(model) =
        agent.models().chain(&agent.summariser).find(is_paid).filter(|_| capability == Capability::SpendsMoney)
    {
        return Some(Means { name: model.to_string().into(), asks: false });
    }
    let gives = |tool: &&ReachableTool<'_>| tool.capabilities.contains(capability) && tool.verdict.can_run();
    let tool = tools.iter().filter(gives).min_by_key(|tool| (tool.verdict.always_asks(), tool.agent.is_some()))?;
    let name = match (tool.name.as_ref(), tool.agent) {
        ("*", _) => format!("{} (any tool)", tool.toolsets[0]).into(),
        (name, Some(_)) => format!("{name} (attachments)").into(),
        (_, None) => tool.name.clone(),
    };
    Some(Means { name, asks: tool.verdict.always_asks() })
}

impl ReachPath<'_> {
    /// Longer ways are shown without their middle.
    const LONGEST: usize = 6;

    /// `main → researcher → web_search`.
    pub fn words(&self) -> Vec<Cow<'_, str>> {
        let mut words: Vec<Cow<'_, str>> = Vec::with_capacity(self.agents.len() + 3);
        words.extend(self.agents.iter().map(|agent| Cow::Borrowed(*agent)));
        if self.skipped > 0 {
            words.push(format!("({} more)", self.skipped).into());
        }
        if self.agents.last() != Some(&self.last_agent) {
            words.push(self.last_agent.into());
        }
        words.push(self.tool.into());
        words
    }
}

#[cfg(test)]
mod tests;
