//! What the examples of the library print.

#![allow(clippy::unwrap_used, dead_code, reason = "a test; it runs the examples without their `main`")]

#[path = "../examples/agents.rs"]
mod agents;
#[path = "../examples/embed.rs"]
mod embed;
#[path = "../examples/entry.rs"]
mod entry;
#[path = "../examples/toolset.rs"]
mod toolset;

#[tokio::test]
async fn agents_as_texts_call_each_other() {
    assert_eq!(agents::run().await.unwrap(), ["The editor says: BRIEF: a long story", "main called editor"]);
}

#[tokio::test]
async fn a_tool_in_rust_serves_a_run_and_a_chat() {
    assert_eq!(embed::run().await.unwrap(), ["4 words, after 2 requests", "turn with reply 1", "turn with reply 2"]);
}

#[tokio::test]
async fn an_entry_function_asks_an_agent_only_where_it_must() {
    let lines =
        ["3 crates are on their way.", "We will call you. (A customer wants 400 crates.)", "1 request to a model"];
    assert_eq!(entry::run().await.unwrap(), lines);
}

#[tokio::test]
async fn a_toolset_in_rust_keeps_its_state_for_the_call() {
    assert_eq!(toolset::run().await.unwrap(), ["1 notes", "2 notes"]);
}
