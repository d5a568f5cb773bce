// The SDK of the newest revision as a client on stdio: lists, calls, answers a question. client-2026.mjs PROGRAM PROJECT
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [command, project] = process.argv.slice(2);
const client = new Client({ name: 'parts', version: '1' }, { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } });
let asked = 0;
client.setRequestHandler('elicitation/create', async (request) => {
  asked += 1;
  if (!request.params.message.includes('out.txt')) throw new Error(request.params.message);
  return { action: 'accept', content: { answer: 'once' } };
});
await client.connect(new StdioClientTransport({ command, args: ['serve', '--mcp', project], env: process.env, stderr: 'inherit' }));
const { tools } = await client.listTools();
console.log(tools.map((tool) => tool.name).join(' '));
const said = await client.callTool({ name: 'reader', arguments: { input: 'hello' } });
console.log(said.content[0].text);
const done = await client.callTool({ name: 'main', arguments: { input: 'write it' } });
console.log(done.isError ? 'failed' : 'done', asked);
await client.close();
