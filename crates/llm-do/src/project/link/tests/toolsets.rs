//! What the names in `toolsets` and `tools` mean.

use super::*;
use crate::project::reach::Graph;
use crate::project::{AllowWorkers, Program};
use crate::tools::approval::{DeclaredVerdict, Rule};
use crate::tools::source::{ExportKind, PythonToolset, ToolsetSource};
use crate::tools::{Capabilities, DeclaredTool};

fn tool_names(program: &Program, agent: &str) -> Vec<String> {
    program.tools_of(&program.agents[agent]).into_iter().map(|tool| tool.name.into_owned()).collect()
}

fn offered(name: &str, tools: Option<&[&str]>) -> PythonToolset {
    let tool = |name: &&str| DeclaredTool {
        name: (*name).to_owned().into(),
        verdict: DeclaredVerdict::Ask,
        capabilities: Capabilities::NONE,
    };
    PythonToolset {
        exported: ExportKind::Toolset,
        file: "tools.py".into(),
        name: name.to_owned(),
        tools: tools.map(|tools| tools.iter().map(tool).collect()),
    }
}

fn offer(toolsets: Vec<PythonToolset>, tools: &[&str]) -> PythonOffer {
    let single = |name: &&str| crate::project::PythonFileTool {
        file: "tools.py".into(),
        tool: DeclaredTool {
            name: (*name).to_owned().into(),
            verdict: DeclaredVerdict::Ask,
            capabilities: Capabilities::NONE,
        },
    };
    PythonOffer { toolsets, tools: tools.iter().map(single).collect(), ..PythonOffer::default() }
}

#[test]
fn two_agents_with_one_name_are_a_mistake_that_names_both() {
    let report = directory().agent("main", "").agent("main", "").survey().unwrap_err();
    let text = report.to_string();
    assert!(text.contains("a second agent with the name `main`"), "{text}");
    assert!(text.contains("the first one at main.worker:2:7"), "{text}");
    assert_eq!(report.error_count(), 1);
}

