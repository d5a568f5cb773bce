use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::manifest::AgentApprovalOverride;
use super::super::{AttachmentPolicy, Limits, Policy};
use super::*;
use crate::message::RawJson;
use crate::model::name::ModelName;
use crate::model::{ModelSettings, ServerTool, ServerToolKind};
use crate::tools::DeclaredTool;
use crate::tools::approval::{ApprovalMode, Rule, Rules};
use crate::tools::source::{ExportKind, PythonToolset, built_in};

/// An agent with a model that costs nothing and an input without attachments: it can do nothing but call its toolsets.
fn agent(name: &str, toolsets: &[&str]) -> AgentSpec {
    AgentSpec {
        name: name.to_owned(),
        file: format!("{name}.worker").into(),
        description: String::new(),
        instructions: String::new(),
        model: ModelName::parse("ollama:qwen3").unwrap(),
        fallbacks: Vec::new(),
        compatible_models: None,
        script: None,
        input: Typing::Schema(RawJson::from_valid("{}".to_owned())),
        prompt: None,
        output: Typing::Untyped,
        tools: Vec::new(),
        toolsets: toolsets.iter().map(|name| used(name)).collect(),
        doubtful_rules: Vec::new(),
        allow_workers: None,
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        limits: Limits::default(),
        summariser: None,
        context: crate::project::ContextSettings::default(),
        cached: false,
        attachment_policy: AttachmentPolicy::default(),
        locked: false,
        stand_in: None,
    }
}

/// A built-in toolset, or else an agent.
fn used(name: &str) -> ToolsetUse {
    let source = built_in(name).unwrap_or_else(|| ToolsetSource::Agent(name.to_owned()));
    ToolsetUse { name: name.to_owned(), source: Arc::new(source), rules: Rules::new(), rule_places: BTreeMap::new() }
}

fn code(tools: Option<&[&str]>) -> ToolsetUse {
    let tool = |name: &&str| DeclaredTool {
        name: (*name).to_owned().into(),
        verdict: DeclaredVerdict::Ask,
        capabilities: Capabilities::NONE,
    };
    let tools = tools.map(|tools| tools.iter().map(tool).collect());
    let source = ToolsetSource::Python(PythonToolset {
        file: "kit.py".into(),
        name: "kit".into(),
        exported: ExportKind::Toolset,
        tools,
    });
    ToolsetUse { name: "kit".into(), source: Arc::new(source), rules: Rules::new(), rule_places: BTreeMap::new() }
}

fn program(agents: impl IntoIterator<Item = AgentSpec>) -> Program {
    let agents: BTreeMap<String, Arc<AgentSpec>> =
        agents.into_iter().map(|agent| (agent.name.clone(), Arc::new(agent))).collect();
    Program {
        root: ".".into(),
        shown_root: ".".into(),
        entry: Entry::Agent("main".into()),
        agents,
        policy: Policy {
            approval_mode: ApprovalMode::Prompt,
            max_depth: 5,
            max_call_depth: None,
            return_permission_errors: false,
            agent_calls_require_approval: false,
            agent_attachments_require_approval: false,
            agent_approval_overrides: BTreeMap::new(),
            limits: Limits::default(),
        },
        default_input: None,
        allow_cli_input: true,
        exports: Vec::new(),
        generated_agents_dir: "made".into(),
        generated: BTreeMap::new(),
        created: std::sync::Arc::default(),
        protected: crate::tools::protected::ProtectedFiles::default(),
        programs: BTreeMap::new(),
        python_fence: None,
        rules: Vec::new(),
        env: Vec::new(),
        open: Vec::new(),
        registry: crate::tools::function::Registry::default(),
        wording: crate::remedy::Wording::default(),
        fallbacks: Vec::new(),
        replaced_models: Vec::new(),
        maps: Vec::new(),
        without_model: Vec::new(),
    }
}

/// `writes files: main → b → write_file (asks)`, a line for each capability.
fn worst(program: &Program, agent: &str) -> Vec<String> {
    let graph = Graph::new(program);
    let line = |(capability, way): &(Capability, ReachPath<'_>)| {
        let asks = if way.asks { " (asks)" } else { "" };
        format!("{}: {}{asks}", capability.words(), way.words().join(" → "))
    };
    graph.worst_cases()[graph.place(agent).unwrap()].iter().map(line).collect()
}

