//! What is sent to collectors, read with the messages of the specification: byte by byte, and example by example.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::Value;

use parts::{command, program, workplace};

#[derive(Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
}

/// A collector, and what it was sent so far.
struct Collector {
    url: String,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Received::default()));
        let shared = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&shared);
                std::thread::spawn(move || while answer(&stream, &received).is_some() {});
            }
        });
        Self { url, received }
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let resources = received.traces.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|of| &of.scope_spans).flat_map(|of| of.spans.clone()).collect()
    }

    /// The metrics as they were sent last.
    fn metrics(&self) -> Vec<Metric> {
        let received = self.received.lock().unwrap();
        let resources = received.metrics.last().into_iter().flat_map(|request| &request.resource_metrics);
        resources.flat_map(|of| &of.scope_metrics).flat_map(|of| of.metrics.clone()).collect()
    }
}

/// Nothing is in a message that the specification does not know, and it is written as others write it.
fn read<M: Message + Default>(body: &[u8]) -> M {
    let message = M::decode(body).unwrap();
    assert_eq!(message.encode_to_vec(), body, "the same bytes");
    message
}

fn answer(stream: &TcpStream, received: &Mutex<Received>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    {
        let mut received = received.lock().unwrap();
        if line.contains(" /v1/traces ") {
            received.traces.push(read(&body));
        } else {
            received.metrics.push(read(&body));
        }
    }
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}

/// Calls within each other, without their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tree(String, Vec<Tree>);

fn spans_beneath(spans: &[Span], parent: &[u8]) -> Vec<Tree> {
    let own = spans.iter().filter(|span| span.parent_span_id == parent && !span.name.starts_with("chat "));
    let mut trees: Vec<Tree> = own.map(|span| Tree(span.name.clone(), spans_beneath(spans, &span.span_id))).collect();
    trees.sort();
    trees
}

fn trace_tree(call: &Value) -> Tree {
    let operation = match call["kind"].as_str().unwrap() {
        "agent" | "function" => "invoke_agent",
        _ => "execute_tool",
    };
    let mut calls: Vec<Tree> = call["calls"].as_array().unwrap().iter().map(trace_tree).collect();
    calls.sort();
    Tree(format!("{operation} {}", call["name"].as_str().unwrap()), calls)
}

fn scripts(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scripts(&path, found);
        } else if path.ends_with("script.yaml") {
            found.push(path);
        }
    }
}

/// Every example that has a script, whatever it comes to.
#[test]
fn the_spans_of_examples_are_their_traces() {
    let place = workplace();
    let mut found = Vec::new();
    scripts(place.path(), &mut found);
    found.sort();
    let mut same = 0;
    for said in ["What is open?", "please look at the notes and tell me"] {
        for script in &found {
            let collector = Collector::start();
            let project = script.parent().unwrap();
            let mut command = command(program(), place.path());
            command.arg("run").arg(project).arg("-m").arg(format!("scripted:{}", script.display()));
            command.args(["--approve-all", "--headless", "--output-format", "json", "-q", said]);
            command.env("LLM_DO_TRUST", "1").env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
            let ended = command.stdin(Stdio::null()).output().unwrap();
            let told: Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
            let (spans, shown) = (collector.spans(), String::from_utf8_lossy(&ended.stderr).into_owned());
            // One that waits for an answer has not ended, and neither has its span.
            let waits = ended.status.code() == Some(4) && shown.contains("is needed for");
            if waits || !told["trace"].is_object() {
                let has_ended = spans.iter().any(|span| span.parent_span_id.is_empty());
                assert!(!has_ended, "{}: {shown}", script.display());
                continue;
            }
            assert_eq!(spans_beneath(&spans, &[]), [trace_tree(&told["trace"])], "{}: {shown}", script.display());
            let ids: BTreeSet<&[u8]> = spans.iter().map(|span| span.span_id.as_slice()).collect();
            assert_eq!(ids.len(), spans.len(), "{}: no span is sent twice", script.display());
            let is_known = |span: &Span| span.parent_span_id.is_empty() || ids.contains(span.parent_span_id.as_slice());
            assert!(spans.iter().all(is_known), "{}: no orphans", script.display());
            assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id), "{}: one trace", script.display());
            if spans.iter().any(|span| span.name.starts_with("chat ")) {
                let names: Vec<String> = collector.metrics().into_iter().map(|metric| metric.name).collect();
                assert!(names.contains(&"gen_ai.client.operation.duration".to_owned()), "{names:?}");
            }
            same += 1;
        }
    }
    println!("{same} runs of examples: their spans are their traces");
    assert!(same >= 20, "only {same} runs had a trace");
}
