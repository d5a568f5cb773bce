//! `fake-llm`: the provider for benchmark scripts. Serves until its standard input closes.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fake_llm::{Constant, FakeCall, FakeLlm, FakeReply, FakeScript, SeenRequest, Stats, Transport, Violation};
use serde_json::json;

/// A model provider on loopback. Prints its address, then serves until standard input closes.
#[derive(Parser)]
#[command(name = "fake-llm")]
struct FakeLlmArgs {
    /// What the model says
    #[arg(long, default_value = "Hello.")]
    text: String,

    /// Say TEXT this many times, each time as one delta of a stream
    #[arg(long, value_name = "N", default_value_t = 1)]
    deltas: usize,

    /// Say TEXT and call TOOL this many times, before TEXT alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    tool_loop: usize,

    /// Call it this many times at once, each time
    #[arg(long, value_name = "N", default_value_t = 1)]
    calls: usize,

    /// The tool to call
    #[arg(long, default_value = "noop")]
    tool: String,

    /// What to call it with: a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    arguments: String,

    /// With `--constant`: answer when N requests wait for their answers, all of them at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "constant")]
    together: usize,

    /// Neither check nor remember requests, and parse nothing of them: for measurements
    #[arg(long)]
    constant: bool,

    /// Serve TLS, and write the certificate authority to this file
    #[arg(long, value_name = "CA_OUT_FILE")]
    tls: Option<PathBuf>,

    /// Print a line of JSON with counts and violations at the end
    #[arg(long)]
    stats: bool,
}

fn main() -> ExitCode {
    match run(&FakeLlmArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If even this cannot be written, there is no other way to report the error.
            let _ = writeln!(io::stderr(), "fake-llm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &FakeLlmArgs) -> io::Result<()> {
    let fake = start(args);
    if let Some(path) = &args.tls {
        std::fs::write(path, fake.ca_pem())?;
    }
    say(&format!("listening on {}", fake.url()))?;
    wait_for_end_of_input()?;
    let violations = fake.violations();
    let stats = fake.stop();
    if args.stats { say(&in_json(stats, &violations)) } else { Ok(()) }
}

fn start(args: &FakeLlmArgs) -> FakeLlm {
    let transport = if args.tls.is_some() { Transport::Tls } else { Transport::Plain };
    let reply = FakeReply::repeated(&args.text, args.deltas);
    let step = reply.clone().and_calls(vec![FakeCall::malformed(&args.tool, &args.arguments); args.calls]);
    if args.constant {
        let answers = Constant::tool_loop(args.tool_loop, step, reply).together(args.together);
        return FakeLlm::start_on(transport, answers);
    }
    let results = args.tool_loop * args.calls;
    let call = move |seen: &SeenRequest| seen.results().count() < results;
    let script = FakeScript::new().when(call, step).otherwise(reply);
    FakeLlm::start_on(transport, script.accept_missing_key())
}

fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes())?;
    stdout.flush()
}

fn wait_for_end_of_input() -> io::Result<()> {
    let mut ignored = [0; 1024];
    while io::stdin().lock().read(&mut ignored)? > 0 {}
    Ok(())
}

fn in_json(stats: Stats, violations: &[Violation]) -> String {
    let Stats { connections, requests, bytes_in, bytes_out, peak_concurrency } = stats;
    json!({
        "connections": connections,
        "requests": requests,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "peak_concurrency": peak_concurrency,
        "violations": violations.iter().map(|violation| violation.reason.as_str()).collect::<Vec<_>>(),
    })
    .to_string()
}