#[test]
fn own_tools_are_the_shortest_way() {
    let program = program([agent("main", &["filesystem_cwd", "shell_file_ops", "dynamic_agents"])]);
    assert_eq!(
        worst(&program, "main"),
        [
            "reads files: main → read_file",
            // `ls` runs without a question, so the shell does not ask for everything.
            "writes files: main → shell",
            "creates agents: main → agent_create (asks)",
        ]
    );
}

#[test]
fn what_others_can_do_is_reached_through_them_by_the_shortest_way() {
    let program = program([
        agent("main", &["a", "far"]),
        agent("far", &["a"]),
        agent("a", &["b"]),
        agent("b", &["filesystem_cwd"]),
        agent("alone", &["filesystem_cwd_ro"]),
    ]);
    assert_eq!(
        worst(&program, "main"),
        ["reads files: main → a → b → read_file", "writes files: main → a → b → write_file (asks)"]
    );
    assert_eq!(worst(&program, "alone"), ["reads files: alone → read_file"]);
    assert_eq!(Graph::new(&program).unreached(), ["alone"]);
}

#[test]
fn a_cycle_reaches_what_any_of_its_agents_can_do() {
    let program = program([
        agent("main", &["a", "main"]),
        agent("a", &["b"]),
        agent("b", &["main", "filesystem_cwd_ro"]),
        agent("outside", &["main"]),
    ]);
    assert_eq!(worst(&program, "main"), ["reads files: main → a → b → read_file"]);
    assert_eq!(worst(&program, "b"), ["reads files: b → read_file"]);
    assert_eq!(worst(&program, "outside"), ["reads files: outside → main → a → b → read_file"]);
    assert_eq!(Graph::new(&program).cyclic(), ["a", "b", "main"]);
}

#[test]
fn blocked_tools_do_not_count() {
    let mut main = agent("main", &["filesystem_cwd", "a"]);
    for tool in ["write_file", "edit_file", "read_file"] {
        main.toolsets[0].rules.insert(tool.into(), Rule::Block);
    }
    main.toolsets[1].rules.insert("a".into(), Rule::Block);
    let program = program([main, agent("a", &["shell_file_ops"])]);
    assert_eq!(worst(&program, "main"), ["reads files: main → list_files"]);
    assert_eq!(Graph::new(&program).unreached(), ["a"]);
}

#[test]
fn what_does_not_ask_is_named_rather_than_what_does() {
    let mut main = agent("main", &["filesystem_cwd"]);
    main.toolsets[0].rules.extend([("read_file".to_owned(), Rule::Ask), ("edit_file".to_owned(), Rule::Allow)]);
    assert_eq!(worst(&program([main]), "main"), ["reads files: main → list_files", "writes files: main → edit_file"]);
}

#[test]
fn code_may_call_any_agent_unless_it_is_blocked_or_confined() {
    let reader = || agent("reader", &["filesystem_cwd_ro"]);
    let writer = || agent("writer", &["filesystem_cwd"]);
    let main = |toolset: ToolsetUse| AgentSpec { toolsets: vec![toolset], ..agent("main", &[]) };

    let free = program([main(code(Some(&["draw"]))), reader(), writer()]);
    assert_eq!(
        worst(&free, "main"),
        ["reads files: main → reader → read_file", "writes files: main → writer → write_file (asks)"]
    );
    assert!(Program::calls_any(&free.agents["main"]) && Graph::new(&free).cyclic() == ["main"]);
    assert!(Graph::new(&free).unreached().is_empty());

    let mut blocked = code(Some(&["draw"]));
    blocked.rules.insert("draw".into(), Rule::Block);
    let program_of_blocked = program([main(blocked), reader()]);
    assert!(worst(&program_of_blocked, "main").is_empty() && !Program::calls_any(&program_of_blocked.agents["main"]));

    let only = |names: &[&str]| Some(AllowWorkers::Only(names.iter().map(|name| (*name).to_owned()).collect()));
    let confined = AgentSpec { allow_workers: only(&["reader", "gone"]), ..main(code(Some(&["draw"]))) };
    let program_of_confined = program([confined, reader(), writer()]);
    assert_eq!(worst(&program_of_confined, "main"), ["reads files: main → reader → read_file"]);
    let graph = Graph::new(&program_of_confined);
    let callees = &graph.nodes[graph.place("main").unwrap()].callees;
    assert_eq!(callees, &[graph.place("reader").unwrap()]);

    // Code of which nothing is known can do all that the user can.
    let unknown = program([main(code(None))]);
    assert_eq!(worst(&unknown, "main")[0], "reads files: main → kit (any tool)");
    assert_eq!(worst(&unknown, "main").len(), Capabilities::OF_CODE.iter().count());
}

