// Costs: what runs cost, by day, model, agent and project; the budgets; the dearest runs.

import { get } from "./api.js";
import { count, h, lastName, money, replace } from "./dom.js";
import { gauge, plot, share } from "./pictures.js";

/** Every day of the time that is shown, with or without costs. */
function everyDay(found) {
  const known = new Map(found.day.map((sum) => [sum.name, sum])), all = [];
  for (let at = Date.parse(found.since); at <= Date.parse(found.today); at += 864e5) {
    const name = new Date(at).toISOString().slice(0, 10);
    all.push(known.get(name) ?? { name, usd: 0, in: 0, out: 0 });
  }
  return all;
}

export async function view(main) {
  let days = 30;
  const body = h("div");
  const byCost = (sums) => [...sums].sort((one, other) => other.usd - one.usd);
  const table = (title, sums, name = (value) => value, most = Math.max(...sums.map((sum) => sum.usd))) => h("section", { class: "card" }, h("h2", {}, title), sums.length ? h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": title }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), h("td", { class: "wide-only" }), h("th", { scope: "col", class: "number" }, "USD"), h("th", { scope: "col", class: "number" }, "Tokens"), h("th", { scope: "col", class: "number" }, "Runs"))), h("tbody", {}, sums.slice(0, 50).map((sum) => h("tr", {}, h("td", { class: "name" }, name(sum.name), sum.unpriced ? h("span", { class: "dim small" }, ` ${count(sum.unpriced)} tokens without a price`) : null), h("td", { class: "share wide-only" }, share(sum.usd, most)), h("td", { class: "number" }, money(sum.usd)), h("td", { class: "number" }, count(sum.in + sum.out)), h("td", { class: "number" }, sum.runs)))))) : h("p", { class: "dim" }, "nothing yet"));
  const show = async () => {
    const found = await get(`/api/costs?days=${days}`);
    const whole = found.day.reduce((sum, day) => sum + day.usd, 0);
    replace(body, h("div", { class: "costs" },
      h("section", { class: "card" }, h("h2", {}, "Today"), h("p", { class: "big" }, money(found.today_usd)), h("p", { class: "dim" }, `${money(whole)} in ${days} days`), found.day.length ? [plot(everyDay(found), "Cost by day"), h("div", { class: "row dim small" }, found.since, h("span", { class: "spacer" }), "today")] : null),
      h("section", { class: "card" }, h("h2", {}, "Budgets"), found.budgets.length ? found.budgets.map((budget) => h("div", {}, h("p", {}, h("b", {}, budget.name), ` ${money(budget.spent)} of ${money(budget.usd)} `, h("span", { class: "dim" }, budget.period)), gauge(budget.spent + budget.reserved, budget.usd, `${budget.name}: ${money(budget.spent)} of ${money(budget.usd)}`))) : h("p", { class: "dim" }, "none; `[[budget]]` in config.toml sets one")),
      table("By model", byCost(found.model)), table("By agent", byCost(found.agent)), table("By project", byCost(found.project), lastName), table("By day", [...found.day].reverse()),
      h("section", { class: "card" }, h("h2", {}, "The dearest runs"), found.dearest.length ? h("ol", { class: "said" }, found.dearest.map((run) => h("li", {}, h("a", { href: `#/run/${run.run}` }, `${lastName(run.project)} › ${run.entry}`), ` ${money(run.usd)} `, h("span", { class: "dim" }, run.day)))) : h("p", { class: "dim" }, "nothing yet"))));
  };
  const since = h("select", { "aria-label": "Time", onchange: (event) => { days = Number(event.target.value); show(); } }, [7, 30, 90, 365].map((one) => h("option", { value: one, selected: one === days }, `${one} days`)));
  replace(main, h("div", { class: "head" }, h("h1", {}, "Costs"), h("span", { class: "spacer" }), since), body);
  await show();
  return { title: "Costs", leave() {}, key: () => false, keys: [] };
}
