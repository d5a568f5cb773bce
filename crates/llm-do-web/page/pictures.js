// Pictures: where things stand is decided by the server; here they are drawn.

import { h, count, money, took } from "./dom.js";

/** The pattern for time in which a person was waited for. */
export const hatch = () => h("defs", {}, h("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, h("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" })));

const cut = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;

/** Who calls whom. */
export function callGraph(picture, choose) {
  const arrows = picture.arrows.map((arrow) => {
    const [a, b, c, d] = arrow.points;
    const back = arrow.is_back;
    const tip = back ? `M${d[0]} ${d[1]} l7 -4 v8 z` : `M${d[0]} ${d[1]} l-7 -4 v8 z`;
    return h("g", {}, h("path", { class: "arrow", d: `M${a[0]} ${a[1]} C${b[0]} ${b[1]} ${c[0]} ${c[1]} ${d[0]} ${d[1]}` }), h("path", { class: "tip", d: tip }));
  });
  const boxes = picture.boxes.map((box) => {
    const words = (list) => list.join(", ").replaceAll("_", " ");
    const can = [box.unasked.length ? `can: ${words(box.unasked)}` : null, box.asked.length ? `asks: ${words(box.asked)}` : null].filter(Boolean);
    return h("g", { class: "node", onclick: () => choose(box.name) },
      h("title", {}, `${box.name} · ${box.model}\nwithout a question: ${box.unasked.join(", ") || "nothing"}\nafter a question: ${box.asked.join(", ") || "nothing"}`),
      h("rect", { class: `box${box.is_entry ? " entry" : ""}${box.is_cyclic ? " cyclic" : ""}`, x: box.x, y: box.y, width: box.width, height: box.height, rx: 8 }),
      h("svg:text", { class: "strong", x: box.x + 12, y: box.y + 22 }, cut(box.name, 22) + (box.is_cyclic ? " ↻" : "")),
      h("svg:text", { class: "dim", x: box.x + 12, y: box.y + 40 }, cut(box.model, 30)),
      (can.length ? can : ["no effects"]).map((line, at) => h("svg:text", { class: line.startsWith("asks") ? "asks" : "dim", x: box.x + 12, y: box.y + 58 + at * 17 }, cut(line, 32))));
  });
  const svg = h("svg", { width: picture.width, height: picture.height, viewBox: `0 0 ${picture.width} ${picture.height}`, role: "img", "aria-label": `Agents and their calls: ${picture.boxes.map((box) => box.name).join(", ")}` }, arrows, boxes);
  return h("div", { class: "picture", tabindex: "0", role: "region", "aria-label": "Call graph" }, svg);
}

/** The bar of one row of a timeline. */
export function bar(row) {
  return h("svg", { viewBox: "0 0 1000 16", preserveAspectRatio: "none", "aria-hidden": "true" }, h("rect", { class: row.kind, x: row.left, y: 3, width: row.width, height: 10, rx: 2 }));
}

/** The marks above it. */
export function axis(timeline) {
  return h("div", { class: "row dim small" }, timeline.ticks.length ? `0 – ${took(timeline.span)}` : "");
}

/** One bar for each sum. */
export function plot(sums, label) {
  const most = Math.max(...sums.map((sum) => sum.usd), 1e-9);
  const width = 10, gap = sums.length > 100 ? 0 : 3, height = 54;
  const whole = Math.max(1, sums.length) * (width + gap);
  const tall = (sum) => Math.max(1, sum.usd / most * (height - 2));
  return h("svg", { viewBox: `0 0 ${whole} ${height}`, width: "100%", height, preserveAspectRatio: "none", role: "img", "aria-label": label },
    sums.map((sum, at) => h("rect", { class: sum.usd > 0 ? "plot" : "none", x: at * (width + gap), width, y: height - tall(sum), height: tall(sum) }, h("title", {}, `${sum.name}: ${money(sum.usd)}, ${count(sum.in + sum.out)} tokens`))));
}

/** How much of the largest sum this one is. */
export function share(usd, most) {
  return h("svg", { viewBox: "0 0 100 8", width: 90, height: 8, preserveAspectRatio: "none", "aria-hidden": "true" }, most > 0 && usd > 0 ? h("rect", { class: "plot", x: 0, y: 0, width: Math.max(1, usd / most * 100), height: 8 }) : null);
}

/** How much of something is used. */
export function gauge(used, of, label) {
  const share = of > 0 ? Math.min(1, used / of) : 0;
  return h("svg", { viewBox: "0 0 200 10", width: "100%", height: 10, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("rect", { class: "budget", x: 0, y: 0, width: 200, height: 10, rx: 3 }),
    h("rect", { class: share >= 1 ? "over" : share >= 0.8 ? "warn" : "plot", x: 0, y: 0, width: 200 * share, height: 10, rx: 3 }));
}
