//! Edits of prompts, tools, schemas and rules in our examples, as people make them by mistake: their tests notice nearly all.

use std::fs;
use std::path::Path;

use crate::support::Sandbox;

/// A file of an example, what stands in it, and what stands there by mistake.
const MUTATIONS: &[(&str, &str, &str)] = &[
    // Prompts.
    ("hello/hello.worker", "at most three sentences", "at most thirty sentences"),
    ("refund/support.worker", "Read the order and `policy.md` first.", ""),
    ("refund/cashier.worker", "as one JSON object", "as text"),
    ("refund/cashier.worker", "for order {{ order }}", "for {{ amount }}"),
    ("publish/publisher.worker", "say so, give the reason", "say nothing"),
    ("digest/digest.worker", "at most three sentences", "a few sentences"),
    ("triage/triage.worker", "`wish` for all else", "`wrong` for all else"),
    ("tour/editor.worker", "Use nothing that it does not report.", "Use whatever you know."),
    ("tour/reader.worker", "What do the notes say about {{ topic }}?", "What do the notes say?"),
    ("tutor/tutor.worker", "Ask for one word at a time.", "Ask for ten words at a time."),
    // Rules.
    ("tour/editor.worker", "edit_file: block", "edit_file: ask"),
    ("publish/publisher.worker", "site_write_file: ask", "site_write_file: allow"),
    ("publish/publisher.worker", "write_file: allow         #", "write_file: ask         #"),
    ("survey/project.json", "\"mv\", \"approval\": \"ask\"", "\"mv\", \"approval\": \"allow\""),
    (
        "survey/project.json",
        "\"approval\": \"allow\",\n            \"approval_required",
        "\"approval\": \"block\",\n            \"approval_required",
    ),
    // Tools.
    ("tour/editor.worker", "toolsets: [desk, reader]", "toolsets: [desk]"),
    ("refund/support.worker", "toolsets: [orders, cashier]", "toolsets: [cashier]"),
    ("desk/editor.worker", "toolsets: [drafts, reader]", "toolsets: [reader]"),
    ("digest/digest.worker", "filesystem_project_ro", "filesystem_project"),
    ("steward/clerk.worker", "filesystem_project", "filesystem_project_ro"),
    ("refund/project.json", "\"root\": \"outbox\"", "\"root\": \"inbox\""),
    ("publish/project.json", "\"prefix\": \"site_\"", "\"prefix\": \"web_\""),
    ("claims/project.json", "\"tools\": [\"list_files\"]", "\"tools\": [\"read_file\"]"),
    // Schemas and settings.
    ("triage/triage.worker", "enum: [crash, wrong, annoying, wish]", "enum: [crash, wrong, annoying, wish, terrible]"),
    ("claims/claims.worker", "total: { type: number }", "total: { type: string }"),
    ("hardening/tally.worker", "over_limit: { type: array", "too_much: { type: array"),
    ("tutor/tutor.worker", "temperature: 0.7", "temperature: 0.1"),
    ("refund/cashier.worker", "maximum: 500", "maximum: 30"),
    // Data.
    ("refund/orders/policy.md", "", "No refunds are granted any more.\n"),
    ("digest/handbook/use/backup.md", "", "Backups are made by nobody.\n"),
];

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// How the cases of an example end, with one edit of it or none.
fn tested(example: &str, edit: Option<(&str, &str, &str)>) -> (Option<i32>, String) {
    let sandbox = Sandbox::new();
    copy(&examples().join(example), &sandbox.path().join(example));
    if let Some((file, from, to)) = edit {
        let path = sandbox.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        let text = if from.is_empty() { format!("{text}{to}") } else { text.replacen(from, to, 1) };
        fs::write(&path, text).unwrap();
    }
    let project = if example == "hardening" { "hardening/1-prompt.json" } else { example };
    let ended = sandbox.run(&["test", project]);
    (ended.code, format!("{}{}", ended.stdout, ended.stderr))
}

#[test]
fn nearly_every_mistaken_edit_of_an_example_is_noticed() {
    assert_eq!(MUTATIONS.len(), 30);
    let example = |file: &str| file.split('/').next().unwrap().to_owned();
    let mut seen: Vec<String> = MUTATIONS.iter().map(|(file, ..)| example(file)).collect();
    seen.dedup();
    seen.sort();
    seen.dedup();
    for name in seen {
        let (code, told) = tested(&name, None);
        assert_eq!(code, Some(0), "{name} as it is: {told}");
    }
    let is_missed =
        |(file, from, to): &&(&str, &str, &str)| tested(&example(file), Some((file, from, to))).0 == Some(0);
    let missed: Vec<_> = MUTATIONS.iter().filter(is_missed).collect();
    println!("{} of {} edits noticed", MUTATIONS.len() - missed.len(), MUTATIONS.len());
    assert!(missed.len() <= 2, "{missed:#?}");
}
