//! `llm-do serve --acp`, as an editor speaks with it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::mcp::{desk, newest};
use crate::support::Sandbox;

struct Editor {
    client: Client,
}

impl Editor {
    fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let words = [&["serve", "--acp", "desk"], flags].concat();
        let mut editor = Self { client: Client::of(sandbox.command(&words, &[])) };
        let welcome = editor
            .client
            .result("initialize", &json!({"protocolVersion": 9, "clientInfo": {"name": "ed", "version": "1"}}));
        assert_eq!(
            (&welcome["protocolVersion"], &welcome["agentCapabilities"]["loadSession"]),
            (&json!(1), &json!(true))
        );
        editor
    }

    #[track_caller]
    fn open(&mut self, sandbox: &Sandbox) -> String {
        let begun = self.client.result("session/new", &json!({"cwd": sandbox.path(), "mcpServers": []}));
        let options = begun["configOptions"].as_array().unwrap();
        assert_eq!(options.iter().map(|option| &option["id"]).collect::<Vec<_>>(), ["model", "agent", "approval"]);
        begun["sessionId"].as_str().unwrap().to_owned()
    }

    fn say(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.client.ask("session/prompt", &prompt)
    }

    /// Why the turn stopped, and what was told until then.
    #[track_caller]
    fn ended(&mut self, turn: u64) -> (String, Vec<Value>) {
        let answer = self.client.answer(turn);
        let told = std::mem::take(&mut self.client.heard);
        let updates = told.into_iter().filter(|told| told["method"] == "session/update");
        let reason = answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (reason, updates.map(|told| told["params"]["update"].clone()).collect())
    }

    #[track_caller]
    fn turn(&mut self, session: &str, text: &str) -> (String, Vec<Value>) {
        let turn = self.say(session, text);
        self.ended(turn)
    }

    #[track_caller]
    fn permit(&mut self, option: &str) {
        let asked = self.client.request("session/request_permission");
        assert!(asked["params"]["options"].as_array().unwrap().iter().any(|it| it["optionId"] == "no"), "{asked}");
        self.client.decide(&asked, &json!({"outcome": {"outcome": "selected", "optionId": option}}));
    }
}

fn said(updates: &[Value]) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
}

#[test]
fn a_session_is_a_kept_chat_that_editors_and_terminals_go_on_with() {
    let sandbox = desk();
    let mut editor = Editor::start(&sandbox, &[]);
    let session = editor.open(&sandbox);
    assert_eq!(sandbox.runs(), Vec::<String>::new(), "nothing begins before the first prompt");
    let (reason, updates) = editor.turn(&session, "one");
    assert_eq!((reason.as_str(), said(&updates).as_str()), ("end_turn", "You said one"));
    assert!(updates.iter().any(|update| update["sessionUpdate"] == "usage_update"), "{updates:?}");
    assert_eq!(sandbox.runs(), std::slice::from_ref(&session), "the session has the id of its run");
    editor.client.ends_well();
    let run = newest(&sandbox);
    assert_eq!((&run["kind"], &run["turns"]), (&json!("acp"), &json!(1)));
    let chat = sandbox.run(&["chat", "desk", "two", "--continue", &session, "--no-stdin"]);
    assert!(chat.stdout.contains("You said two"), "{chat:?}");

    let mut editor = Editor::start(&sandbox, &[]);
    let listed = editor.client.result("session/list", &json!({}));
    assert_eq!(
        (&listed["sessions"][0]["sessionId"], &listed["sessions"][0]["title"]),
        (&json!(session), &json!("one"))
    );
    let place = json!({"sessionId": session, "cwd": sandbox.path(), "mcpServers": []});
    editor.client.result("session/load", &place);
    let told = std::mem::take(&mut editor.client.heard);
    let told: Vec<Value> = told.into_iter().map(|told| told["params"]["update"].clone()).collect();
    assert_eq!(said(&told), "You said oneYou said two");
    assert_eq!(told.iter().filter(|update| update["sessionUpdate"] == "user_message_chunk").count(), 2);
    assert_eq!(said(&editor.turn(&session, "three").1), "You said three");
    let mut other = Editor::start(&sandbox, &[]);
    assert_eq!(other.client.error("session/load", &place)["code"], -32001, "it is open elsewhere");
    other.client.ends_well();
    editor.client.result("session/close", &json!({"sessionId": session}));
    editor.client.result("session/resume", &place);
    assert!(editor.client.heard.is_empty(), "what was said is not told again");
    assert_eq!(said(&editor.turn(&session, "four").1), "You said four");
    editor.client.result("session/delete", &json!({"sessionId": session}));
    assert_eq!(sandbox.runs(), Vec::<String>::new());
    assert_eq!(editor.client.error("session/load", &place)["code"], -32602);
    editor.client.ends_well();
}

