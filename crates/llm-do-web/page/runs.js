// Runs: the list, in which what waits stands first.

import { get } from "./api.js";
import { ago, h, lastName, money, replace } from "./dom.js";

export const pill = (state, waits) => h("span", { class: `pill ${state}` }, state === "waits" && waits ? `waits: ${waits}` : state);

export async function view(main, _, context) {
  const filters = { project: "", state: "", agent: "", label: "", text: "" };
  let runs = [], at = -1, stopped = false, timer, costs = null;
  const body = h("tbody");
  const search = h("input", { type: "search", placeholder: "Filter by text ( / )", "aria-label": "Filter by text" });
  const choice = (name, words) => h("select", { "aria-label": words, onchange: (event) => { filters[name] = event.target.value; load(); } });
  const state = choice("state", "State"), project = choice("project", "Project"), agent = choice("agent", "Agent"), label = choice("label", "Label");
  const options = (select, all, values, name = (value) => value) => {
    const now = select.value;
    replace(select, h("option", { value: "" }, all), values.map((value) => h("option", { value }, name(value))));
    select.value = values.includes(now) ? now : "";
  };
  options(state, "any state", ["waits", "running", "done", "stopped", "died", "damaged"]);
  const spent = h("div", { class: "facts" });
  const list = h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": "Runs" });
  search.addEventListener("input", () => { filters.text = search.value; clearTimeout(timer); timer = setTimeout(load, 120); });

  replace(main, h("div", { class: "head" }, h("h1", {}, "Runs"), h("span", { class: "spacer" }), context.me.projects.length && !context.me.read_only ? h("a", { class: "button", href: `#/project/${encodeURIComponent(context.me.projects[0])}` }, "Start a run") : null), spent,
    h("div", { class: "filters" }, search, state, project, agent, label), list);

  const open = (run) => { location.hash = run.kind === "chat" ? `#/chat/${run.id}` : `#/run/${run.id}`; };
  const draw = () => {
    if (!runs.length) {
      replace(list, h("div", { class: "empty" }, h("p", {}, Object.values(filters).some(Boolean) ? "No run fits." : "No run is kept yet."), h("p", { class: "small" }, context.me.projects.length ? "Start one from its project." : "Runs of llm-do appear here as they begin.")));
      return;
    }
    replace(body, runs.map((run, place) => h("tr", { class: place === at ? "link at" : "link", onclick: (event) => { if (!event.target.closest("a")) open(run); } },
      h("td", { class: "wide-only" }, pill(run.state, run.waits)),
      h("td", {}, h("a", { class: "name", href: run.kind === "chat" ? `#/chat/${run.id}` : `#/run/${run.id}` }, `${lastName(run.project)} › ${run.entry || "…"}`), run.label ? h("span", { class: "dim" }, ` ${run.label}`) : null, h("div", { class: "id" }, run.id), h("div", { class: "narrow" }, pill(run.state, run.waits))),
      h("td", { class: "wide-only dim" }, run.kind === "chat" ? `chat, ${run.turns ?? 0} ${run.turns === 1 ? "turn" : "turns"}` : run.kind),
      h("td", { class: "dim number" }, ago(run.at)),
      h("td", { class: "number" }, money(run.cost)),
      h("td", { class: "number wide-only" }, run.requests))));
    replace(list, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "wide-only" }, "State"), h("th", { scope: "col" }, "Run"), h("th", { scope: "col", class: "wide-only" }, "Kind"), h("th", { scope: "col", class: "number" }, "When"), h("th", { scope: "col", class: "number" }, "Cost"), h("th", { scope: "col", class: "number wide-only" }, "Requests"))), body));
  };
  const drawCosts = () => costs && replace(spent, h("span", {}, "today ", h("b", {}, money(costs.today_usd))), costs.budgets.map((budget) => h("span", {}, `${budget.name} `, h("b", {}, `${money(budget.spent)} of ${money(budget.usd)}`))));

  let known = "";
  async function load() {
    const wanted = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
    const found = (await get(`/api/runs?${wanted}`)).runs;
    if (stopped) return;
    found.sort((one, other) => (other.state === "waits") - (one.state === "waits"));
    const now = JSON.stringify(found);
    if (now !== known || !body.isConnected) {
      known = now; runs = found; at = Math.min(at, runs.length - 1);
      draw();
      if (!Object.values(filters).some(Boolean)) {
        const values = (of) => [...new Set(runs.map(of).filter(Boolean))].sort();
        options(project, "any project", values((run) => run.project), lastName);
        options(agent, "any agent", values((run) => run.entry));
        options(label, "any label", values((run) => run.label));
      }
    }
  }
  const tick = async () => {
    if (!document.hidden) await load().catch(context.trouble);
    if (!stopped) timer = setTimeout(tick, 1000);
  };
  get("/api/costs?days=1").then((found) => { costs = found; drawCosts(); }).catch(() => {});
  await load();
  timer = setTimeout(tick, 1000);
  return {
    title: "Runs",
    leave() { stopped = true; clearTimeout(timer); },
    key(key) {
      if (key === "/") { search.focus(); return true; }
      if (key === "j" || key === "k") { at = Math.max(0, Math.min(runs.length - 1, at + (key === "j" ? 1 : -1))); draw(); body.children[at]?.scrollIntoView({ block: "nearest" }); return true; }
      if (key === "Enter" && runs[at]) { open(runs[at]); return true; }
      return false;
    },
    keys: [["j k", "move"], ["Enter", "open"], ["/", "filter"]],
  };
}
