// A server on the official library of the revision 2026-07-28, on stdio.
import { McpServer, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const schema = (properties) => fromJsonSchema({ type: "object", properties, required: Object.keys(properties) });

serveStdio(() => {
  const server = new McpServer({ name: "modern", version: "1" });
  server.registerTool(
    "add",
    { description: "Adds", inputSchema: schema({ a: { type: "integer" }, b: { type: "integer" } }) },
    async ({ a, b }) => ({ content: [{ type: "text", text: `${a + b}` }] }),
  );
  server.registerTool("greet", { description: "Greets", inputSchema: schema({}) }, async (_, context) => {
    const answered = context.mcpReq.inputResponses?.who;
    if (!answered) {
      const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
      const who = inputRequired.elicit({ message: "Who is it?", requestedSchema });
      return inputRequired({ inputRequests: { who }, requestState: "asked" });
    }
    const words = answered.action === "accept" ? `Hello ${answered.content.name}` : answered.action;
    return { content: [{ type: "text", text: `${words}, ${context.mcpReq.requestState()}` }] };
  });
  return server;
});
