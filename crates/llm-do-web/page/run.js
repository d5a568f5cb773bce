// Run: the tree of its calls, the timeline beneath it, and what each call was made of.

import { get, listen, post } from "./api.js";
import { ago, count, dialog, h, lastName, long, money, replace, rows, say, took } from "./dom.js";
import { markdown } from "./markdown.js";
import { axis, bar, hatch } from "./pictures.js";
import { question } from "./question.js";
import { pill } from "./runs.js";

/** The tree as lines: each call, and beneath it its requests and its calls in the order of time. */
function lines(run) {
  const order = new Map(), requests = new Map(), found = [];
  run.timeline.rows.forEach((row, place) => {
    if (!order.has(row.key)) order.set(row.key, place);
    if (row.kind !== "request") return;
    const of = row.key.replace(/\/m\d+$/, "");
    requests.set(of, [...(requests.get(of) ?? []), row]);
  });
  const take = (calls, depth) => {
    for (const call of calls) {
      found.push({ ...call, depth });
      const own = (requests.get(call.key) ?? requests.get(`${call.key}/t0`) ?? []).map((row, number) => ({ ...row, request: number, of: call, state: "request", depth: depth + 1 }));
      const beneath = [...own, ...(call.calls ?? [])].sort((one, other) => (order.get(one.key) ?? Infinity) - (order.get(other.key) ?? Infinity));
      for (const one of beneath) if (one.of) found.push(one); else take([one], depth + 1);
    }
  };
  take(run.calls, 0);
  return found;
}
/** What a step gave, as its record has it. */
const recorded = (record) => record?.value ?? record;
const indented = (row) => {
  const label = h("span", { class: "label dim" }, row.name);
  label.style.paddingLeft = `${Math.min(row.depth, 8) * 12}px`;
  return label;
};
const tokens = (usage) => usage && (usage.input_tokens || usage.output_tokens) ? `${count(usage.input_tokens)} → ${count(usage.output_tokens)}` : "";
const DECIDED = { variant: "by a rule", worker: "by a rule", manifest: "by a rule", yours: "by a rule", organisation: "by a rule", rule: "by a rule", approve_all: "by a flag", reject_all: "by a flag", session: "by an earlier answer", known: "by a person", person: "by a person", nobody: "nobody was there" };
/** Who decided about a call, in the words of the terminal; else what its toolset says of such calls. */
const verdictOf = (call) => call.answer ? `${call.answer.is_approved ? "approved" : "refused"}${call.answer.by ? ` by ${call.answer.by}` : ""}` : call.judged ? DECIDED[call.judged.by] ?? call.judged.verdict : "";
/** The same with what became of it, where that is not that it was done. */
const outcomeOf = (call) => [verdictOf(call), ["done", "request"].includes(call.state) || call.answer && call.state === "refused" ? "" : call.state.replace("_", " ")].filter(Boolean).join(", ");
const shown = (value) => typeof value === "string" ? value : JSON.stringify(value, null, 2);