#[test]
fn code_has_the_name_of_its_agent_and_asks_no_model_where_it_answers_alone() {
    let with = |mode: &str, file: &str| {
        let toolset = format!(r#", "toolsets": {{"sorter": {{"python": "sorter.py:sorter", "mode": "{mode}"}}}}"#);
        let sorter = "---\nname: sorter\nmodel: scripted:gone.yaml\ntoolsets: [filesystem_cwd]\n---\nSort.\n";
        let files = manifest(&toolset).agent("main", "toolsets: [sorter]");
        if mode == "code" {
            files.file(file, sorter)
        } else {
            files.file(file, &sorter.replace("scripted:gone.yaml", "ollama:a"))
        }
    };
    for mode in ["agent", "shadow", "fallback"] {
        let program = with(mode, "sorter.worker").program();
        let sorter = &program.agents["sorter"];
        assert_eq!((sorter.model.to_string().as_str(), sorter.toolsets.len()), ("ollama:a", 1), "{mode}");
        let fact = format!("the mode `{mode}` asks the agent `sorter`, and its file rests: sorter.worker.softened");
        let mistakes = with(mode, "sorter.worker.softened").mistakes();
        assert!(mistakes[0].contains(&fact) && mistakes[0].ends_with("(rename it to `sorter.worker`)"), "{mistakes:?}");
    }
    // Whoever was killed between two steps of moving the file finds a project that works.
    for file in ["sorter.worker", "sorter.worker.softened"] {
        let program = with("code", file).program();
        let sorter = &program.agents["sorter"];
        assert!(sorter.model.is_none() && sorter.toolsets.is_empty());
        assert_eq!(program.asked_models().count(), 1, "only that of the caller");
        assert_eq!(tool_names(&program, "main"), ["sorter"]);
    }
}

#[test]
fn code_needs_its_agent_and_a_file_that_rests_needs_code() {
    let toolset = r#", "toolsets": {"sorter": {"python": "sorter.py:sorter", "mode": "code"}}"#;
    let mistakes = manifest(toolset).agent("main", "").mistakes();
    assert!(mistakes[0].contains("`sorter` is code in the place of an agent that is not there"), "{mistakes:?}");
    let resting = "---\nname: sorter\nmodel: ollama:a\n---\nSort.\n";
    let mistakes = manifest("").agent("main", "").file("sorter.worker.softened", resting).mistakes();
    let expected = "sorter.worker.softened:2:7 sorter.worker.softened rests, and nothing answers in its place \
                    (rename it to `sorter.worker`)";
    assert_eq!(mistakes, [expected]);
}

#[test]
fn a_name_means_one_thing() {
    let built_ins = [
        "filesystem_cwd",
        "filesystem_cwd_ro",
        "filesystem_project",
        "filesystem_project_ro",
        "shell_readonly",
        "shell_file_ops",
        "dynamic_agents",
    ];
    for name in built_ins {
        directory().agent("main", "").agent(name, "").check_mistakes(&[&format!(
            "{name}.worker:2:7 an agent with the name of a built-in toolset: `{name}` (give it another name)"
        )]);
        for definition in [r#"{"shell": {}}"#, r#"{"use": "shell_readonly"}"#] {
            manifest(&format!(", \"toolsets\": {{\"{name}\": {definition}}}")).agent("main", "").check_mistakes(&[
                &format!(
                    "project.json:1:87 a toolset with the name of a built-in toolset: `{name}` (give it another name)"
                ),
            ]);
        }
    }
    let taken = manifest(r#", "toolsets": {"other": {"shell": {}}}"#).agent("main", "").agent("other", "");
    let text = taken.survey().unwrap_err().to_string();
    assert!(text.contains("a toolset with the name of an agent or another toolset: `other`"), "{text}");
    assert!(text.contains("the other one at other.worker:2:7"), "{text}");
    let python = directory().agent("main", "").offering(offer(vec![offered("main", None)], &[]));
    python.check_mistakes(&[
        "root/tools.py the Python toolset `main` has the name of another toolset (give it another name)",
    ]);
}

#[test]
fn tools_of_one_name_in_one_agent_clash_unless_they_are_shells() {
    directory().agent("main", "toolsets: [filesystem_cwd, filesystem_project]").check_mistakes(&[
        "main.worker:4:28 `filesystem_cwd` and `filesystem_project` both have a tool `read_file` (rename the tools of \
         one: a manifest toolset with `use` and `prefix`)",
    ]);
    let shells = r#", "toolsets": {"mine": {"shell": {"rules": [{"pattern": "make", "approval": "ask"}]}}}"#;
    let program = manifest(shells).agent("main", "toolsets: [shell_readonly, mine, shell_file_ops]").program();
    assert_eq!(tool_names(&program, "main"), ["shell"]);
    let prefixed = r#", "toolsets": {"p": {"use": "filesystem_project", "prefix": "p_"}}"#;
    let program = manifest(prefixed).agent("main", "toolsets: [filesystem_cwd_ro, p]").program();
    assert_eq!(
        tool_names(&program, "main"),
        [
            "read_file",
            "list_files",
            "search_files",
            "p_read_file",
            "p_list_files",
            "p_search_files",
            "p_write_file",
            "p_edit_file"
        ]
    );
    let python = offer(vec![offered("kit", Some(&["read_file"]))], &["count"]);
    directory().agent("main", "tools: [count]\ntoolsets: [filesystem_cwd_ro, kit]").offering(python).check_mistakes(&[
        "main.worker:5:31 `filesystem_cwd_ro` and `kit` both have a tool `read_file` (rename the tools of one: a \
         manifest toolset with `use` and `prefix`)",
    ]);
    // An agent is a tool of its own name.
    let named = manifest(r#", "toolsets": {"files": {"use": "filesystem_cwd", "tools": ["read_file"]}}"#);
    named.agent("main", "toolsets: [files, read_file]").agent("read_file", "").check_mistakes(&[
        "main.worker:4:19 `files` and `read_file` both have a tool `read_file` (rename the tools of one: a manifest \
         toolset with `use` and `prefix`)",
    ]);
}

#[test]
fn work_that_moves_between_prompt_and_code_keeps_its_callers() {
    for caller in ["toolsets: [tally]", "tools: [tally]"] {
        let caller = format!("{caller}\napproval: {{ tally: ask }}");
        let prompt = directory().agent("main", &caller).agent("tally", "").program();
        let code = directory().agent("main", &caller).offering(offer(Vec::new(), &["tally"])).program();
        assert_eq!(
            (tool_names(&prompt, "main"), tool_names(&code, "main")),
            (vec!["tally".into()], vec!["tally".into()])
        );
        let is_asked = |program: &Program| program.tools_of(&program.agents["main"])[0].verdict == DeclaredVerdict::Ask;
        assert!(is_asked(&prompt) && is_asked(&code));
    }
    // Each key means first what only it can mean.
    let both = || directory().agent("main", "tools: [tally]").agent("other", "toolsets: [tally]").agent("tally", "");
    let program = both().offering(offer(Vec::new(), &["tally"])).program();
    let source =
        |agent: &str| program.agents[agent].tools.iter().chain(&program.agents[agent].toolsets).next().unwrap();
    assert!(matches!(*source("main").source, ToolsetSource::Python(_)));
    assert!(matches!(*source("other").source, ToolsetSource::Agent(_)));
    directory()
        .agent("main", "tools: [filesystem_cwd]")
        .check_mistakes(&["main.worker:4:9 unknown tool `filesystem_cwd` (there are no tools)"]);
}

#[test]
fn unknown_names_say_what_there_is() {
    directory().agent("main", "toolsets: [shel_readonly]").check_mistakes(&[
        "main.worker:4:12 agent `main` asks for an unknown toolset `shel_readonly` (did you mean `shell_readonly`? \
         toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, main, shell_file_ops, shell_readonly)",
    ]);
    directory().agent("main", "toolsets: [zzz]").check_mistakes(&[
        "main.worker:4:12 agent `main` asks for an unknown toolset `zzz` (toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, main, shell_file_ops, shell_readonly)",
    ]);
    directory().agent("main", "toolsets: [shell, filesystem]\ntools: [read_file, zzz]").check_mistakes(&[
        "main.worker:4:12 agent `main` asks for an unknown toolset `shell` (did you mean `shell_readonly`? \
         toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, main, shell_file_ops, shell_readonly)",
        "main.worker:4:19 agent `main` asks for an unknown toolset `filesystem` (did you mean `filesystem_cwd`? \
         toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, main, shell_file_ops, shell_readonly)",
        "main.worker:5:9 unknown tool `read_file` (write `toolsets: [filesystem_cwd]`)",
        "main.worker:5:20 unknown tool `zzz` (there are no tools)",
    ]);
    directory()
        .agent("main", "tools: [cuont]")
        .offering(offer(Vec::new(), &["count"]))
        .check_mistakes(&["main.worker:4:9 unknown tool `cuont` (did you mean `count`?)"]);
}

#[test]
fn cycles_and_calling_oneself_are_legal() {
    let program = directory().agent("main", "toolsets: [main, b]").agent("b", "toolsets: [main]").program();
    assert_eq!(Graph::new(&program).cyclic(), ["b", "main"]);
    assert_eq!(tool_names(&program, "main"), ["main", "b"]);
}

#[test]
fn a_variant_chooses_renames_and_rules_the_tools_of_another_toolset() {
    // Each before what it varies: the order in the file does not matter.
    let keys = r#", "toolsets": {
        "third": {"use": "second", "tools": ["b_a_read_file"], "approval": {"b_a_read_file": "ask"}},
        "second": {"use": "first", "prefix": "b_"},
        "first": {"use": "filesystem_cwd", "prefix": "a_", "tools": ["read_file", "write_file"]},
        "callee": {"use": "other", "prefix": "ask_"}}"#;
    let files = manifest(keys).agent("main", "toolsets: [third, second, callee]").agent("other", "");
    // `third` and `second` share a tool, so only one of them can be used.
    assert_eq!(files.mistakes().len(), 1);
    let program = manifest(keys).agent("main", "toolsets: [third, callee]").agent("other", "").program();
    let tools = program.tools_of(&program.agents["main"]);
    assert_eq!((tools[0].name.as_ref(), &tools[0].verdict), ("b_a_read_file", &DeclaredVerdict::Ask));
    assert_eq!((tools[1].name.as_ref(), tools[1].agent), ("ask_other", Some("other")));
}

#[test]
fn a_variant_names_what_there_is() {
    let with = |definition: &str| manifest(&format!(",\n\"toolsets\": {{\"v\": {definition}}}")).agent("main", "");
    with(r#"{"use": "filesystem"}"#).check_mistakes(&[
        "project.json:2:27 toolset `v` uses an unknown toolset `filesystem` (did you mean `filesystem_cwd`? \
         toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, main, shell_file_ops, shell_readonly)",
    ]);
    with(r#"{"use": "shell_readonly", "tools": ["sh"], "approval": {"shel": "ask"}}"#).check_mistakes(&[
        "project.json:2:55 `shell_readonly` has no tool `sh` (did you mean `shell`?)",
        "project.json:2:75 `shell_readonly` has no tool `shel` (did you mean `shell`?)",
    ]);
    let prefix = "p".repeat(60);
    with(&format!(r#"{{"use": "filesystem_cwd", "prefix": "{prefix}"}}"#)).check_mistakes(&[&format!(
        "project.json:2:14 the prefix of `v` makes a name that is none: `{prefix}read_file` (names have 1 to 64 \
         letters, digits, `_` or `-`)"
    )]);
}

