use std::process::Stdio;

use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::process::Command;

use super::child::{Child, Pipes};
use super::*;

fn take_back(id: u64) -> (&'static str, RawJson) {
    ("$/cancelRequest", RawJson::of(&serde_json::json!({"id": id})))
}

fn speak(stream: DuplexStream) -> (Connection, mpsc::UnboundedReceiver<IncomingMessage>) {
    let (reader, writer) = split(stream);
    let (sender, incoming) = mpsc::unbounded_channel();
    let heard = move |message| drop(sender.send(message));
    (Connection::open(reader, writer, take_back, heard, async { "it left".to_owned() }), incoming)
}

fn pair() -> [(Connection, mpsc::UnboundedReceiver<IncomingMessage>); 2] {
    let (here, there) = duplex(1024);
    [speak(here), speak(there)]
}

async fn next_request(incoming: &mut mpsc::UnboundedReceiver<IncomingMessage>) -> RpcRequest {
    match incoming.recv().await {
        Some(IncomingMessage::Request(request)) => request,
        other => panic!("no request: {other:?}"),
    }
}

fn text(text: &str) -> RawJson {
    RawJson::of(&text)
}

#[tokio::test]
async fn both_sides_ask_and_answers_come_in_any_order() {
    let [(here, mut heard_here), (there, mut heard_there)] = pair();
    let serving = async {
        let first = next_request(&mut heard_there).await;
        let second = next_request(&mut heard_there).await;
        // Before it answers, it asks back: that is what a tool that calls an agent does.
        let why = text("?");
        let asked = there.request("why", &why);
        let answering = async { next_request(&mut heard_here).await.serve(|_, _| async { Ok(text("because")) }).await };
        let (because, ()) = tokio::join!(asked, answering);
        second.serve(|_, params| async { Ok(params) }).await;
        first.serve(|_, _| async { because }).await;
    };
    let (one, two) = (text("one"), text("two"));
    let (first, second, ()) = tokio::join!(here.request("a", &one), here.request("b", &two), serving);
    assert_eq!((first, second), (Ok(text("because")), Ok(text("two"))));
}

#[tokio::test]
async fn a_failure_keeps_its_code_its_words_and_its_data() {
    let [(here, _), (_there, mut heard)] = pair();
    let fault =
        RpcError::Told { code: -7, message: "no".to_owned(), data: Some(RawJson::parse(r#"{"b":1,"a":2}"#).unwrap()) };
    let serving = async { next_request(&mut heard).await.refuse(fault.clone()) };
    let nothing = text("");
    let (answer, ()) = tokio::join!(here.request("a", &nothing), serving);
    assert_eq!(answer, Err(fault));
}

#[tokio::test]
async fn a_request_that_is_dropped_is_taken_back_and_its_work_ends() {
    let [(here, _), (_there, mut heard)] = pair();
    let nothing = text("");
    let asked = here.request("a", &nothing);
    let request = tokio::select! {
        request = next_request(&mut heard) => request,
        _ = asked => unreachable!("nobody answers"),
    };
    // Work that never ends by itself: it returns because the request was taken back.
    request.serve(|_, _| std::future::pending()).await;
}

#[tokio::test]
async fn a_request_that_is_forgotten_is_answered_with_an_error() {
    let [(here, _), (_there, mut heard)] = pair();
    let serving = async { drop(next_request(&mut heard).await) };
    let nothing = text("");
    let (answer, ()) = tokio::join!(here.request("a", &nothing), serving);
    assert_eq!(answer, Err(RpcError::told(code::INTERNAL, "nobody waits for this any more")));
}

#[tokio::test]
async fn a_peer_that_leaves_fails_what_waits_and_what_comes_later_with_one_reason() {
    let [(here, _), (there, _)] = pair();
    let nothing = text("");
    let (waiting, ()) = tokio::join!(here.request("a", &nothing), async { drop(there) });
    assert_eq!(waiting, Err(RpcError::Gone("it left".to_owned())));
    assert_eq!(here.request("b", &nothing).await, Err(RpcError::Gone("it left".to_owned())));
    assert_eq!(here.ended().as_deref(), Some("it left"));
}

#[tokio::test]
async fn a_value_of_fifty_megabytes_passes() {
    let [(here, _), (_there, mut heard)] = pair();
    let large = text(&"é".repeat(25_000_000));
    let serving = async { next_request(&mut heard).await.serve(|_, params| async { Ok(params) }).await };
    let (answer, ()) = tokio::join!(here.request("echo", &large), serving);
    assert!(answer == Ok(large), "it comes back as it went");
}

#[tokio::test]
async fn what_is_no_message_is_noise_and_a_flood_is_refused() {
    let (mut raw, stream) = duplex(1024);
    let (_here, mut heard) = speak(stream);
    let mut lines = "hello\n\n{\"id\":99}\n[1]\n".to_owned();
    for id in 0..=MOST_REQUESTS {
        lines += &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}\n");
    }
    let writing = async {
        raw.write_all(lines.as_bytes()).await.unwrap();
        let mut refusal = String::new();
        BufReader::new(&mut raw).read_line(&mut refusal).await.unwrap();
        refusal
    };
    let hearing = async {
        let mut noise = Vec::new();
        let mut kept = Vec::new();
        while kept.len() < MOST_REQUESTS {
            match heard.recv().await.unwrap() {
                IncomingMessage::Noise(line) => noise.push(line),
                IncomingMessage::Request(request) => kept.push(request),
                IncomingMessage::Notification { method, .. } => panic!("{method}"),
            }
        }
        (noise, kept)
    };
    let (refusal, (noise, _kept)) = tokio::join!(writing, hearing);
    assert_eq!(noise, ["hello", "[1]"], "an answer that nobody waits for is not even noise");
    assert!(refusal.contains("\"id\":4096") && refusal.contains("-32000"), "{refusal}");
}

#[tokio::test]
async fn an_error_about_something_that_was_no_request_has_no_id() {
    let (mut raw, stream) = duplex(1024);
    let (here, _heard) = speak(stream);
    here.complain(RpcError::told(code::PARSE, "that is not JSON"));
    let mut line = String::new();
    BufReader::new(&mut raw).read_line(&mut line).await.unwrap();
    let expected = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"that is not JSON"}}"#;
    assert_eq!(line.trim_end(), expected);
}

