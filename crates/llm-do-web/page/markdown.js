// Markdown of models, as elements: no HTML is ever interpreted, and a link shows where it leads.

import { h } from "./dom.js";

const LONGEST = 200000;

export function markdown(value) {
  const whole = String(value ?? "");
  const box = h("div", { class: "said" });
  const lines = whole.slice(0, LONGEST).split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s{0,3}(```+|~~~+)/.exec(line);
    if (fence) {
      const body = [];
      at += 1;
      while (at < lines.length && !lines[at].trimStart().startsWith(fence[1])) body.push(lines[at++]);
      at += 1;
      box.append(h("pre", { tabindex: "0" }, h("code", {}, body.join("\n"))));
      continue;
    }
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    if (heading) { box.append(h("p", { class: "heading" }, inline(heading[1]))); at += 1; continue; }
    if (!line.trim()) { at += 1; continue; }
    if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[at + 1] ?? "")) {
      const cells = (row) => row.trim().slice(1, -1).split("|").map((cell) => cell.trim());
      const head = cells(line), body = [];
      at += 2;
      while (at < lines.length && /^\s*\|.*\|\s*$/.test(lines[at])) body.push(cells(lines[at++]));
      box.append(h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": "table" }, h("table", {},
        h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell))))),
        h("tbody", {}, body.slice(0, 500).map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell)))))))));
      continue;
    }
    if (/^\s*>/.test(line)) {
      const body = [];
      while (at < lines.length && /^\s*>/.test(lines[at])) body.push(lines[at++].replace(/^\s*>\s?/, ""));
      box.append(h("blockquote", {}, inline(body.join("\n"))));
      continue;
    }
    const item = /^\s*([-*+]|\d{1,9}[.)])\s+/;
    if (item.test(line)) {
      const isNumbered = /^\s*\d/.test(line), items = [];
      while (at < lines.length && (item.test(lines[at]) || (/^\s{2,}\S/.test(lines[at]) && items.length))) {
        if (item.test(lines[at])) items.push(lines[at].replace(item, ""));
        else items[items.length - 1] += `\n${lines[at].trim()}`;
        at += 1;
      }
      box.append(h(isNumbered ? "ol" : "ul", {}, items.map((text) => h("li", {}, inline(text)))));
      continue;
    }
    const body = [];
    while (at < lines.length && lines[at].trim() && !/^(#{1,6}\s|\s{0,3}(```|~~~)|\s*>|\s*([-*+]|\d{1,9}[.)])\s)/.test(lines[at])) body.push(lines[at++]);
    if (!body.length) body.push(lines[at++]);
    box.append(h("p", {}, inline(body.join("\n"))));
  }
  if (whole.length > LONGEST) box.append(h("p", { class: "dim" }, "… the rest is too long to be shown here"));
  return box;
}

/** One pass, each sign looked at once: a text of any length takes time that grows with it. */
function inline(value) {
  const nodes = [];
  let rest = value.slice(0, 50000), words = "";
  const flush = () => { if (words) nodes.push(words); words = ""; };
  while (rest) {
    const next = rest.search(/[`*_[\n]/);
    if (next < 0) { words += rest; break; }
    words += rest.slice(0, next);
    rest = rest.slice(next);
    const code = /^`([^`\n]{1,2000})`/.exec(rest);
    const strong = /^(\*\*|__)(?=\S)([^*_\n]{1,2000}?)\1/.exec(rest);
    const soft = /^([*_])(?=\S)([^*_\n]{1,2000}?)\1(?!\w)/.exec(rest);
    const link = /^\[([^\]\n]{1,500})\]\(([^)\s]{1,2000})\)/.exec(rest);
    const found = code ?? strong ?? soft ?? link;
    if (rest[0] === "\n") { flush(); nodes.push(h("br")); rest = rest.slice(1); continue; }
    if (!found) { words += rest[0]; rest = rest.slice(1); continue; }
    flush();
    if (code) nodes.push(h("code", {}, code[1]));
    else if (strong) nodes.push(h("strong", {}, strong[2]));
    else if (soft) nodes.push(h("em", {}, soft[2]));
    else nodes.push(...target(link[1], link[2]));
    rest = rest.slice(found[0].length);
  }
  flush();
  if (value.length > 50000) nodes.push(" …");
  return nodes;
}

function target(words, address) {
  const where = h("span", { class: "target" }, ` (${address})`);
  if (!/^(https?:|mailto:)/i.test(address)) return [words, where];
  return [h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, words), where];
}
