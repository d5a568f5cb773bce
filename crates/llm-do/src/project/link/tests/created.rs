//! A created agent passes the checks of any worker file.

use std::path::Path;

use super::*;

const USED: &str = "toolsets: [filesystem_cwd, shell_readonly]";

/// The mistakes of a file with these keys that is listed in the project.
fn listed(keys: &str) -> Vec<String> {
    match directory().agent("main", USED).agent("poet", keys).survey() {
        Ok(_) => Vec::new(),
        Err(report) => shown(&report),
    }
}

/// The mistakes of the same file if it is created at run time beside the project's agents.
fn created(keys: &str) -> Vec<String> {
    let program = directory().agent("main", USED).program();
    let text = format!("---\nname: poet\nmodel: anthropic:claude\n{keys}\n---\nDo poet.\n");
    match program.link_created(Path::new("poet.worker"), &text) {
        Ok(_) => Vec::new(),
        Err(report) => shown(&report),
    }
}

#[test]
fn what_is_a_mistake_in_a_worker_file_is_one_in_a_created_agent() {
    let long_tag = format!("prompt: '{{{{ input{} }}}}'", ".b".repeat(2_000));
    let bomb: Vec<String> = (1..40)
        .map(|n| format!("n{n}: {{allOf: [{{$ref: '#/$defs/n{0}'}}, {{$ref: '#/$defs/n{0}'}}]}}", n - 1))
        .collect();
    let bomb = format!("schema_in: {{$ref: '#/$defs/n39', $defs: {{n0: {{type: object}}, {}}}}}", bomb.join(", "));
    let cases = [
        long_tag.as_str(),
        bomb.as_str(),
        "prompt: '{{ topic }}'",
        "prompt: '{{ input'",
        "schema_in: {type: array}",
        "schema_out: {pattern: '((a{1,100}){1,100}){1,100}'}",
        "toolsets: [shel_readonly]",
        "toolsets: [filesystem_cwd, filesystem_cwd_ro]",
        "tools: [nothing]",
        "approval: {write_file: allow}",
        "toolsets: [filesystem_cwd]\napproval: {writ_file: block}",
    ];
    for keys in cases {
        assert!(!listed(keys).is_empty(), "no mistake: {keys}");
        // One that is not there yet is no toolset of others.
        let listed: Vec<String> = listed(keys).iter().map(|mistake| mistake.replace(" poet,", "")).collect();
        assert_eq!(created(keys), listed, "{keys}");
    }
    for keys in ["", "toolsets: [filesystem_cwd]\napproval: {write_file: block}", "prompt: '{{ input }}'"] {
        assert_eq!((listed(keys), created(keys)), (Vec::new(), Vec::new()), "{keys}");
    }
}

#[test]
fn rules_under_the_older_names_of_tools_count_for_created_agents() {
    let program = directory().agent("main", "toolsets: [dynamic_agents]").program();
    let text = "---\nname: poet\nmodel: anthropic:claude\ntoolsets: [dynamic_agents]\n\
                approval: {worker_create: block}\n---\nx\n";
    let poet = program.link_created(Path::new("poet.worker"), text).unwrap();
    let expected = [("agent_create".to_owned(), crate::tools::approval::Rule::Block)];
    assert_eq!(poet.toolsets[0].rules, expected.into());
}

#[test]
fn a_created_agent_gets_nothing_that_its_file_alone_cannot_say() {
    let refused = |keys: &str| created(keys).join("\n");
    assert!(
        refused("server_side_tools: [{tool_type: web_search}]").contains("created agents do not get server-side tools")
    );
    assert!(refused("schema_in_ref: in.json").contains("may not refer to a schema in another file"));
    assert!(refused("schema_out_ref: out.py:Out").contains("may not refer to a schema in another file"));
}
