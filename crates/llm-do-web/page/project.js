// Project: what it can do, its mistakes, and the start of a run.

import { get, post } from "./api.js";
import { add, h, long, replace, say, size } from "./dom.js";
import { callGraph } from "./pictures.js";

/** Files that are dropped or chosen, as bytes. */
export function dropzone() {
  const all = [];
  const names = h("span"), input = h("input", { type: "file", multiple: true, class: "unseen", "aria-label": "Files to attach" });
  const show = () => replace(names, all.length ? all.map((file, at) => [h("button", { type: "button", class: "plain", title: "Leave it out", onclick: () => { all.splice(at, 1); show(); } }, `${file.name} (${size(file.bytes)}) ×`), " "]) : "Drop files here, or ");
  const take = async (list) => {
    for (const file of list) {
      const bytes = new Uint8Array(await file.arrayBuffer());
      let binary = "";
      for (let at = 0; at < bytes.length; at += 32768) binary += String.fromCharCode(...bytes.subarray(at, at + 32768));
      all.push({ name: file.name, bytes: file.size, data: btoa(binary) });
    }
    show();
  };
  input.addEventListener("change", () => { take(input.files).then(() => { input.value = ""; }); });
  const box = h("div", { class: "drop" }, names, h("label", { class: "button" }, "Choose files", input));
  for (const name of ["dragover", "dragleave", "drop"]) box.addEventListener(name, (event) => {
    event.preventDefault();
    box.classList.toggle("over", name === "dragover");
    if (name === "drop") take(event.dataTransfer.files);
  });
  show();
  return { box, get files() { return all.map(({ name, data }) => ({ name, data })); }, clear() { all.length = 0; show(); } };
}

/** Fields from a JSON Schema, as far as it is plain; what is not is written as JSON. */
function form(schema, given) {
  const fields = Object.entries(schema?.properties ?? {});
  const isPlain = fields.length && fields.every(([, field]) => ["string", "number", "integer", "boolean"].includes(field.type) || field.enum);
  if (!isPlain) {
    const area = h("textarea", { class: "mono", value: JSON.stringify(given ?? {}, null, 2) });
    return { box: h("label", {}, "Input, as JSON", area), read: () => JSON.parse(area.value) };
  }
  const inputs = fields.map(([name, field]) => {
    const value = given?.[name] ?? field.default ?? "";
    const input = field.enum ? h("select", {}, field.enum.map((one) => h("option", { value: one }, one))) : field.type === "boolean" ? h("input", { type: "checkbox", checked: Boolean(value) }) : field.type === "string" ? h("textarea", { rows: 2 }) : h("input", { inputmode: "decimal" });
    if (field.type !== "boolean" && value !== "") input.value = value;
    const words = `${name}${schema.required?.includes(name) ? "" : " (may be empty)"}`;
    return [name, field, input, h("label", {}, words, field.description ? h("span", { class: "dim" }, ` – ${field.description}`) : null, input)];
  });
  return {
    box: h("div", { class: "fields" }, inputs.map(([, , , label]) => label)),
    read: () => Object.fromEntries(inputs.flatMap(([name, field, input]) => field.type === "boolean" ? [[name, input.checked]] : input.value === "" ? [] : [[name, field.type === "number" || field.type === "integer" ? Number(input.value) : input.value]])),
  };
}

