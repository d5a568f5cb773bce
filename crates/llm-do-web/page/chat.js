// Chat: a conversation that is kept, with the commands of the terminal.

import { get, listen, post } from "./api.js";
import { ago, count, h, lastName, long, money, replace, say } from "./dom.js";
import { markdown } from "./markdown.js";
import { dropzone } from "./project.js";
import { question } from "./question.js";
import { pill } from "./runs.js";

const HELP = [["/help", "this list"], ["/model [NAME]", "another model from now on; alone: which one answers"], ["/undo", "forget the last turn; changed files stay changed"], ["/retry [MODEL]", "forget the last turn and say it again"], ["/clear", "forget everything that was said: another run begins"], ["/compact [FOCUS]", "summarise old turns now, and keep what is about FOCUS"], ["/save [FILE]", "the chat as Markdown into a file"], ["/show N", "the result of the N-th call, whole"], ["/approvals [forget N|all]", "what you allowed until the chat is closed; ask again"], ["/tools", "what the agent can call, and what asks, as of now"], ["/cost", "tokens and money so far, by model"], ["/think", "show what the model thinks, or hide it again"], ["/runs", "all runs"], ["/exit", "close the chat here"]];
const SAME = { "/usage": "/cost", "/quit": "/exit", exit: "/exit", quit: "/exit" };

