// The page: which view is shown, and which keys mean what.

import { forgetKey, get, takeKey } from "./api.js";
import { h, replace, say } from "./dom.js";
import { view as chat } from "./chat.js";
import { view as costs } from "./costs.js";
import { view as inbox } from "./inbox.js";
import { view as project } from "./project.js";
import { view as run } from "./run.js";
import { view as runs } from "./runs.js";

const VIEWS = { runs, run, inbox, project, chat, costs };
const TABS = [["runs", "Runs"], ["inbox", "Inbox"], ["project", "Project"], ["chat", "Chat"], ["costs", "Costs"]];
const main = document.getElementById("main"), top = document.getElementById("top");
let current = null, showing = 0;

const context = {
  me: { projects: [], read_only: true },
  waits(count) {
    replace(badge, count ? h("span", { class: "badge", "aria-label": `${count} open` }, count) : null);
    document.title = `${count ? `(${count}) ` : ""}${current?.title ?? "llm-do"} · llm-do`;
  },
  /** Another view, at once. */
  go(address) { history.pushState(null, "", address); show(); },
  trouble(error) {
    if (error.status === 401) locked();
    else say(error.status === 0 ? "the server cannot be reached; it is tried again" : error.words ?? String(error));
  },
};
const badge = h("span");

function bar() {
  replace(top, h("div", { class: "bar" }, h("a", { class: "brand", href: "#/runs" }, "llm-do"), h("nav", { "aria-label": "Views" }, TABS.map(([name, words]) => h("a", { href: `#/${name}`, "data-view": name }, words, name === "inbox" ? badge : null))), h("span", { class: "spacer" }), h("button", { class: "plain wide-only", onclick: help }, h("kbd", { "aria-hidden": "true" }, "?"), "keys")));
}

function locked() {
  forgetKey();
  top.replaceChildren();
  replace(main, h("div", { class: "empty" }, h("h1", {}, "A key is missing"), h("p", {}, "Open the whole address that llm-do web has printed: the key stands behind its #."), h("p", { class: "small" }, "It is kept in this tab only, and sent to this server alone.")));
}

async function show() {
  const mine = ++showing;
  const [name = "runs", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const view = VIEWS[name] ?? runs;
  current?.leave();
  current = null;
  document.querySelectorAll("nav a").forEach((link) => {
    const isCurrent = link.dataset.view === (name === "run" ? "runs" : name);
    if (isCurrent) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  });
  try {
    const place = h("div");
    replace(main, place);
    const opened = await view(place, rest, context);
    if (mine !== showing) { opened?.leave(); return; }
    current = opened;
    document.title = `${opened.title} · llm-do`;
  } catch (error) {
    if (error.status === 401) { locked(); return; }
    replace(main, h("div", { class: "empty" }, h("h1", {}, "This cannot be shown"), h("p", {}, error.words ?? String(error)), h("p", {}, h("a", { href: "#/runs" }, "All runs"))));
  }
}
function decode(part) { try { return decodeURIComponent(part); } catch { return part; } }

function help() {
  const keys = [["1 – 5", "the views"], ["?", "these keys"], ...(current?.keys ?? [])];
  const box = h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"), h("div", { class: "tablebox" }, h("table", {}, h("tbody", {}, keys.map(([key, words]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, words)))))), h("form", { method: "dialog", class: "answers" }, h("button", {}, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat && !"jk".includes(event.key)) return;
  if (document.querySelector("dialog[open]") || event.target.closest?.("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur?.();
    return;
  }
  if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
  if (current?.key(event.key)) { event.preventDefault(); return; }
  if (/^[1-5]$/.test(event.key)) { location.hash = `#/${TABS[event.key - 1][0]}`; event.preventDefault(); }
  else if (event.key === "?") { help(); event.preventDefault(); }
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#k=")) { takeKey(); begin(); return; }
  show();
});

/** How many questions wait, whichever view is open. */
async function count() {
  if (!document.hidden && !location.hash.startsWith("#/inbox")) {
    try { context.waits((await get("/api/questions")).questions.length); } catch (error) { if (error.status === 401) return; }
  }
  setTimeout(count, 2500);
}

async function begin() {
  if (!takeKey()) { locked(); return; }
  try { context.me = await get("/api/me"); } catch (error) { if (error.status === 401 || error.status === 403) locked(); else { say(error.words); setTimeout(begin, 1500); } return; }
  bar();
  await show();
  count();
}
begin();
