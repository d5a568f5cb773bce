// Elements, and text that is safe to show: whatever comes from a model, a file or a person becomes a text node, never markup.

/** Characters that cannot be seen, or that turn a line around. */
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|[\u{e0000}-\u{e0fff}]|[\u{1d173}-\u{1d17a}]/gu;

/** Text as nodes, with what cannot be seen written out. */
export function text(value) {
  const whole = String(value ?? "");
  const parts = [];
  let last = 0;
  for (const match of whole.matchAll(ODD)) {
    if (match.index > last) parts.push(document.createTextNode(whole.slice(last, match.index)));
    const mark = document.createElement("span");
    mark.className = "odd";
    mark.textContent = `\\u{${match[0].codePointAt(0).toString(16)}}`;
    parts.push(mark);
    last = match.index + match[0].length;
  }
  if (last < whole.length) parts.push(document.createTextNode(whole.slice(last)));
  return parts;
}

/** The same where no element can stand. */
export function plain(value) {
  return String(value ?? "").replace(ODD, (odd) => `\\u{${odd.codePointAt(0).toString(16)}}`);
}

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "line", "circle", "defs", "pattern", "title"]);

/** An element: properties that begin with `on` are listeners, the others attributes; texts become text nodes. */
export function h(tag, properties, ...children) {
  const isSvg = SVG_TAGS.has(tag) || tag === "svg:text";
  const element = isSvg ? document.createElementNS(SVG, tag.replace("svg:", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) element.append(child);
    else element.append(...text(child));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** A long text, of which the beginning is shown first. */
export function long(value, most = 4000) {
  const whole = String(value ?? "");
  const pre = h("pre", { tabindex: "0" }, whole.slice(0, most));
  if (whole.length <= most) return pre;
  let shown = most;
  const more = h("button", { class: "plain", onclick: () => {
    const next = Math.min(whole.length, shown + 200000);
    pre.append(...text(whole.slice(shown, next)));
    shown = next;
    if (shown >= whole.length) more.remove();
  } }, `show more (${size(whole.length)} in all)`);
  return h("div", {}, pre, more);
}

export const money = (usd) => usd === null || usd === undefined ? "–" : usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
export const count = (number) => number >= 1e6 ? `${(number / 1e6).toFixed(1)}M` : number >= 1e4 ? `${Math.round(number / 1e3)}k` : number >= 1e3 ? `${(number / 1e3).toFixed(1)}k` : String(number ?? 0);
export const size = (bytes) => bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : bytes >= 1e3 ? `${Math.round(bytes / 1e3)} kB` : `${bytes} B`;

export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export function took(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
}

export const lastName = (path) => String(path ?? "").replace(/\/+$/, "").split("/").pop() || path;

/** Says something for a moment, also to those who listen. */
let saying;
export function say(words) {
  const place = document.getElementById("said");
  replace(place, words);
  clearTimeout(saying);
  saying = setTimeout(() => place.replaceChildren(), 6000);
}

/** A list of rows of one height, of which only those exist that are seen: ten thousand cost no more than fifty. */
export function rows(label, height, most = 480) {
  const pad = h("div", { class: "pad", role: "presentation" });
  const box = h("div", { class: "list", role: "region", "aria-label": label, tabindex: "0" }, pad);
  let items = [], draw = () => h("div"), last = "";
  const show = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / height) - 8);
    const end = Math.min(items.length, first + Math.ceil((box.clientHeight || most) / height) + 16);
    const now = `${first}:${end}:${items.length}`;
    if (now === last) return;
    last = now;
    pad.replaceChildren(...items.slice(first, end).map((item, at) => {
      const element = draw(item, first + at);
      element.style.top = `${(first + at) * height}px`;
      return element;
    }));
  };
  box.addEventListener("scroll", show, { passive: true });
  return {
    box,
    set(next, how) {
      items = next; draw = how; last = "";
      pad.style.height = `${items.length * height}px`;
      box.style.height = `${Math.min(most, items.length * height + 2)}px`;
      show();
    },
    redraw() { last = ""; show(); },
    reveal(at) {
      const top = at * height;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
      last = ""; show();
    },
  };
}

/** A question to the person, in a dialog; gives what the form holds, or nothing. */
export function dialog(title, fields, verb) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog", class: "fields" }, fields,
      h("div", { class: "row" }, h("button", { class: "main", value: "yes" }, verb), h("button", { value: "", formnovalidate: true }, "Cancel")));
    const box = h("dialog", { "aria-label": title }, h("h2", {}, title), form);
    box.addEventListener("close", () => {
      const result = box.returnValue === "yes" ? new FormData(form) : null;
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}
