//! Code of a client that calls code of a client: as deep as it may, beside others that go on.

use crate::program::{printed, printed_with_library};
use crate::support::Sandbox;

#[test]
fn tools_of_a_client_that_call_themselves_read_an_error_and_other_scopes_go_on() {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", "- {agent: digger, tool: dig, say: '{{ result }}'}\n- {agent: digger, call: {dig: {left: 10000}}}\n- {say: 'still here'}\n");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import AgentSpec, CallFailed, Context, RunApprovalPolicy, Runtime, ToolEntry
from llm_do.runtime import CallContext

async def dig(ctx: CallContext, left: int) -> str:
    try:
        return await ctx.call("dig", {"left": left - 1})
    except CallFailed as failed:
        return f"{10_000 - left} {failed}"

def wait(ctx: CallContext, left: int) -> str:
    try:
        return ctx.call_sync("wait", {"left": left - 1})
    except CallFailed as failed:
        return f"{10_000 - left} {failed}"

digger = AgentSpec(name="digger", model="scripted:script.yaml", instructions="Dig.", tools=[dig])
other = AgentSpec(name="other", model="scripted:script.yaml", instructions="Answer.")

async def main():
    async with Runtime(run_approval_policy=RunApprovalPolicy(mode="approve_all")) as runtime:
        async with other.start(runtime) as scope:
            print(await scope.run_turn("x"))
            deep, *said = await asyncio.gather(runtime.call_agent(digger, "x"), *(scope.run_turn("x") if n == 0 else runtime.call_agent(other, "x") for n in range(3)))
            print(deep)
            print(said, await scope.run_turn("x"))
    ctx = Context([ToolEntry(tool=dig), ToolEntry(tool=wait)])
    print(await ctx.call("dig", {"left": 10_000}))
    print(await ctx.call("wait", {"left": 10_000}))

asyncio.run(main())
"#,
    );
    let lines: Vec<&str> = printed.lines().collect();
    let bound = |tool: &str, levels: u32, allowed: u32| {
        format!(
            "{levels} `{tool}` cannot call `{tool}`: {allowed} calls stand within each other, and `max_call_depth` is {allowed}"
        )
    };
    let expected = [
        "still here".to_owned(),
        bound("dig", 73, 74),
        "['still here', 'still here', 'still here'] still here".to_owned(),
        bound("dig", 75, 76),
        bound("wait", 75, 76),
    ];
    assert_eq!(lines, expected);
}

/// The library's own threads are fewer than the levels.
#[test]
fn functions_of_the_library_that_are_not_async_wait_for_each_other_too() {
    let sandbox = Sandbox::new();
    let printed = printed_with_library(
        &sandbox,
        r#"
import asyncio
from pydantic_ai import RunContext, Tool
from llm_do import CallFailed, Context, ToolEntry

def dig(ctx: RunContext[Context], left: int) -> str:
    try:
        return ctx.deps.call_sync("dig", {"left": left - 1})
    except CallFailed as failed:
        return str(10_000 - left)

print(asyncio.run(Context([ToolEntry(tool=Tool(dig))]).call("dig", {"left": 10_000})))
"#,
    );
    assert_eq!(printed, "75\n");
}
