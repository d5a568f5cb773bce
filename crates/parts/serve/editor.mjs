// The SDK of ACP as an editor: thirty turns of one session, whose agent is killed after each sixth one and loaded again.
// editor.mjs PROGRAM PROJECT
import { spawn } from 'node:child_process';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const [program, project] = process.argv.slice(2);
let said = '';
let asked = 0;
const editor = acp
  .client({ name: 'editor' })
  .onNotification('session/update', ({ params: { update } }) => {
    if (update.sessionUpdate === 'agent_message_chunk') said += update.content.text;
  })
  .onRequest('session/request_permission', ({ params: { options } }) => {
    asked += 1;
    return { outcome: { outcome: 'selected', optionId: options.find((option) => option.kind === 'allow_once').optionId } };
  });

async function started() {
  const child = spawn(program, ['serve', '--acp', project], { stdio: ['pipe', 'pipe', 'inherit'] });
  const { agent } = editor.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
  const { protocolVersion } = await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  if (protocolVersion !== 1) throw new Error(`version ${protocolVersion}`);
  return { child, agent };
}

const cwd = process.cwd();
let { child, agent } = await started();
const { sessionId } = await agent.request('session/new', { cwd, mcpServers: [] });
for (let step = 1; step <= 30; step += 1) {
  said = '';
  const words = step % 10 === 0 ? `write it ${step}` : `step ${step}`;
  const { stopReason } = await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: words }] });
  if (stopReason !== 'end_turn' || said === '') throw new Error(`${words}: ${stopReason} ${said}`);
  if (step % 6 === 0) {
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
    ({ child, agent } = await started());
    said = '';
    await agent.request('session/load', { sessionId, cwd, mcpServers: [] });
    if (!said.includes('You said step 1')) throw new Error(`not told again: ${said}`);
  }
}
const { sessions } = await agent.request('session/list', {});
console.log(sessions.length, asked);
child.stdin.end();