fn shell(script: &str, said: impl FnMut(&str) + Send + 'static) -> (Child, Pipes) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Child::spawn(command, said).unwrap()
}

#[tokio::test]
async fn a_child_that_dies_is_named_with_its_last_words() {
    let cases = [
        ("echo 'half a thought' >&2; exit 3", "ended with exit code 3; its last words:\nhalf a thought"),
        ("kill -SEGV $$", "was killed by signal 11 (segmentation fault)"),
        ("printf '\\033[31mred' >&2", "ended with exit code 0; its last words:\n\\u{1b}[31mred"),
    ];
    for (script, reason) in cases {
        let (child, pipes) = shell(script, |_| {});
        let connection =
            Connection::open(pipes.stdout.unwrap(), pipes.stdin.unwrap(), take_back, |_| {}, child.why_ended());
        assert_eq!(connection.request("a", &text("")).await, Err(RpcError::Gone(reason.to_owned())));
    }
}

#[tokio::test]
async fn a_child_leaves_no_descendant_behind() {
    let (sender, mut said) = mpsc::unbounded_channel();
    let (child, _pipes) = shell("sleep 1000 & echo $! >&2; wait", move |line: &str| {
        let _ = sender.send(line.trim().to_owned());
    });
    assert!(said.recv().await.is_some(), "the descendant runs");
    drop(child);
    // It holds the pipe: that it closes long before the descendant's time is up is its end.
    assert_eq!(said.recv().await, None);
}

#[tokio::test]
async fn who_asks_without_listening_gets_no_more_answers() {
    let (here, there) = duplex(1024);
    let (connection, mut heard) = speak(here);
    let (_deaf, mut asking) = split(there);
    let long = "x".repeat(1024 * 1024);
    let mut refused = 0;
    for number in 0..40 {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{number}{long}\",\"method\":\"ping\"}}\n");
        asking.write_all(line.as_bytes()).await.unwrap();
        // A notification behind it tells that it was read.
        asking.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"on\"}\n").await.unwrap();
        while let IncomingMessage::Request(request) = heard.recv().await.unwrap() {
            request.refuse(RpcError::told(code::METHOD_NOT_FOUND, "no"));
            refused += 1;
        }
    }
    let unread = connection.0.unread.load(Ordering::Relaxed);
    assert!(unread < MOST_UNREAD + 2 * 1024 * 1024, "{unread}");
    assert!((16..20).contains(&refused), "{refused}");
}

#[tokio::test]
async fn a_line_that_is_longer_than_agreed_ends_the_connection() {
    let (here, mut there) = duplex(1024);
    let (reader, writer) = split(here);
    let ended = async { "it left".to_owned() };
    let connection = Connection::open_within(1024 * 1024, reader, writer, take_back, |_| {}, ended);
    let (nothing, flood) = (text(""), vec![b'x'; 2 * 1024 * 1024]);
    let answer = tokio::select! {
        answer = connection.request("a", &nothing) => answer,
        () = async {
            let _ = there.write_all(&flood).await;
            std::future::pending::<()>().await;
        } => unreachable!(),
    };
    assert_eq!(answer, Err(RpcError::Gone("it sent a message of more than 1 MiB".to_owned())));
}
