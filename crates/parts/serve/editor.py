"""The Python SDK of ACP as an editor: a turn, a permission, a session that is loaded again. editor.py PROGRAM PROJECT"""

import asyncio
import os
import sys

import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse


class Editor:
    said = ""

    async def session_update(self, session_id, update, **_):
        if getattr(update, "session_update", "") == "agent_message_chunk":
            self.said += update.content.text

    async def request_permission(self, options, session_id, tool_call, **_):
        once = next(option for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=once.option_id))

    def on_connect(self, conn):
        pass


async def main() -> None:
    program, project = sys.argv[1:]
    editor, here = Editor(), os.getcwd()
    words = [program, "serve", "--acp", project]

    async def said(agent, session, text):
        editor.said = ""
        ended = await agent.prompt(prompt=[acp.text_block(text)], session_id=session)
        print(ended.stop_reason, editor.said)

    async with acp.spawn_agent_process(editor, *words, env=dict(os.environ)) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = (await agent.new_session(cwd=here, mcp_servers=[])).session_id
        await said(agent, session, "hello")
        await said(agent, session, "write it")
    editor.said = ""
    async with acp.spawn_agent_process(editor, *words, env=dict(os.environ)) as (agent, _):
        await agent.initialize(protocol_version=1)
        await agent.load_session(cwd=here, session_id=session, mcp_servers=[])
        print("again", "You said hello" in editor.said)
        await said(agent, session, "goodbye")


asyncio.run(main())
