// A server on the official library of the revisions before, on stdio.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "earlier", version: "1" });
server.registerTool("add", { description: "Adds", inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => ({
  content: [{ type: "text", text: `${a + b}` }],
}));
server.registerTool("greet", { description: "Greets", inputSchema: {} }, async () => {
  const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const said = await server.server.elicitInput({ message: "Who is it?", requestedSchema });
  return { content: [{ type: "text", text: said.action }] };
});
await server.connect(new StdioServerTransport());
