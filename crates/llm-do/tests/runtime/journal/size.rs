//! What a turn takes on the disk: about what was said in it, whatever was said before.

use super::*;
use llm_do::journal::blobs::Blobs;
use llm_do::journal::file::{Durability, JournalSettings, NewRun};
use llm_do::journal::record::RunIdentity;
use llm_do::message::{Arguments, Message, ReplyPart};

/// A turn with less than this may take a little more: for each request with its calls, since every record has a key, a
/// digest of its request and a mac, however little was said.
const SMALL: u64 = 8 * 1024;
const SLACK: u64 = 1024;

/// The bytes of what was said in messages: words, arguments and results. What is said to an agent and what it answers
/// are also messages of a conversation of its own.
fn said(messages: &[Message]) -> u64 {
    let content = |content: &Content| match content {
        Content::Text { text } => text.len(),
        Content::Value { json } => json.len(),
        Content::Attachment(file) => file.data.len(),
    };
    let part = |part: &ReplyPart| match part {
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.text.len(),
        ReplyPart::Thinking(part) => part.text.len(),
        ReplyPart::ServerTool(_) => 0,
        ReplyPart::ToolCall(call) => match &call.arguments {
            Arguments::Object(json) => (json.get().len() + call.tool.len()) * conversations(&call.tool),
            Arguments::Malformed(text) => text.len(),
        },
    };
    let bytes = |message: &Message| -> usize {
        match message {
            Message::User(message) => message.parts.iter().map(content).sum(),
            Message::Assistant(reply) => reply.parts.iter().map(part).sum(),
            Message::Tool(message) => {
                let outcome = |outcome: &Result<Vec<Content>, String>| match outcome {
                    Ok(parts) => parts.iter().map(content).sum::<usize>(),
                    Err(reason) => reason.len(),
                };
                message.parts.iter().map(|result| outcome(&result.outcome) * conversations(&result.tool)).sum()
            }
        }
    };
    messages.iter().map(bytes).sum::<usize>() as u64
}

fn conversations(tool: &str) -> usize {
    if tool == "child" { 2 } else { 1 }
}

fn on_disk(path: &std::path::Path) -> u64 {
    let inside = || std::fs::read_dir(path).map(|entries| entries.map(|entry| on_disk(&entry.unwrap().path())).sum());
    if path.is_dir() { inside().unwrap() } else { path.metadata().map_or(0, |metadata| metadata.len()) }
}

/// The last word of what was heard decides what happens.
const CHAT: &str = "
- {agent: child, say: 'The child says: {{ heard }}', usage: {input: 700, output: 30}}
- {tool: bytes, say: 'Read: {{ result }}', usage: {input: 900, output: 30}}
- {tool: look, say: 'Looked: {{ result }}', usage: {input: 900, output: 30}}
- {tool: child, say: 'Heard: {{ result }}', usage: {input: 900, output: 30}}
- {heard: look, call: {look: {amount: 1}}, usage: {input: 800, output: 20}}
- {heard: small, call: {bytes: {count: 500}}, usage: {input: 800, output: 20}}
- {heard: large, call: {bytes: {count: 20000}}, usage: {input: 800, output: 20}}
- {heard: child, call: {child: {input: 'what was said so far, in a few words'}}, usage: {input: 800, output: 20}}
- {say: 'You said: {{ heard }}', usage: {input: 655, output: 34}}
";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Count {
    count: usize,
}

#[tokio::test]
async fn a_turn_takes_about_as_much_on_the_disk_as_was_said_in_it() {
    let desk = Desk::new(CHAT, &[("main", "entry: true\ntools: [look, bytes]\ntoolsets: [child]"), ("child", "")]);
    let home = desk.files.path().join("kept");
    std::fs::create_dir(&home).unwrap();
    let (key, blobs) = (Some(key()), Some(Blobs::at(home.join("blobs"))));
    let settings = JournalSettings { key, blobs, durability: Durability::Written, ..JournalSettings::default() };
    let run = NewRun::of(RunIdentity::default(), &"header");
    let engine = Arc::new(FileJournal::begin(&home.join("journal"), run, settings).unwrap());
    let bytes = |count: Count| async move { Ok::<_, String>("some words \"and\" more\n".repeat(count.count / 22)) };
    let project = desk.project().tool(Tool::new(bytes).named("bytes").repeatable().verdict(Rule::Allow));
    let program = project.link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
    let runtime = Runtime::new(program, Models::default(), RuntimeConfig::new(Approvals::unattended()));
    let runtime = runtime.identified("the run".to_owned()).recorded_by(engine, PriorSpending::default());
    let mut entry = runtime.open_entry().await.unwrap();
    let long = "A sentence that somebody has typed, with \"quotes\" in it.\n".repeat(200);
    let turns =
        ["begin", "hi", "look", "small", "large", "child", &long, "hi", "small", "child", "look", "large", "hi"];
    let (mut before, mut heard, mut sent, mut report) = (0, 0, 0, Vec::new());
    for (number, words) in turns.into_iter().enumerate() {
        entry.turn(words).await.unwrap();
        let (now, messages) = (on_disk(&home), entry.history());
        let (new, taken) = (said(&messages[heard..]), now - before);
        (before, heard) = (now, messages.len());
        let requests = runtime.usage().total.requests - sent;
        sent += requests;
        let allowed = new * 13 / 10 + if new < SMALL { SLACK * requests } else { 0 };
        report.push(format!(
            "{:>6}: {requests} requests, {new} bytes were said, {taken} are on the disk, {allowed} may be",
            words.get(..6).unwrap_or(words)
        ));
        // What requests are made of stands once a run, with the first turn.
        assert!(number == 0 || taken <= allowed, "{report:#?}");
    }
    entry.close().await;
    println!("{}", report.join("\n"));
}
