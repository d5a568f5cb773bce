//! What a command costs: started by itself, through the gate, and behind the fence. `bench/shell.sh` runs it.
//!
//!     cargo run -p llm-do --example commands -- bare|unfenced|fenced COUNT COMMAND…

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llm_do::fence::{FenceConfig, Fencing};
use llm_do::{
    Approvals, CallContext, ModelChoices, Models, Project, RawJson, Rule, Runtime, RuntimeConfig, Tool, ToolError,
};

#[derive(Clone)]
struct Order {
    count: u32,
    command: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().ok_or("which mode?")?;
    let count = arguments.next().ok_or("how often?")?.parse()?;
    let order = Order { count, command: arguments.collect() };
    let took = match mode.as_str() {
        "bare" => bare(&order).await?,
        "unfenced" => through_the_gate(order, Fencing::Off).await?,
        "fenced" => through_the_gate(order, Fencing::WhereOffered).await?,
        other => return Err(format!("no mode `{other}`").into()),
    };
    println!("{}", took.as_micros() / u128::from(count));
    Ok(())
}

/// The least that starting a command and reading its output can cost.
async fn bare(order: &Order) -> Result<Duration, Box<dyn Error>> {
    let (name, arguments) = order.command.split_first().ok_or("which command?")?;
    let program = Path::new("/usr/bin").join(name);
    let started = Instant::now();
    for _ in 0..order.count {
        let mut command = tokio::process::Command::new(&program);
        let output = command.args(arguments).stdin(Stdio::null()).output().await?;
        assert!(output.status.success());
    }
    Ok(started.elapsed())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// As an agent's code calls it.
async fn through_the_gate(order: Order, fencing: Fencing) -> Result<Duration, Box<dyn Error>> {
    let took = Arc::new(Mutex::new(Duration::ZERO));
    let told = Arc::clone(&took);
    let go = Tool::with_context("go", move |_: Nothing, cx| {
        let (order, told) = (order.clone(), Arc::clone(&told));
        Box::pin(async move {
            let duration = call_often(&order, cx).await?;
            if let Ok(mut told) = told.lock() {
                *told = duration;
            }
            Ok::<_, ToolError>("done")
        })
    });
    let project = Project::new(".")
        .agent("main.worker", "---\nname: main\ntools: [go]\ntoolsets: [shell_readonly]\n---\nGo.")
        .tool(go.verdict(Rule::Allow));
    let models = ModelChoices::scripted("- {round: 1, call: {go: {}}}\n- say: '{{ result }}'\n");
    let program = project.link(&models)?;
    let keeper = std::env::var_os("KEEPER").map(Into::into);
    let fence = FenceConfig { fencing, keeper, ..FenceConfig::default() };
    let config = RuntimeConfig { fence, ..RuntimeConfig::new(Approvals::unattended()) };
    let outcome = Runtime::new(program, Models::default(), config).run("go").await?;
    assert_eq!(outcome.output.into_text(), "done");
    Ok(*took.lock().map_err(|_| "it panicked")?)
}

async fn call_often(order: &Order, cx: &CallContext<'_>) -> Result<Duration, ToolError> {
    let command = RawJson::of(&serde_json::json!({"command": order.command.join(" ")}));
    let started = Instant::now();
    for _ in 0..order.count {
        cx.call("shell", &command).await?;
    }
    Ok(started.elapsed())
}