#[test]
fn a_variant_of_itself_is_a_mistake_and_what_uses_it_is_none() {
    let keys = r#", "toolsets": {
"a": {"use": "b"},
"b": {"use": "c"},
"c": {"use": "b"},
"d": {"use": "d"}}"#;
    manifest(keys).agent("main", "toolsets: [a, b, d]").check_mistakes(&[
        "project.json:3:14 toolset `b` is in the end a variant of itself",
        "project.json:4:14 toolset `c` is in the end a variant of itself",
        "project.json:5:14 toolset `d` is in the end a variant of itself",
    ]);
}

#[test]
fn a_long_chain_of_variants_is_refused_without_overflowing_anything() {
    let chain: Vec<String> =
        (0..20_000).map(|index| format!("\"v{index}\": {{\"use\": \"v{}\"}}", index + 1)).collect();
    let keys = format!(", \"toolsets\": {{{}, \"v20000\": {{\"use\": \"shell_readonly\"}}}}", chain.join(",\n"));
    let mistakes = manifest(&keys).agent("main", "toolsets: [v0]").mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(
        mistakes[0].ends_with(
            "toolset `v19984` is a variant of a variant too many times over (at most 16 variants may follow each other)"
        ),
        "{mistakes:?}"
    );
}

#[test]
fn a_root_stays_in_the_project_or_is_absolute() {
    let with = |root: &str| {
        manifest(&format!(", \"toolsets\": {{\"f\": {{\"filesystem\": {{\"root\": \"{root}\"}}}}}}")).agent("main", "")
    };
    for root in [".", "notes", "/srv/notes", "..notes"] {
        assert!(with(root).survey().is_ok(), "{root}");
    }
    for root in ["..", "../x", "a/../../b", "a/.."] {
        with(root).check_mistakes(&[&format!(
            "project.json:1:87 a root of `f` leaves the project: `{root}` (write an absolute path for a directory \
             outside the project)"
        )]);
    }
}

