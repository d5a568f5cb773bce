//! A server that is killed while a client thinks about a question.

use rustix::process::Signal;
use serde_json::json;

use super::{Server, accept, desk, forms, text};

const KILLS: usize = 20;

#[test]
fn a_server_that_is_killed_at_a_question_loses_nothing_and_does_nothing_twice() {
    let sandbox = desk();
    for round in 0..KILLS {
        let input = format!("write it {round}");
        let _ = std::fs::remove_file(sandbox.path().join("out.txt"));
        let mut server = Server::start(&sandbox, &forms(), &[]);
        let asked = server.call("main", &input);
        assert_eq!(asked["resultType"], "input_required", "{round}: {asked}");
        server.client.kill(Signal::KILL);
        drop(server.client.left());
        let mut server = Server::start(&sandbox, &forms(), &[]);
        let retry = Server::retry("main", &input, &asked, &accept(&json!({"answer": "once"})));
        if round % 2 == 1 {
            // The answer is on its way, and so is the effect: whichever of them was reached.
            let params = server.params(retry.clone());
            server.client.ask("tools/call", &params);
            server.client.kill(Signal::KILL);
            drop(server.client.left());
            server = Server::start(&sandbox, &forms(), &[]);
        }
        let done = server.result("tools/call", retry);
        assert_eq!((&done["resultType"], &done["isError"]), (&json!("complete"), &json!(false)), "{round}: {done}");
        assert!(text(&done).starts_with("Result"), "{round}: {done}");
        assert_eq!(std::fs::read_to_string(sandbox.path().join("out.txt")).unwrap(), "hi");
        server.client.ends_well();
    }
    assert_eq!(sandbox.runs().len(), KILLS, "no call began twice");
}