export async function view(main, [id], context) {
  let run = null, at = -1, calls = [], wanted = null, stopped = false, text = "", isLive = false, filter = "";
  const ended = new AbortController();
  const title = h("h1", {}, "Run"), acts = h("div", { class: "row" }), facts = h("div", { class: "facts" }), open = h("div", { class: "block" }), said = h("div", { class: "block" }), detail = h("div", { class: "stick" });
  const tree = rows("Calls", 30), line = rows("Timeline", 30, 320);
  const find = h("input", { type: "search", placeholder: "Filter calls ( / )", "aria-label": "Filter calls", oninput: () => { filter = find.value.toLowerCase(); drawTree(); } });
  const timed = h("div");
  replace(main, h("svg", { class: "away", width: 0, height: 0, "aria-hidden": "true" }, hatch()), h("div", { class: "head" }, title, h("span", { class: "spacer" }), acts), facts, open, said,
    h("div", { class: "split calls-and-call" }, h("section", {}, h("div", { class: "head" }, h("h2", {}, "Calls"), h("span", { class: "spacer" }), find), tree.box, timed), h("section", { "aria-label": "The chosen call" }, detail)));

  const act = async (work, words) => {
    try { const result = await work(); if (words) say(words); if (result?.run && result.run !== id) location.hash = `#/run/${result.run}`; else { start(); load(); } }
    catch (trouble) {
      if (trouble.error?.code === "changed" && await dialog(`${trouble.message}`, [h("p", {}, trouble.error.changes.join(", "))], "Go on with it as it is now")) return act(() => post(`/api/runs/${id}/resume`, { force: true }), "the run goes on");
      say(trouble.words);
    }
  };
  const resume = async () => {
    const form = await dialog("Go on with this run", [h("p", { class: "dim" }, "What is recorded is not repeated. Limits that are given here count instead of those of the run."), h("div", { class: "two" }, h("label", {}, "At most, in USD", h("input", { name: "usd", inputmode: "decimal" })), h("label", {}, "At most so many requests", h("input", { name: "requests", inputmode: "numeric" })))], "Go on");
    if (!form) return;
    const limits = {};
    if (form.get("usd")) limits.max_cost_usd = Number(form.get("usd"));
    if (form.get("requests")) limits.max_requests = Number(form.get("requests"));
    act(() => post(`/api/runs/${id}/resume`, { limits }), "the run goes on");
  };
  const fork = async (key) => {
    const form = await dialog("Fork from here", [h("p", { class: "dim" }, "A new run that begins with what this one has recorded before this place. Files and the outside world are not rewound."), h("p", { class: "mono" }, key), h("label", {}, "Another model (provider:model)", h("input", { name: "model" }))], "Fork");
    if (form) act(() => post(`/api/runs/${id}/fork`, { at: key, ...(form.get("model") ? { model: [form.get("model")] } : {}) }));
  };

  function drawHead() {
    replace(title, `${lastName(run.project)} › ${run.entry}`);
    const buttons = [];
    if (!context.me.read_only) {
      if (run.state === "running") buttons.push(h("button", { class: "bad", onclick: () => act(() => post(`/api/runs/${id}/cancel`), "it was asked to end") }, "Stop"));
      if (["waits", "stopped", "died"].includes(run.state) && run.served_as) buttons.push(h("button", { onclick: resume }, "Go on"));
      if (run.kind === "chat") buttons.push(h("a", { class: "button", href: `#/chat/${id}` }, "Open the chat"));
    }
    // One that was stopped at its question asks it again when it goes on.
    const waits = run.waiting.length > 0 && run.state !== "stopped";
    replace(acts, pill(waits ? "waits" : run.state, waits ? run.waiting[0].tool : run.waits), buttons);
    const usage = run.usage;
    replace(facts, h("span", { class: "id" }, run.id), h("span", {}, h("span", { class: `live ${isLive ? "on" : "off"}`, "aria-hidden": "true" }), run.own ? "streams from this server" : "shown from its record"),
      h("span", {}, "begun ", h("b", {}, ago(run.begun)), run.begun_by ? ` by ${run.begun_by}` : ""), h("span", {}, h("b", {}, money(usage.cost_usd))), h("span", {}, h("b", {}, usage.requests), ` ${usage.requests === 1 ? "request" : "requests"}`), h("span", {}, h("b", {}, `${count(usage.input_tokens)} → ${count(usage.output_tokens)}`), " tokens"),
      run.label ? h("span", {}, "label ", h("b", {}, run.label)) : null, run.forked ? h("span", {}, "fork of ", h("a", { href: `#/run/${run.forked.run}` }, run.forked.run)) : null,
      !run.served_as && ["waits", "stopped", "died"].includes(run.state) ? h("span", {}, "go on with ", h("code", {}, run.command)) : null);
  }
  function drawSaid() {
    const answer = run?.answer ?? null;
    replace(said, answer !== null ? h("div", { class: "card" }, h("h2", {}, "Answer"), typeof answer === "string" ? markdown(answer) : long(shown(answer))) : text ? h("div", { class: "card" }, h("h2", {}, "Says"), markdown(text)) : null);
  }
  function drawTree() {
    calls = lines(run).filter((call) => !filter || !call.of && `${call.name} ${call.key} ${call.state} ${verdictOf(call)} ${JSON.stringify(call.input ?? "")}`.toLowerCase().includes(filter));
    at = calls.findIndex((call) => call.key === wanted);
    const times = new Map(run.timeline.rows.filter((row) => row.kind !== "person").map((row) => [row.key, row.took]));
    tree.set(calls, (call, place) => {
      const outcome = outcomeOf(call);
      const element = h("button", { class: place === at ? "line at" : "line", onclick: () => choose(place), "aria-pressed": place === at ? "true" : "false" },
        h("span", { class: `dot ${call.state}`, "aria-hidden": "true" }),
        call.of ? h("span", { class: "what dim" }, call.name) : h("span", { class: "what" }, h("b", {}, call.name), " ", h("span", { class: "args" }, shown(call.input ?? "").replace(/\s+/g, " ").slice(0, 120))),
        call.of ? null : h("span", { class: `meta outcome${call.state === "done" ? " wide-only" : ""}`, title: outcome || null }, outcome),
        h("span", { class: "meta tokens wide-only" }, tokens(call.usage)), h("span", { class: "meta figure" }, took(call.of ? call.took : call.duration_ms ?? times.get(call.key))), h("span", { class: "meta figure" }, call.usage?.requests ? money(call.usage.cost_usd) : ""));
      element.style.paddingLeft = `${12 + Math.min(call.depth, 12) * 16}px`;
      return element;
    });
    const timeline = run.timeline;
    replace(timed, timeline.rows.length ? [h("div", { class: "head second" }, h("h2", {}, "Timeline"), h("span", { class: "spacer" }), axis(timeline)), line.box] : null);
    line.set(timeline.rows, (row) => {
      const element = h("button", { class: "line", tabindex: "-1", title: `${row.name}: ${took(row.took)}`, onclick: () => choose(calls.findIndex((call) => call.key === row.key)) },
        indented(row), bar(row), h("span", { class: "meta" }, took(row.took)));
      return element;
    });
  }
  /** What is shown of a call, as long as nothing new is known of it. */
  const told = (call) => JSON.stringify([call.key, call.state, call.usage?.requests, call.duration_ms, call.answer]);
  let drawn = "";
  async function choose(place) {
    const call = calls[place];
    if (!call) return;
    at = place;
    wanted = call.key;
    tree.reveal(at);
    await tell(call);
  }
  async function tell(call) {
    drawn = told(call);
    try {
      const whole = call.of ?? call;
      const all = await get(`/api/runs/${id}/call?key=${encodeURIComponent(whole.key)}`);
      if (wanted === call.key) drawCall(whole, all, call.request);
    } catch (trouble) { say(trouble.words); }
  }
  function drawCall(call, told, opened) {
    const gave = recorded(told.record)?.gave;
    const words = (given) => given?.content ? given.content.map((part) => part.text ?? part.json ?? part.name ?? JSON.stringify(part)).join("\n") : given?.failed ?? given?.refused ?? null;
    const result = words(gave);
    const repliesOf = (request) => recorded(request.reply)?.parts ?? [];
    const partWords = (part) => part.tool ? `${part.tool} ${shown(part.arguments)}` : part.text ?? shown(part);
    const last = told.requests.at(-1);
    const said = result ?? (gave?.said && last ? repliesOf(last).map(partWords).join("\n") : null);
    replace(detail, h("div", { class: "card" },
      h("div", { class: "head" }, h("h3", {}, call.name), h("span", { class: `pill ${call.state}` }, call.state.replace("_", " ")), h("span", { class: "spacer" }), run.served_as && !context.me.read_only ? h("button", { onclick: () => fork(call.key) }, "Fork from here") : null),
      h("p", { class: "id" }, call.key),
      verdictOf(call) || call.reason ? h("p", { class: call.reason ? "note bad" : "note" }, [verdictOf(call), call.reason].filter(Boolean).join(": ")) : null,
      call.input !== undefined ? [h("h2", {}, "Arguments"), long(shown(call.input))] : null,
      said !== null && said !== undefined ? [h("h2", {}, "Result"), long(said)] : null,
      told.requests.length ? h("h2", {}, told.requests.length === 1 ? "Request, as recorded" : `${told.requests.length} requests, as recorded`) : null,
      told.requests.map((request, number) => {
        const box = h("details", {}, h("summary", {}, `${number + 1}. ${request.usage ? `${count(request.usage.input_tokens)} → ${count(request.usage.output_tokens)} tokens · ${money(request.usage.cost_usd)}` : request.key}`));
        box.addEventListener("toggle", () => {
          if (!box.open || box.children.length > 1) return;
          const part = (name, words) => request.parts?.[name] && told.parts[request.parts[name]] !== undefined ? [h("h2", {}, words), long(shown(told.parts[request.parts[name]]))] : null;
          box.append(h("div", {}, part("instructions", "Instructions"), part("tools", "Tools"), part("output", "Form of the answer"), part("settings", "Settings"),
            told.requests.slice(0, number).length || call.input !== undefined ? [h("h2", {}, `Messages${request.sent ? ` (${request.sent})` : ""}`), h("div", { class: "talk" }, message("user", shown(call.input ?? "")), told.requests.slice(0, number).map((earlier) => [message(run.entry, repliesOf(earlier).map(partWords).join("\n")), Object.keys(earlier.results).length ? message("results", Object.values(earlier.results).map((record) => words(recorded(record)?.gave) ?? "the answer of an agent, which has requests of its own").join("\n")) : null]), before(request, number))] : null,
            h("h2", {}, "Reply"), long(repliesOf(request).map(partWords).join("\n") || shown(request.reply))));
        });
        box.open = number === opened;
        return box;
      })));
  }
  /** Messages of earlier turns stand in those. */
  const before = (request, number) => {
    const more = (request.sent ?? 0) - 1 - 2 * number;
    return more > 0 ? h("p", { class: "dim small" }, `Before these came ${more} ${more === 1 ? "message" : "messages"} of what was said earlier. `, run.kind === "chat" ? h("a", { href: `#/chat/${id}` }, "The chat") : null) : null;
  };
  const message = (who, words) => h("div", { class: "message" }, h("div", { class: "who" }, who), long(words, 1500));

  let asked = [];
  async function drawQuestions() {
    if (!run.waiting.length || context.me.read_only) { asked.forEach((one) => one.leave()); asked = []; open.replaceChildren(); return; }
    const all = (await get("/api/questions")).questions.filter((one) => one.run === run.id);
    if (all.length === asked.length && all.every((one, place) => one.digest === asked[place].digest)) return;
    asked.forEach((one) => one.leave());
    asked = all.map((one) => question(one, load, true));
    replace(open, asked.map((one) => one.box));
  }
  let loading = false, again = false, loadedAt = -Infinity, loadTook = 0;
  async function load() {
    if (loading) { again = true; return; }
    loading = true;
    again = false;
    try {
      const began = performance.now();
      const found = await get(`/api/runs/${id}`);
      if (stopped) return;
      run = found; if (run.answer !== null) text = "";
      drawHead(); drawSaid(); drawTree();
      await drawQuestions();
      loadedAt = performance.now();
      loadTook = loadedAt - began;
      if (wanted === null) choose(0); else if (calls[at] && told(calls[at]) !== drawn) tell(calls[at]);
      if (run.state === "running") start();
    } finally { loading = false; }
    if (again) later();
  }
  let soon;
  // At once if nothing was loaded just before; a long run takes long to load, and most of the time is left to others.
  const later = () => { clearTimeout(soon); soon = setTimeout(() => load().catch(context.trouble), Math.max(0, loadedAt + Math.max(100, loadTook * 3) - performance.now())); };
  let listening = false, isApart = false;
  async function start() {
    if (listening || stopped) return;
    listening = true;
    await listen(`/api/runs/${id}/events`, (name, data) => {
      if (name === "source") { isLive = data.live; if (run) drawHead(); return; }
      if (name === "event" && data.type === "text_delta") { if (data.depth === 0) { text += (isApart && text ? "\n\n" : "") + data.text; isApart = false; if (text === data.text) drawSaid(); else drawLater(); } return; }
      if (name === "event" && ["thinking_delta", "process_output", "tool_progressed"].includes(data.type)) return;
      // What is said after a call stands apart from what was said before.
      if (name === "event" && (data.depth > 0 || ["tool_called", "tool_refused"].includes(data.type))) isApart = true;
      later();
    }, ended.signal);
    listening = false;
    isLive = false;
    later();
  }
  let drawing = false;
  const drawLater = () => { if (!drawing) { drawing = true; requestAnimationFrame(() => { drawing = false; if (!stopped && run?.answer == null) drawSaid(); }); } };
  start();
  await load();
  // A run that nobody runs may go on at any time, in any process.
  const look = setInterval(() => { if (!listening && !document.hidden && run.state !== "done") later(); }, 2000);
  return {
    title: run ? `${lastName(run.project)} › ${run.entry}` : "Run",
    leave() { stopped = true; ended.abort(); clearTimeout(soon); clearInterval(look); asked.forEach((one) => one.leave()); },
    key(key) {
      if (asked.length && asked[0].act(key, true)) return true;
      if (key === "/") { find.focus(); return true; }
      if (key === "j" || key === "k") { choose(Math.max(0, Math.min(calls.length - 1, at + (key === "j" ? 1 : -1)))); return true; }
      return false;
    },
    keys: [["j k", "move through the calls"], ["/", "filter them"], ["y s t a e n", "answer the question"]],
  };
}
