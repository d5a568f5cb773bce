//! Python programs in trouble: cancelled, interrupted, killed, or with a server that is.

use std::process::Command;

use fake_llm::FakeLlm;

use crate::program::{command, left_in, printed};
use crate::session::KEY;
use crate::support::{Sandbox, wait_for_all};
use crate::{WRITER, sandbox, stalled};

fn asking(sandbox: &Sandbox, fake: &FakeLlm, source: &str) -> Command {
    let mut command = command(sandbox, source);
    command.env("ANTHROPIC_BASE_URL", fake.anthropic_url()).env("ANTHROPIC_API_KEY", KEY);
    command
}

#[test]
fn a_cancelled_task_cancels_its_turn() {
    let (sandbox, fake, gate) = stalled();
    let source = r#"
import asyncio
from llm_do import RunCancelled, start

async def main():
    begun = asyncio.Event()
    def listen(event):
        if event["type"] == "text_delta":
            begun.set()
    async with start("main.worker", message_callback=listen) as scope:
        turn = asyncio.create_task(scope.run_turn("a story"))
        await begun.wait()
        turn.cancel()
        try:
            await turn
        except asyncio.CancelledError:
            print("cancelled")
        print((await scope.run_turn("another")).output)

asyncio.run(main())
"#;
    let ended = wait_for_all(&mut asking(&sandbox, &fake, source));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout, "cancelled\nOnce upon a time, there was\n");
    gate.wait_until_left(1);
}

#[test]
fn a_server_that_is_killed_is_an_error_and_no_wait() {
    let (sandbox, fake, gate) = stalled();
    let source = r#"
import asyncio, os, signal
from llm_do import ServerDied, start

async def main():
    killed = []
    async def kill(event):
        if event["type"] == "text_delta" and not killed:
            killed.append(True)
            os.kill(scope._server._process.pid, signal.SIGKILL)
    try:
        async with start("main.worker", message_callback=kill) as scope:
            for attempt in range(2):
                try:
                    await scope.run_turn("a story")
                except ServerDied as error:
                    print(error.kind, error)
            await scope.run_turn("x")
    except ServerDied as error:
        print("still", error)

asyncio.run(main())
"#;
    let ended = wait_for_all(&mut asking(&sandbox, &fake, source));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let words = "llm-do is gone: it was killed by signal 9\n";
    assert_eq!(ended.stdout, format!("server {words}server {words}still {words}"));
    gate.wait_until_left(1);
}

#[test]
fn a_program_that_is_killed_takes_the_server_with_it() {
    let (sandbox, fake, gate) = stalled();
    let source = "from llm_do import run_worker\nrun_worker('main.worker', None, 'a story')\n";
    let mut child = asking(&sandbox, &fake, source).spawn().unwrap();
    gate.wait_until_reached(1);
    child.kill().unwrap();
    child.wait().unwrap();
    // Its end is what the provider sees: the request is given up.
    gate.wait_until_left(1);
}

#[test]
fn ctrl_c_in_a_program_ends_its_run() {
    let (sandbox, fake, gate) = stalled();
    let source = "from llm_do import run_worker\nrun_worker('main.worker', None, 'a story')\n";
    let child = asking(&sandbox, &fake, source).spawn().unwrap();
    gate.wait_until_reached(1);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    gate.wait_until_left(1);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.trim_end().ends_with("KeyboardInterrupt"), "{stderr}");
    assert_eq!(left_in(sandbox.path()), [0; 0]);
}

#[test]
fn a_question_whose_turn_is_cancelled_is_taken_back() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", WRITER);
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import RunCancelled, start

async def main():
    asked, left = asyncio.Event(), []
    async def callback(tool_name, payload, reason):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.append(tool_name)
    async with start("main.worker", approval_callback=callback) as scope:
        turn = asyncio.create_task(scope.run_turn("write"))
        await asked.wait()
        scope.cancel()
        try:
            await turn
        except RunCancelled as error:
            print(error.kind, error.exit_code)
        print((await scope.run_turn("hello")).output, left)

asyncio.run(main())
"#,
    );
    assert_eq!(printed, "cancelled 130\nYou said hello ['write_file']\n");
}