export async function view(main, [id], context) {
  if (!id) return list(main, context);
  let run = null, text = "", thought = "", stopped = false, asked = [], calls = [], made = [], isThinking = false;
  const ended = new AbortController();
  const talk = h("div", { class: "talk", role: "log", "aria-label": "Conversation" }), open = h("div"), live = h("div", { class: "talk" }), state = h("div", { class: "row" }), title = h("h1", {}, "Chat");
  const area = h("textarea", { rows: 3, placeholder: "Say something (Ctrl-Enter sends, /help lists commands)", "aria-label": "Message" });
  const drop = dropzone();
  const stop = h("button", { type: "button", class: "bad", onclick: () => post(`/api/runs/${id}/cancel`).catch((trouble) => say(trouble.words)) }, "Stop");
  const send = h("button", { class: "main", type: "submit" }, "Send");
  const form = h("form", { class: "fields next", onsubmit: (event) => { event.preventDefault(); submit(); } }, area, drop.box, h("div", { class: "row" }, send, stop));
  replace(main, h("div", { class: "head" }, title, h("span", { class: "spacer" }), state), talk, live, open, form);
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); } });

  const words = (part) => part.text?.text ?? part.text ?? (part.attachment ? `[${part.attachment.name}]` : part.value?.json ?? "");
  function shown(message) {
    const [kind, body] = Object.entries(message)[0];
    const of = message.role ? message : body;
    const role = (message.role ?? kind).toLowerCase();
    const parts = of.parts ?? [];
    if (role === "user") return said("you", h("div", { class: "body" }, long(parts.map(words).join("\n"), 3000)), "user");
    if (role === "assistant") {
      const texts = parts.map((part) => part.type === "text" ? part.text : part.text?.text ?? (typeof part.text === "string" && part.type !== "thinking" ? part.text : "")).filter(Boolean).join("\n\n");
      const tools = parts.map((part) => part.tool_call ?? (part.type === "tool_call" ? part : null)).filter(Boolean);
      return said(run.entry, [texts ? markdown(texts) : null, tools.map((call) => h("div", { class: "calls" }, `${made.push(call)} ${call.tool} ${typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments)}`.slice(0, 300)))], "assistant");
    }
    return null;
  }
  const said = (who, body, kind) => h("div", { class: `message ${kind}` }, h("div", { class: "who" }, who), body);

  function drawLive() {
    replace(live, (run?.busy && !run.waiting.length) || text ? said(run?.entry ?? "", [isThinking && thought ? h("p", { class: "thought" }, thought) : null, text ? markdown(text) : h("p", { class: "dim" }, "…"), calls.slice(-8).map((call) => h("div", { class: "calls" }, call))], "assistant") : null);
  }
  // One at a time: what was asked for earlier must not be drawn later.
  let loading = false, again = false;
  async function load() {
    if (loading) { again = true; return; }
    loading = true;
    again = false;
    try { await draw(); } finally { loading = false; }
    if (again && !stopped) later();
  }
  async function draw() {
    const found = await get(`/api/runs/${id}?messages=true`);
    if (stopped) return;
    const before = run?.turns, known = run?.messages?.length;
    run = found;
    // What is recorded by now stands among the messages.
    if (known !== undefined && run.messages?.length !== known) { text = ""; thought = ""; calls = []; }
    replace(title, `Chat with ${lastName(run.project)} › ${run.entry}`);
    replace(state, pill(run.waiting.length ? "waits" : run.busy ? "running" : run.own ? "open" : run.state), h("span", { class: "dim small" }, `${run.turns ?? 0} ${run.turns === 1 ? "turn" : "turns"} · ${money(run.usage.cost_usd)}`), h("a", { href: `#/run/${id}` }, "calls"));
    made = [];
    replace(talk, (run.messages ?? []).map(shown), run.messages?.length ? null : h("p", { class: "dim" }, "Nothing was said yet."));
    if (!run.busy) { text = ""; thought = ""; calls = []; }
    drawLive();
    stop.hidden = !run.busy;
    if (run.state === "running") start();
    send.disabled = run.busy || context.me.read_only || !run.served_as;
    if (!run.served_as) replace(open, h("p", { class: "note" }, "Go on with it: ", h("code", {}, run.command)));
    else await drawQuestions();
    if (before !== run.turns) main.lastElementChild?.scrollIntoView({ block: "end" });
  }
  async function drawQuestions() {
    const all = run.waiting.length ? (await get("/api/questions")).questions.filter((one) => one.run === run.id) : [];
    if (all.length === asked.length && all.every((one, at) => one.digest === asked[at].digest)) return;
    asked.forEach((one) => one.leave());
    asked = all.map((one) => question(one, () => later(0), true));
    replace(open, asked.map((one) => one.box));
  }
  let soon;
  const later = (ms = 120) => { clearTimeout(soon); soon = setTimeout(() => load().catch(context.trouble), ms); };
  async function submit() {
    const line = area.value.trim(), first = line.split(/\s/)[0];
    if (!line && !drop.files.length) return;
    // A path is text, and so is what begins with a space.
    const isCommand = !line.includes("\n") && !/^\s/.test(area.value) && (first.startsWith("/") && first.lastIndexOf("/") === 0 || SAME[line]);
    try {
      if (isCommand) { area.value = ""; await command(line); return; }
      if (send.disabled) { say(run.busy ? "wait for the end of the turn, or stop it" : "nothing can be said here"); return; }
      send.disabled = true;
      await post(`/api/runs/${id}/turns`, { input: line, attachments: drop.files });
      area.value = ""; drop.clear(); text = "";
      start();
    } catch (trouble) { say(trouble.words); }
    later(0);
  }
  async function command(line) {
    const [typed, ...rest] = line.split(/\s+/), name = SAME[typed] ?? typed, argument = rest.join(" ");
    const tell = (...body) => replace(open, h("div", { class: "card" }, body));
    const last = () => [...(run.messages ?? [])].reverse().map((message) => message.user ?? (message.role === "user" ? message : null)).find(Boolean);
    if (name === "/help") tell(h("dl", {}, HELP.map(([key, what]) => h("div", {}, h("code", {}, key), ` – ${what}`))));
    else if (name === "/model") { const found = await post(`/api/runs/${id}/change`, argument ? { model: { model: argument } } : { look: {} }); say(`the model is ${found.model}`); }
    else if (name === "/undo") { const { undone } = await post(`/api/runs/${id}/change`, { undo: {} }); say(undone ? "the last turn is forgotten" : "there is no turn to forget"); later(0); }
    else if (name === "/retry") {
      const before = last();
      if (!before) { say("there is no turn to repeat"); return; }
      await post(`/api/runs/${id}/change`, { undo: {} });
      if (argument) await post(`/api/runs/${id}/change`, { model: { model: argument } });
      await post(`/api/runs/${id}/turns`, { input: before.parts.map(words).join("\n") });
      start(); later(0);
    } else if (name === "/compact") {
      const { compacted } = await post(`/api/runs/${id}/change`, { compact: { focus: argument || null } });
      say(compacted ? `compacted: about ${count(compacted.after)} tokens go with the next message, ${count(compacted.before)} did before` : "there is nothing to summarise yet: the last turn stays as it is");
      later(0);
    } else if (name === "/save") save(argument || `${run.entry}-${id}.md`);
    else if (name === "/show") {
      const call = made[Number(argument) - 1];
      if (!call) { say(made.length ? `calls have the numbers 1 to ${made.length}` : "nothing was called yet"); return; }
      const result = (run.messages ?? []).flatMap((message) => message.parts ?? []).find((part) => part.type === "tool_result" && part.id === call.id);
      tell(h("h2", {}, `${argument} ${call.tool}`), result ? long((result.content ?? []).map((part) => part.text ?? part.json ?? part.name ?? JSON.stringify(part)).join("\n") || result.error || "") : h("p", { class: "dim" }, "there is no result"));
    } else if (name === "/approvals") await approvals(rest, tell);
    else if (name === "/think") { isThinking = !isThinking; say(isThinking ? "what the model thinks is shown, if its provider tells it" : "what the model thinks is not shown any more"); drawLive(); }
    else if (name === "/cost") {
      const models = new Map();
      for (const { kind, name: model, usage } of run.timeline.rows) if (kind === "request" && usage) {
        const sum = models.get(model) ?? { in: 0, out: 0, usd: 0 };
        models.set(model, { in: sum.in + usage.input_tokens, out: sum.out + usage.output_tokens, usd: sum.usd === null || usage.cost_usd === null ? null : sum.usd + usage.cost_usd });
      }
      const all = ["in all", { in: run.usage.input_tokens, out: run.usage.output_tokens, usd: run.usage.cost_usd }];
      tell(h("dl", {}, [...models, all].map(([model, sum]) => h("div", {}, h("b", {}, model), ` – ${count(sum.in)} tokens in, ${count(sum.out)} out, ${money(sum.usd)}`))));
    } else if (name === "/tools") {
      const found = await get(`/api/projects/${encodeURIComponent(run.served_as)}/check`), granted = await allowed();
      const tools = (found.agents ?? []).find((agent) => agent.name === run.entry)?.tools ?? [];
      const isGranted = (tool) => granted.some((grant) => grant.agent === run.entry && grant.tool === tool.name && !grant.only);
      tell(tools.length ? h("dl", {}, tools.map((tool) => h("div", {}, h("code", {}, tool.name), " – ", isGranted(tool) ? "allowed until the chat is closed" : tool.commands ? tool.commands.map((one) => `${one.verdict} ${one.pattern}`).join("; ") : (tool.verdict ?? "").replace("_", " ")))) : h("p", {}, "no tools"));
    }
    else if (name === "/runs") location.hash = "#/runs";
    else if (name === "/clear") { await post(`/api/runs/${id}/close`); const { run: next } = await post("/api/runs", { project: run.served_as, agent: run.entry, chat: true }); location.hash = `#/chat/${next}`; }
    else if (name === "/exit") { await post(`/api/runs/${id}/close`); location.hash = "#/runs"; }
    else say(`there is no command ${name}; /help lists them`);
  }
  /** What is not asked about again; nothing of a chat that is not open here. */
  const allowed = async () => { try { return (await get(`/api/runs/${id}/session`)).granted; } catch (trouble) { if (trouble.status === 409) return []; throw trouble; } };
  async function approvals(words, tell) {
    if (words[0] === "forget" && (words[1] === "all" || Number(words[1]) > 0)) {
      const { forgotten } = await post(`/api/runs/${id}/forget`, words[1] === "all" ? {} : { number: Number(words[1]) });
      say(forgotten ? "it is asked about again" : "nothing was allowed");
    } else if (words.length) say("it is /approvals [forget N|all]");
    else {
      const granted = await allowed();
      tell(granted.length ? h("ol", { class: "said" }, granted.map((grant) => h("li", {}, `${grant.agent} › ${grant.tool} ${grant.only ? `only ${grant.only}` : "with any arguments"}`))) : h("p", {}, "Nothing was allowed for this session; lasting rules are listed by ", h("code", {}, "llm-do policy")));
    }
  }
  /** The chat as Markdown, as a file that the browser saves. */
  function save(file) {
    const title = (message) => message.role === "user" ? "you" : run.entry;
    const told = (run.messages ?? []).filter((message) => ["user", "assistant"].includes(message.role)).map((message) => {
      const parts = (message.parts ?? []).map((part) => part.type === "tool_call" ? `- \`${part.tool}\` \`${JSON.stringify(part.arguments)}\`` : part.type === "thinking" ? "" : words(part));
      return `## ${title(message)}\n\n${parts.filter(Boolean).join("\n\n")}\n`;
    });
    const link = h("a", { download: file, href: URL.createObjectURL(new Blob([told.join("\n")], { type: "text/markdown" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`saved as ${file}, where your browser puts files`);
  }
  let listening = false, isApart = false;
  async function start() {
    if (listening || stopped) return;
    listening = true;
    await listen(`/api/runs/${id}/events`, (name, data) => {
      if (name === "event" && data.type === "text_delta") { if (data.depth === 0) { text += (isApart && text ? "\n\n" : "") + data.text; isApart = false; drawSoon(); } return; }
      if (name === "event" && data.type === "thinking_delta") { if (data.depth === 0) { thought += data.text; if (isThinking) drawSoon(); } return; }
      if (name === "event" && (data.depth > 0 || ["tool_called", "tool_refused"].includes(data.type))) isApart = true;
      if (name === "event" && data.type === "tool_called") { calls.push(`${data.tool} ${JSON.stringify(data.arguments)}`.slice(0, 200)); drawSoon(); return; }
      if (name === "event" && data.type === "call_started" && data.depth === 0) { text = ""; thought = ""; }
      if (["question", "answered", "answer", "waits", "failed", "changed", "end"].includes(name)) later();
      if (name === "failed") say(data.message);
    }, ended.signal);
    listening = false;
  }
  let drawing = false;
  const drawSoon = () => { if (!drawing) { drawing = true; requestAnimationFrame(() => { drawing = false; if (run?.busy) drawLive(); }); } };
  await load();
  start();
  area.focus();
  return {
    title: "Chat",
    leave() { stopped = true; ended.abort(); clearTimeout(soon); asked.forEach((one) => one.leave()); },
    key: (key) => asked.length ? asked[0].act(key, true) : false,
    keys: [["Ctrl-Enter", "send"], ["y s t a e n", "answer the question"]],
  };
}

async function list(main, context) {
  const { runs } = await get("/api/runs");
  const chats = runs.filter((run) => run.kind === "chat");
  const begin = async (project) => {
    try { const { run } = await post("/api/runs", { project, chat: true }); location.hash = `#/chat/${run}`; }
    catch (trouble) { say(trouble.words); }
  };
  replace(main, h("div", { class: "head" }, h("h1", {}, "Chats"), h("span", { class: "spacer" }), context.me.read_only ? null : context.me.projects.map((project) => h("button", { onclick: () => begin(project) }, `New chat with ${project}`))),
    chats.length ? h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": "Chats" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Chat"), h("th", { scope: "col", class: "number" }, "Turns"), h("th", { scope: "col", class: "number" }, "When"), h("th", { scope: "col", class: "number" }, "Cost"))), h("tbody", {}, chats.map((chat) => h("tr", {}, h("td", {}, h("a", { class: "name", href: `#/chat/${chat.id}` }, `${lastName(chat.project)} › ${chat.entry}`), h("div", { class: "id" }, chat.id)), h("td", { class: "number" }, chat.turns ?? 0), h("td", { class: "number dim" }, ago(chat.at)), h("td", { class: "number" }, money(chat.cost))))))) : h("div", { class: "empty" }, h("p", {}, "No chat is kept yet.")));
  return { title: "Chats", leave() {}, key: () => false, keys: [] };
}