#[test]
fn agents_called_by_name_are_those_that_are_allowed() {
    let with = |allow, rule: Option<Rule>| {
        let mut main = AgentSpec { allow_workers: allow, ..agent("main", &["dynamic_agents"]) };
        main.toolsets[0].rules.extend(rule.map(|rule| ("agent_call".to_owned(), rule)));
        program([main, agent("writer", &["filesystem_cwd"])])
    };
    let writes = |program: &Program| worst(program, "main").iter().any(|line| line.starts_with("writes files"));
    assert!(!writes(&with(None, None)), "only what is in its toolsets");
    let made = AgentSpec { file: "made/writer.yaml".into(), ..agent("writer", &["filesystem_cwd"]) };
    let created = program([agent("main", &["dynamic_agents"]), made]);
    assert!(writes(&created), "and what runs have created");
    assert!(writes(&with(Some(AllowWorkers::Only(vec!["writer".into()])), None)));
    assert!(writes(&with(Some(AllowWorkers::Any), None)));
    assert!(!writes(&with(Some(AllowWorkers::Any), Some(Rule::Block))), "the tool that calls is blocked");
    assert!(!writes(&with(Some(AllowWorkers::Only(vec!["writer".into()])), Some(Rule::Block))));
}

#[test]
fn attachments_server_side_tools_and_paid_models_count() {
    let search = ServerTool {
        kind: ServerToolKind::WebSearch,
        max_uses: None,
        allowed_domains: Vec::new(),
        blocked_domains: Vec::new(),
    };
    let program = program([
        agent("main", &["open", "search", "paid"]),
        AgentSpec { input: Typing::Untyped, ..agent("open", &[]) },
        AgentSpec { server_tools: vec![search], ..agent("search", &[]) },
        AgentSpec { model: ModelName::parse("anthropic:claude").unwrap(), ..agent("paid", &[]) },
    ]);
    assert_eq!(
        worst(&program, "main"),
        [
            "reads files: main → open (attachments)",
            "reaches the network: main → search → web_search",
            "spends money: main → paid → anthropic:claude",
        ]
    );
}

#[test]
fn calls_ask_by_policy_with_exceptions_by_agent() {
    let mut program = program([agent("main", &["a", "b"]), agent("a", &[]), agent("b", &[])]);
    program.policy.agent_calls_require_approval = true;
    let exception = AgentApprovalOverride { calls_require_approval: Some(false), attachments_require_approval: None };
    program.policy.agent_approval_overrides.insert("b".into(), exception);
    let verdicts: Vec<DeclaredVerdict> =
        program.tools_of(&program.agents["main"]).into_iter().map(|tool| tool.verdict).collect();
    assert_eq!(verdicts, [DeclaredVerdict::Ask, DeclaredVerdict::Allow]);
}

#[test]
fn a_chain_of_ten_thousand_agents_is_walked_and_its_middle_left_out() {
    const LENGTH: usize = 10_000;
    let name = |index: usize| format!("a{index:05}");
    let mut agents: Vec<AgentSpec> = (0..LENGTH).map(|index| agent(&name(index), &[&name(index + 1)])).collect();
    agents.push(agent(&name(LENGTH), &["filesystem_cwd_ro", &name(0)]));
    let program = program(agents);
    assert_eq!(
        worst(&program, "a00000"),
        ["reads files: a00000 → a00001 → a00002 → a00003 → a00004 → a00005 → (9994 more) → a10000 → read_file"]
    );
    assert_eq!(Graph::new(&program).cyclic().len(), LENGTH + 1);
}

#[test]
fn the_agent_that_stands_for_any_is_not_counted_among_those_left_out() {
    let name = |index: usize| format!("a{index}");
    let mut agents: Vec<AgentSpec> = (0..7).map(|index| agent(&name(index), &[&name(index + 1)])).collect();
    agents.push(AgentSpec { toolsets: vec![code(Some(&["draw"]))], ..agent("a7", &[]) });
    agents.push(agent("reader", &["filesystem_cwd_ro"]));
    let program = program(agents);
    assert_eq!(worst(&program, "a0"), ["reads files: a0 → a1 → a2 → a3 → a4 → a5 → (2 more) → reader → read_file"]);
    assert_eq!(worst(&program, "a3"), ["reads files: a3 → a4 → a5 → a6 → a7 → reader → read_file"]);
}