export async function view(main, [name], context) {
  const project = name ?? context.me.projects[0];
  if (!project) {
    replace(main, h("h1", {}, "Project"), h("div", { class: "empty" }, h("p", {}, "This server was started without a project."), h("p", { class: "small" }, "`llm-do web PROJECT` serves one.")));
    return { title: "Project", leave() {}, key: () => false, keys: [] };
  }
  const found = await get(`/api/projects/${encodeURIComponent(project)}/check`);
  const agents = found.agents ?? [];
  const chooser = context.me.projects.length > 1 ? h("select", { "aria-label": "Project", onchange: (event) => { location.hash = `#/project/${encodeURIComponent(event.target.value)}`; } }, context.me.projects.map((one) => h("option", { value: one, selected: one === project }, one))) : null;
  const entry = found.entry?.agent ?? agents[0]?.name;
  const detail = h("section", { "aria-label": "Agent" });

  const starter = () => {
    const agent = h("select", {}, agents.map((one) => h("option", { value: one.name, selected: one.name === entry }, one.name)));
    const place = h("div"), drop = dropzone();
    let input;
    const show = () => {
      const spec = agents.find((one) => one.name === agent.value);
      const given = agent.value === entry ? found.default_input : null;
      if (spec?.input) input = form(spec.input, given);
      else {
        const area = h("textarea", { placeholder: "What shall it do?", value: typeof given === "string" ? given : "" });
        input = { box: h("label", {}, "Prompt", area), read: () => area.value };
      }
      replace(place, input.box);
    };
    agent.addEventListener("change", show);
    show();
    const model = h("input", { placeholder: "provider:model" }), usd = h("input", { inputmode: "decimal" }), requests = h("input", { inputmode: "numeric" }), label = h("input");
    const begin = async (chat) => {
      let said;
      try { said = input.read(); } catch (error) { say(`this is no JSON: ${error.message}`); return; }
      const limits = { ...(usd.value ? { max_cost_usd: Number(usd.value) } : {}), ...(requests.value ? { max_requests: Number(requests.value) } : {}) };
      const asked = { project, agent: agent.value || undefined, limits, attachments: drop.files, chat, ...(said === "" ? {} : { input: said }), ...(model.value ? { model: [model.value] } : {}), ...(label.value ? { label: label.value } : {}) };
      try { const { run } = await post("/api/runs", asked); context.go(`#/${chat ? "chat" : "run"}/${run}`); }
      catch (trouble) { say(trouble.words); }
    };
    return h("form", { class: "card fields", onsubmit: (event) => { event.preventDefault(); begin(false); } }, h("h3", {}, "Start a run"),
      agents.length > 1 ? h("label", {}, "Agent", agent) : null, place, drop.box,
      h("details", { open: agents.some((one) => !one.model) }, h("summary", { class: "dim small" }, "Model, limits, label"), h("div", { class: "two" }, h("label", {}, "Model", model), h("label", {}, "Label", label), h("label", {}, "At most, in USD", usd), h("label", {}, "At most so many requests", requests))),
      h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Start"), h("button", { type: "button", onclick: () => begin(true) }, "Chat")));
  };
  const chosen = (now) => agents.length > 1 ? h("div", { class: "row tabs" }, agents.map((agent) => h("button", { class: "plain", "aria-pressed": agent.name === now ? "true" : "false", onclick: () => { showAgent(agent.name); detail.querySelector("[aria-pressed=true]").focus(); } }, agent.name))) : null;
  const showAgent = (wanted) => {
    const agent = agents.find((one) => one.name === wanted);
    if (!agent) return;
    replace(detail, chosen(wanted), h("div", { class: "card" }, h("div", { class: "head" }, h("h3", {}, agent.name), h("span", { class: "dim" }, agent.model ?? "no model yet"), h("span", { class: "spacer" }), h("span", { class: "id" }, agent.file)),
      agent.description ? h("p", {}, agent.description) : null,
      h("h2", {}, "Tools"), agent.tools.length ? h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": "Tools" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Tool"), h("th", { scope: "col" }, "Verdict"), h("th", { scope: "col" }, "From"))), h("tbody", {}, agent.tools.map((tool) => h("tr", {}, h("td", { class: "name" }, tool.name), h("td", {}, tool.commands ? tool.commands.map((command) => h("div", {}, h("span", { class: `pill ${command.verdict}` }, command.verdict), ` ${command.pattern}`)) : h("span", { class: `pill ${tool.verdict}` }, tool.verdict.replace("_", " "))), h("td", { class: "dim" }, tool.agent ? "agent" : tool.toolsets.join(", "))))))) : h("p", { class: "dim" }, "none"),
      agent.worst_case.length ? [h("h2", {}, "In the worst case"), h("ul", { class: "said" }, agent.worst_case.map((way) => h("li", {}, h("b", {}, way.capability.replaceAll("_", " ")), way.asks ? " after a question" : "", h("span", { class: "dim" }, ` · ${way.path.join(" → ")}`))))] : null,
      h("h2", {}, "Instructions"), long(agent.instructions, 1200)));
  };
  replace(main, h("div", { class: "head" }, h("h1", {}, `Project ${project}`), chooser, h("span", { class: "spacer" }), h("span", { class: `pill ${found.ok ? "done" : "failed"}` }, found.ok ? "no mistakes" : "mistakes")),
    h("p", { class: "id" }, context.me.home && found.root.startsWith(`${context.me.home}/`) ? `~${found.root.slice(context.me.home.length)}` : found.root),
    found.errors?.length ? h("div", { class: "card" }, found.errors.map((error) => h("div", { class: "note bad" }, [error.file ? `${error.file}${error.line ? `:${error.line}` : ""}: ` : "", error.message ?? "", error.hint ? ` (${error.hint})` : ""]))) : null,
    agents.some((agent) => !agent.model) ? h("p", { class: "note" }, `${agents.filter((agent) => !agent.model).map((agent) => agent.name).join(", ")}: no model yet. Name one where a run starts, beneath the prompt, or once for all with `, h("code", {}, "llm-do models --use provider:model"), ".") : null,
    found.trusted === false ? h("p", { class: "note bad" }, "The project asks for more than was agreed to: nothing of it starts before it is trusted.") : null);
  if (agents.length) {
    if (agents.length > 1) add(main, [h("h2", {}, "Who calls whom"), callGraph(found.picture, showAgent)]);
    add(main, [h("h2", {}, "Agents"), h("div", { class: "split" }, context.me.read_only ? null : h("div", {}, starter()), detail)]);
    showAgent(entry);
  }
  return { title: project, leave() {}, key: () => false, keys: [] };
}