#[test]
fn rules_go_to_the_tools_that_they_name() {
    let keys = "toolsets: [filesystem_cwd, shell_readonly, dynamic_agents, other]\napproval: {write_file: allow, \
                filesystem_cwd.read_file: block, shell: ask, worker_call: ask, dynamic_agents.worker_create: block, \
                other: ask}";
    let program = directory().agent("main", keys).agent("other", "").program();
    let verdict = |name: &str| {
        let tools = program.tools_of(&program.agents["main"]);
        tools.into_iter().find(|tool| tool.name == name).unwrap().verdict
    };
    assert_eq!(verdict("write_file"), DeclaredVerdict::Allow);
    assert_eq!(verdict("read_file"), DeclaredVerdict::Block);
    assert_eq!(verdict("list_files"), DeclaredVerdict::Allow);
    assert_eq!(verdict("search_files"), DeclaredVerdict::Block, "it reads files");
    assert_eq!(verdict("agent_call"), DeclaredVerdict::Ask);
    assert_eq!(verdict("agent_create"), DeclaredVerdict::Block);
    assert_eq!(verdict("other"), DeclaredVerdict::Ask);
    let DeclaredVerdict::ByCommand(commands) = verdict("shell") else { panic!("a shell judges commands") };
    assert!(commands.iter().all(|command| command.verdict == Rule::Ask));
}