#[test]
fn a_permission_is_asked_of_the_client_and_anything_but_a_yes_is_no() {
    let sandbox = desk();
    let mut editor = Editor::start(&sandbox, &[]);
    let session = editor.open(&sandbox);
    let turn = editor.say(&session, "write it");
    editor.permit("no");
    let (_, updates) = editor.ended(turn);
    assert!(updates.iter().any(|update| update["status"] == "failed"), "{updates:?}");
    assert!(!sandbox.path().join("out.txt").exists());
    let turn = editor.say(&session, "write it");
    let asked = editor.client.request("session/request_permission");
    editor.client.decide(&asked, &json!({"outcome": {"outcome": "cancelled"}}));
    editor.ended(turn);
    assert!(!sandbox.path().join("out.txt").exists());
    let turn = editor.say(&session, "write it");
    editor.permit("tool");
    let (reason, updates) = editor.ended(turn);
    assert_eq!(reason, "end_turn");
    let calls: Vec<&Value> = updates.iter().filter(|update| update["sessionUpdate"] == "tool_call").collect();
    assert_eq!((&calls[0]["title"], &calls[0]["status"]), (&json!("main › write_file out.txt"), &json!("in_progress")));
    assert!(
        updates.iter().any(|it| it["sessionUpdate"] == "tool_call_update" && it["status"] == "completed"),
        "{updates:?}"
    );
    assert_eq!(std::fs::read_to_string(sandbox.path().join("out.txt")).unwrap(), "hi");
    let (_, updates) = editor.turn(&session, "twice");
    assert!(updates.iter().any(|update| update["status"] == "completed"), "the tool was allowed for the session");
    editor.client.ends_well();
}

#[test]
fn what_always_asks_is_not_put_to_an_editor_and_a_cancelled_turn_ends() {
    let sandbox = desk();
    for (flags, words) in [(&[][..], "protected"), (&["--answers", "here"], "write it")] {
        let mut editor = Editor::start(&sandbox, flags);
        let session = editor.open(&sandbox);
        let turn = editor.say(&session, words);
        loop {
            let told = editor.client.request("session/update");
            let text = told["params"]["update"]["content"]["text"].as_str().unwrap_or_default().to_owned();
            if text.contains("llm-do inbox approve") {
                break;
            }
        }
        editor.client.send(json!({"method": "session/cancel", "params": {"sessionId": session}}));
        let (reason, _) = editor.ended(turn);
        assert_eq!(reason, "cancelled");
        assert!(editor.client.heard.iter().all(|it| it["method"] != "session/request_permission"));
        assert_eq!(said(&editor.turn(&session, "hello").1), "You said hello", "the session goes on");
        editor.client.ends_well();
    }
    assert!(!sandbox.path().join("out.txt").exists());
}

#[test]
fn a_session_of_a_killed_agent_is_loaded_again() {
    let sandbox = desk();
    let mut editor = Editor::start(&sandbox, &[]);
    let session = editor.open(&sandbox);
    let place = json!({"sessionId": session, "cwd": sandbox.path(), "mcpServers": []});
    for round in 0..20 {
        let words = format!("step {round}");
        assert_eq!(said(&editor.turn(&session, &words).1), format!("You said {words}"));
        if round % 4 == 3 {
            editor.say(&session, "write it");
            editor.client.request("session/request_permission");
        }
        editor.client.kill(Signal::KILL);
        drop(editor.client.left());
        editor = Editor::start(&sandbox, &[]);
        editor.client.result("session/load", &place);
        let told = std::mem::take(&mut editor.client.heard);
        let told: Vec<Value> = told.into_iter().map(|told| told["params"]["update"].clone()).collect();
        assert!(said(&told).ends_with(&format!("You said {words}")), "{round}: {told:?}");
    }
    editor.client.ends_well();
    assert_eq!(sandbox.runs().len(), 1);
}

#[test]
fn a_project_that_is_not_trusted_says_so_and_mistakes_of_clients_are_errors() {
    let sandbox = desk();
    let mut command = sandbox.command(&["serve", "--acp", "desk"], &[]);
    command.env_remove("LLM_DO_TRUST");
    let mut editor = Editor { client: Client::of(command) };
    editor.client.result("initialize", &json!({"protocolVersion": 1}));
    let session = editor.open(&sandbox);
    let (reason, updates) = editor.turn(&session, "hi");
    assert_eq!(reason, "end_turn");
    assert!(said(&updates).contains("not trusted") && said(&updates).contains("--trust="), "{updates:?}");
    assert_eq!(sandbox.runs(), Vec::<String>::new());
    for (method, params) in [
        ("session/new", json!({"mcpServers": []})),
        ("session/new", json!({"cwd": "relative", "mcpServers": []})),
        ("session/prompt", json!({"sessionId": "nobody", "prompt": []})),
        ("session/prompt", json!({"sessionId": session, "prompt": [{"type": "audio"}]})),
        ("session/load", json!({"sessionId": "../../etc", "cwd": "/"})),
        ("session/set_config_option", json!({"sessionId": session, "configId": "mode", "value": "x"})),
    ] {
        assert_eq!(editor.client.error(method, &params)["code"], -32602, "{method} {params}");
    }
    assert_eq!(editor.client.error("fs/read_text_file", &json!({}))["code"], -32601);
    editor.client.ends_well();
}
