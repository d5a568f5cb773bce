//! A project with something to see: several agents, calls side by side, a question, costs, a budget.

use std::time::Duration;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, SeenRequest};
use serde_json::json;

use super::desk::Desk;

const EDITOR: &str = "---
name: editor
description: Answers questions of readers with a short article
toolsets: [desk, researcher, checker]
approval:
  write_file: ask
---
You run a small news desk. Ask `researcher` for the facts, one question each, and `checker` whether the numbers fit. Then write
an article of at most 100 words to `drafts/TOPIC.md`, and say where it is and what it rests on.
";
const RESEARCHER: &str = "---
name: researcher
description: Reports what the notes say about one question
toolsets: [filesystem_project_ro]
---
Read the notes, and report what they say about the question: one sentence for each fact, with the file it is in.
";
const CHECKER: &str = "---
name: checker
description: Says whether numbers can be true
toolsets: [researcher]
schema_in:
  type: object
  properties:
    claim: { type: string, description: one sentence }
    careful: { type: boolean }
  required: [claim]
  additionalProperties: false
---
Say whether the claim can be true. Ask `researcher` if you do not know.
";
const PROJECT: &str = r#"{
  "version": 1,
  "entry": {"agent": "editor", "input": "How heavy is the new crane, and who built it?"},
  "worker_files": ["editor.worker", "researcher.worker", "checker.worker"],
  "toolsets": {"desk": {"filesystem": {"root": "drafts", "mode": "rw", "suffixes": [".md"]}}}
}
"#;
const CONFIG: &str = r#"model = "anthropic:claude-haiku-4-5"

[[budget]]
name = "desk"
usd = 0.05
per = "day"
"#;

fn usage(input: u64, output: u64) -> FakeUsage {
    FakeUsage { input, output, cache_read: 0, cache_write: 0, reasoning: 0 }
}

fn article(seen: &SeenRequest) -> &'static str {
    let asked: String = seen.messages.first().map(fake_llm::SeenMessage::text).unwrap_or_default();
    if asked.contains("harbour") { "harbour.md" } else { "crane.md" }
}

/// What each of the three says, by what stands in its instructions and what it has heard.
fn reply(seen: &SeenRequest) -> FakeReply {
    let system = &seen.system;
    let results = seen.results().count();
    let call = FakeCall::new;
    if system.contains("news desk") {
        match results {
            0 => FakeReply::text("Two questions to the notes, and one to the checker.")
                .and_calls([
                    call("researcher", json!({"input": "How heavy is the new crane?"})),
                    call("researcher", json!({"input": "Who built the new crane?"})),
                    call("checker", json!({"claim": "The new crane lifts 60 tonnes.", "careful": true})),
                ])
                .with_usage(usage(1840, 96)),
            3 => FakeReply::text("The notes agree. I write the article; you are asked first.")
                .and_calls([call("write_file", json!({"path": article(seen), "content": "# The new crane\n\nThe new crane on the north quay lifts **60 tonnes**, twice as much as the old one.\nIt was built in Gdynia and came by sea in March.\n"}))])
                .with_usage(usage(2410, 143)),
            _ => FakeReply::text("The article is in `drafts/crane.md`. It rests on:\n\n- `notes/crane.md`: 60 tonnes, the north quay\n- `notes/harbour.md`: Gdynia, March\n\n| fact | file |\n| --- | --- |\n| 60 tonnes | notes/crane.md |\n| Gdynia | notes/harbour.md |\n")
                .with_usage(usage(2690, 71)),
        }
    } else if system.contains("can be true") {
        FakeReply::text("It can be true: cranes of that size lift 40 to 80 tonnes.").with_usage(usage(610, 22))
    } else if results == 0 {
        FakeReply::calls([
            call("list_files", json!({"path": "notes"})),
            call("read_file", json!({"path": "notes/crane.md"})),
        ])
        .with_usage(usage(720, 48))
    } else {
        FakeReply::text("The new crane lifts 60 tonnes (notes/crane.md).").with_usage(usage(980, 31))
    }
}

/// The project, and the model that plays all of its agents.
pub fn newsroom() -> (Desk, FakeLlm) {
    let script = FakeScript::new().answer(|seen| Some(reply(seen))).latency(Duration::from_millis(250), 7);
    let fake = FakeLlm::start(script);
    let desk = Desk::new().with("ANTHROPIC_BASE_URL", &fake.anthropic_url()).with("ANTHROPIC_API_KEY", "k");
    for (name, text) in [("editor", EDITOR), ("researcher", RESEARCHER), ("checker", CHECKER)] {
        desk.write(&format!("newsroom/{name}.worker"), text);
    }
    desk.write("newsroom/project.json", PROJECT);
    desk.write("newsroom/notes/crane.md", "The new crane stands on the north quay. It lifts 60 tonnes.\n");
    desk.write("newsroom/notes/harbour.md", "The crane was built in Gdynia and came by sea in March.\n");
    desk.write("newsroom/drafts/readme.md", "Articles.\n");
    desk.write(".config/llm-do/config.toml", CONFIG);
    (desk, fake)
}
