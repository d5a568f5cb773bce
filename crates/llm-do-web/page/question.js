// One question, in the words of the terminal, and its answers. A key or a click counts once the question's last line has been on
// the screen for a moment, and a moment after the last key: what was meant for something else answers nothing.

import { post } from "./api.js";
import { ago, dialog, h, replace, say } from "./dom.js";

const MOMENT = 300;
/** So much is shown at once; the rest is asked for, and nothing counts before its end was seen. */
const MOST_LINES = 3000, MOST_CHARACTERS = 100000;
let lastKey = -Infinity, keyBefore = -Infinity;
addEventListener("keydown", () => { keyBefore = lastKey; lastKey = performance.now(); }, { capture: true });

/** A line in parts of a length that can be drawn. */
const pieces = (line) => line.text.length <= MOST_CHARACTERS ? [line]
  : Array.from({ length: Math.ceil(line.text.length / MOST_CHARACTERS) }, (_, at) => ({ role: line.role, text: line.text.slice(at * MOST_CHARACTERS, (at + 1) * MOST_CHARACTERS) }));

export function question(asked, answered, isAtRun = false) {
  const lines = h("pre", { tabindex: "0", "aria-label": "What would happen" });
  const drawn = h("div", { class: "answers" });
  const box = h("article", { class: "card question", tabindex: "-1", "data-question": asked.digest });
  const end = h("span", { class: "end", "aria-hidden": "true" });
  let shown = asked.lines, seenAt = null, edited = null;

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) seenAt = entry.isIntersecting ? (seenAt ?? performance.now()) : null;
  });

  const draw = () => {
    const all = shown.slice(1).flatMap(pieces);
    let at = 0;
    const more = h("button", { type: "button", class: "plain", onclick: () => next() });
    const next = () => {
      more.remove();
      for (let count = 0, characters = 0; at < all.length && count < MOST_LINES && characters < MOST_CHARACTERS; at += 1, count += 1) {
        characters += all[at].text.length;
        lines.append(h("span", { class: `qline ${all[at].role}` }, all[at].text || " "));
      }
      if (at < all.length) lines.append(replace(more, `show more (${all.length - at} lines are left)`));
      else { lines.append(end); watch.observe(end); }
    };
    lines.replaceChildren();
    seenAt = null;
    watch.disconnect();
    next();
  };

  /** Why an answer that is given now was not meant for this question, if it was not. */
  const early = (isKey) => {
    const now = performance.now();
    if (!box.isConnected || seenAt === null) return "read it to its end first";
    const isQuiet = now - (isKey ? keyBefore : lastKey) >= MOMENT;
    return isQuiet && now - seenAt >= MOMENT ? null : "that was too soon: nothing was answered";
  };

  const send = async (body) => {
    const digest = asked.digest;
    try {
      const result = await post(`/api/questions/${digest}`, body);
      say(result.goes_on ? "answered; the run goes on" : `answered; go on with: ${result.command}${result.why ? ` (${result.why})` : ""}`);
      answered(asked, result);
    } catch (trouble) {
      say(trouble.words);
      if (trouble.status === 409 || trouble.status === 404) answered(asked, null);
    }
  };

  const edit = async () => {
    if (asked.raises) {
      const form = await dialog("Raise the limit to", [h("label", {}, "Another figure", h("input", { name: "figure", required: true, inputmode: "decimal" }))], "Raise");
      if (form) send({ answer: "once", values: { [asked.lines.some((line) => line.text.includes("$")) ? "usd" : "to"]: form.get("figure") } });
      return;
    }
    const field = asked.edits && typeof asked.arguments?.[asked.edits] === "string" ? asked.edits : null;
    const now = edited ?? asked.arguments;
    const area = h("textarea", { name: "text", class: "mono", rows: 16, value: field ? now[field] : JSON.stringify(now, null, 2) });
    const form = await dialog(field ? `Change ${field}` : "Change the arguments", [h("label", {}, field ?? "JSON", area)], "Show the difference");
    if (!form) return;
    try {
      edited = field ? { ...now, [field]: form.get("text") } : JSON.parse(form.get("text"));
      const tried = await post(`/api/questions/${asked.digest}/try`, { arguments: edited });
      shown = tried.lines;
      draw();
      buttons();
      say(tried.note ?? "this is what would happen now");
      box.focus();
    } catch (trouble) {
      edited = null;
      say(trouble.words ?? `this is no JSON: ${trouble.message}`);
    }
  };

  const fill = async () => {
    const field = ({ name, type, options, required }) => {
      const label = required === false ? `${name} (may be left empty)` : name;
      const rest = { name, required: required !== false };
      const of = (values) => h("select", rest, required === false ? h("option", { value: "" }, "") : null, values.map((value) => h("option", { value }, value)));
      if (type === "choice") return h("label", {}, label, of(options ?? []));
      if (type === "yes_no") return h("label", {}, label, of(["yes", "no"]));
      return h("label", {}, label, h("input", { ...rest, inputmode: type === "number" ? "decimal" : "text" }));
    };
    const form = await dialog(`${asked.path.at(-1)} asks`, [h("p", {}, asked.form.question), ...asked.form.fields.map(field)], "Answer");
    if (!form) return;
    const values = Object.fromEntries([...form.entries()].filter(([, value]) => value !== ""));
    send({ answer: "once", values });
  };

  const always = async () => {
    const area = h("textarea", { name: "rule", class: "mono", rows: 9, value: asked.rules[0] });
    const widths = asked.rules.map((rule, at) => h("button", { type: "button", onclick: () => { area.value = rule; } }, ["exactly this", "wider", "widest"][at]));
    const form = await dialog("Always: adds this rule to state/rules.toml", [h("div", { class: "row" }, widths), h("label", {}, "The rule, which you may change", area)], "Add and allow");
    if (!form) return;
    try {
      const added = await post(`/api/questions/${asked.digest}/rule`, { rule: form.get("rule") });
      say(added.covers ? "the rule was added, and the call goes on" : "the rule was added; it does not cover this call");
      if (added.covers) answered(asked, {});
    } catch (trouble) { say(trouble.words); }
  };

  const refuse = async () => {
    const form = await dialog("No: why?", [h("label", {}, "The model reads this (you may leave it empty)", h("textarea", { name: "reason" }))], "Refuse");
    if (form) send({ answer: "refuse", ...(form.get("reason") ? { reason: form.get("reason") } : {}) });
  };

  const acts = {
    y: () => asked.form ? fill() : send(edited ? { answer: "edit", arguments: edited } : { answer: "once" }),
    s: () => send({ answer: "call" }), t: () => send({ answer: "tool" }), a: always, e: edit,
    n: () => asked.raises ? send({ answer: "refuse" }) : refuse(), q: () => send({ answer: "stop" }),
  };
  const offered = asked.keys.filter(({ key }) => key !== "?" && (asked.own || "yen".includes(key)));

  const act = (key, isKey) => {
    if (!offered.some((offer) => offer.key === key)) return false;
    const why = early(isKey);
    if (why) say(why); else acts[key]();
    return true;
  };

  const buttons = () => replace(drawn, offered.map(({ key, words }) => h("button", {
    class: key === "y" ? "main" : key === "n" || key === "q" ? "bad" : null,
    title: asked.explanation.find((line) => line.startsWith(`${key}  `))?.slice(3) ?? null,
    onclick: () => act(key, false),
  }, h("kbd", { "aria-hidden": "true" }, key), key === "y" && edited ? "yes, with the change" : words)));

  replace(box,
    h("div", { class: "head" },
      h("h2", { class: "title" }, `${asked.path.join(" › ")} › ${asked.tool}`),
      asked.of > 1 ? h("span", { class: "pill" }, `${asked.number} of ${asked.of}`) : null,
      h("span", { class: "spacer" }),
      isAtRun ? null : h("a", { class: "id", href: `#/run/${asked.run}` }, asked.run),
      h("span", { class: "dim small" }, ago(asked.asked_at))),
    lines, drawn,
    asked.own ? null : h("p", { class: "dim small" }, asked.after === "goes_on" ? "Another process asks this: from here it can be approved once, edited or refused." : asked.after === "goes_on_here" ? "No process runs this now. Once nothing of it waits, it goes on here." : ["No process runs this now. What is answered is kept; ", h("code", {}, `llm-do resume ${asked.run}`), " goes on with it."]));
  draw();
  buttons();
  return { box, act, digest: asked.digest, leave: () => watch.disconnect() };
}