#[test]
fn a_search_of_the_project_s_own_is_used_instead_of_ours() {
    let python = || offer(vec![offered("kit", Some(&["search_files", "more"]))], &["search_files"]);
    let files = directory().agent("main", "toolsets: [filesystem_cwd_ro, kit]").offering(python());
    assert_eq!(tool_names(&files.program(), "main"), ["read_file", "list_files", "search_files", "more"]);
    assert_eq!(files.notes(), ["main.worker:4:12 `search_files` is that of `kit`, not that of `filesystem_cwd_ro`"]);
    let files = directory().agent("main", "tools: [search_files]\ntoolsets: [filesystem_cwd_ro]").offering(python());
    assert_eq!(tool_names(&files.program(), "main"), ["search_files", "read_file", "list_files"]);
    // Under another name it is beside it.
    let prefixed = manifest(r#", "toolsets": {"p": {"use": "filesystem_cwd_ro", "prefix": "p_"}}"#);
    let files = prefixed.agent("main", "toolsets: [p, kit]").offering(python());
    assert_eq!(
        tool_names(&files.program(), "main"),
        ["p_read_file", "p_list_files", "p_search_files", "search_files", "more"]
    );
}

#[test]
fn a_rule_for_a_tool_that_is_not_there_is_a_mistake() {
    let keys = "toolsets: [filesystem_cwd_ro]\napproval:\n  red_file: ask\n  shell: block\n  \
                filesystem_cwd_ro.list: ask\n  other.read_file: ask";
    directory().agent("main", keys).check_mistakes(&[
        "main.worker:6:3 agent `main` has no tool `red_file` (did you mean `read_file`? tools: list_files, read_file, \
         search_files)",
        "main.worker:7:3 agent `main` has no tool `shell` (tools: list_files, read_file, search_files)",
        "main.worker:8:3 agent `main` has no tool `filesystem_cwd_ro.list` (did you mean `list_files`? tools: \
         list_files, read_file, search_files)",
        "main.worker:9:3 agent `main` has no tool `other.read_file` (tools: list_files, read_file, search_files)",
    ]);
    let idle = directory().agent("main", "toolsets: [dynamic_agents]\napproval: {agent_create: allow}");
    assert_eq!(idle.notes(), ["main.worker:5:12 `agent_create` always asks: the rule changes nothing"]);
}

#[test]
fn names_that_only_unread_python_can_define_stay_open() {
    let keys = "tools: [count]\ntoolsets: [kit, shell_readonly]\napproval: {anything: ask, kit.other: block}\n\
                schema_in_ref: args.py:Args";
    let files = || manifest(r#", "toolsets": {"v": {"use": "hidden"}}"#).agent("main", keys).code(Code::Unread);
    let program = files().program();
    assert_eq!(program.open, ["args.py:Args", "count", "hidden", "kit"]);
    assert_eq!(*program.agents["main"].tools[0].source, ToolsetSource::Open);
    assert_eq!(program.agents["main"].toolsets[0].rules["other"], Rule::Block);
    assert_eq!(
        shown(&files().link().unwrap_err()),
        ["root `args.py:Args` is defined in Python, which was not started (start Python before linking)"]
    );
}

#[test]
fn what_python_offers_is_linked() {
    let kit = offer(vec![offered("kit", Some(&["draw"])), offered("factory", None)], &["count"]);
    let keys = "tools: [count]\ntoolsets: [kit, factory]\napproval: {draw: allow, count: block, factory.any: ask}";
    let files = directory().agent("main", keys).offering(kit);
    let program = files.link().unwrap();
    assert!(program.open.is_empty());
    let tools: Vec<(String, DeclaredVerdict)> = program
        .tools_of(&program.agents["main"])
        .into_iter()
        .map(|tool| (tool.name.into_owned(), tool.verdict))
        .collect();
    let expected = [
        ("count".to_owned(), DeclaredVerdict::Block),
        ("draw".to_owned(), DeclaredVerdict::Allow),
        ("*".to_owned(), DeclaredVerdict::Unknown),
    ];
    assert_eq!(tools, expected);
    assert_eq!(program.agents["main"].toolsets[1].rules["any"], Rule::Ask);
    directory().agent("main", "toolsets: [kits]").offering(offer(vec![offered("kit", None)], &[])).check_mistakes(&[
        "main.worker:4:12 agent `main` asks for an unknown toolset `kits` (did you mean `kit`? \
         toolsets: ask_user, dynamic_agents, filesystem_cwd, \
         filesystem_cwd_ro, filesystem_project, filesystem_project_ro, kit, main, shell_file_ops, shell_readonly)",
    ]);
}

#[test]
fn rules_without_number_for_toolsets_without_number_are_refused() {
    let names = |count: usize, name: &str| (0..count).map(|index| format!("{name}{index}")).collect::<Vec<_>>();
    let rules: Vec<String> = names(400, "r").iter().map(|name| format!("{name}: ask")).collect();
    let keys = format!("toolsets: [{}]\napproval: {{{}}}", names(400, "t").join(", "), rules.join(", "));
    directory().agent("main", &keys).code(Code::Unread).check_mistakes(&[
        "main.worker:2:7 too many rules for the toolsets of agent `main` whose tools are not known (rules × such \
         toolsets may be 100000 at most)",
    ]);
}

#[test]
fn allow_workers_names_agents() {
    let allowed = |list: &str| directory().agent("main", &format!("allow_workers: {list}")).agent("other", "");
    let of = |files: Files| files.program().agents["main"].allow_workers.clone();
    assert_eq!(of(allowed("[other, main]")), Some(AllowWorkers::Only(vec!["other".into(), "main".into()])));
    assert_eq!(of(allowed("[]")), Some(AllowWorkers::Only(Vec::new())));
    assert_eq!(of(allowed("['*', other]")), Some(AllowWorkers::Any));
    assert_eq!(of(allowed("[made]")), Some(AllowWorkers::Only(vec!["made".into()])), "created in an earlier run");
    allowed("[othr]")
        .check_mistakes(&["main.worker:4:17 `allow_workers` names an unknown agent `othr` (did you mean `other`? \
         agents: main, other)"]);
    // An agent of the project creates others, directly or through a variant, so the name may come to mean one.
    let creating = allowed("[later]").agent("maker", "toolsets: [dynamic_agents]");
    assert!(creating.survey().is_ok());
    let variant = manifest(r#", "toolsets": {"makers": {"use": "dynamic_agents", "prefix": "m_"}}"#)
        .agent("main", "toolsets: [makers]\nallow_workers: [later]");
    assert!(variant.survey().is_ok());
}

#[test]
fn a_rule_for_a_tool_of_unknown_toolsets_is_kept_in_doubt() {
    let kit = || offer(vec![offered("kit", Some(&["draw"])), offered("factory", None), offered("other", None)], &[]);
    let keys = "toolsets: [kit, factory, other]\napproval:\n  draw: ask\n  any: block\n  factory.one: ask";
    let program = directory().agent("main", keys).offering(kit()).program();
    let doubtful: Vec<(&str, &str, String)> = program.agents["main"]
        .doubtful_rules
        .iter()
        .map(|rule| (rule.place.as_str(), rule.tool.as_str(), rule.toolsets.join(" ")))
        .collect();
    let expected =
        [("main.worker:7:3", "any", "factory other".to_owned()), ("main.worker:8:3", "one", "factory".to_owned())];
    assert_eq!(doubtful, expected);
    // All tools are known: the same rule is a mistake now.
    directory()
        .agent("main", "toolsets: [kit]\napproval: {drw: block}")
        .offering(offer(vec![offered("kit", Some(&["draw", "erase"]))], &[]))
        .check_mistakes(&["main.worker:5:12 agent `main` has no tool `drw` (did you mean `draw`? tools: draw, erase)"]);
}

/// Two shells with these defaults, as one tool of `main`.
fn two_shells(first: &str, second: &str) -> Files {
    let shell = |name: &str, default: &str| {
        let default = if default.is_empty() { String::new() } else { format!(", \"default\": \"{default}\"") };
        format!("\"{name}\": {{\"shell\": {{\"rules\": []{default}}}}}")
    };
    let shells =
        [shell("one", first), shell("two", second), "\"three\": {\"use\": \"two\", \"prefix\": \"x_\"}".into()];
    manifest(&format!(", \"toolsets\": {{{}}}", shells.join(", ")))
}

#[test]
fn several_shells_have_the_default_that_is_written() {
    let default_of = |files: Files| {
        let program = files.agent("main", "toolsets: [one, two]").program();
        let shell = program.tools_of(&program.agents["main"]).remove(0);
        let DeclaredVerdict::ByCommand(commands) = shell.verdict else { panic!("a shell judges commands") };
        commands.iter().map(|command| (command.pattern.to_string(), command.verdict)).collect::<Vec<_>>()
    };
    for (first, second, expected) in [
        ("", "", Rule::Block),
        ("ask", "", Rule::Ask),
        ("", "ask", Rule::Ask),
        ("ask", "ask", Rule::Ask),
        ("block", "", Rule::Block),
    ] {
        assert_eq!(default_of(two_shells(first, second)), [("*".to_owned(), expected)], "{first} {second}");
    }
}

#[test]
fn two_different_defaults_of_one_tool_are_a_mistake() {
    for (first, second) in [("ask", "block"), ("block", "ask")] {
        two_shells(first, second).agent("main", "toolsets: [one, two]").check_mistakes(&[&format!(
            "main.worker:4:17 `one` and `two` are one tool, with two defaults: `{first}` and `{second}` (write the same \
             `default` in both, or in one of them only)"
        )]);
        // With a prefix it is another tool.
        assert!(two_shells(first, second).agent("main", "toolsets: [one, three]").survey().is_ok());
    }
}

#[test]
fn the_tools_of_dynamic_agents_may_have_their_older_names() {
    let with = |names: &str, rules: &str| {
        let keys = format!(", \"toolsets\": {{\"makers\": {{\"dynamic_agents\": {{{names}}}}}}}");
        manifest(&keys).agent("main", &format!("toolsets: [makers]\napproval: {{{rules}}}"))
    };
    for (names, expected) in [
        ("\"names\": \"worker\"", ["worker_create", "worker_call"]),
        ("\"names\": \"agent\"", ["agent_create", "agent_call"]),
        ("", ["agent_create", "agent_call"]),
    ] {
        // Rules may use either name, whichever is offered.
        for rules in ["worker_call: block, worker_create: block", "agent_call: block, makers.agent_create: block"] {
            let program = with(names, rules).program();
            let tools = program.tools_of(&program.agents["main"]);
            let tools: Vec<(&str, &DeclaredVerdict)> =
                tools.iter().map(|tool| (tool.name.as_ref(), &tool.verdict)).collect();
            assert_eq!(tools, expected.map(|name| (name, &DeclaredVerdict::Block)), "{names} {rules}");
        }
    }
}
