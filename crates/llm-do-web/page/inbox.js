// Inbox: the open questions of all runs.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { question } from "./question.js";

export async function view(main, _, context) {
  let asked = [], at = 0, stopped = false, timer;
  const list = h("div");
  replace(main, h("div", { class: "head" }, h("h1", {}, "Inbox"), h("span", { class: "dim" }, "open questions of all runs")), list);

  const mark = () => asked.forEach((one, place) => one.box.classList.toggle("at", place === at && asked.length > 1));
  const move = (to) => {
    at = Math.max(0, Math.min(asked.length - 1, to));
    mark();
    asked[at]?.box.scrollIntoView({ block: "nearest" });
    asked[at]?.box.focus({ preventScroll: true });
  };
  async function load() {
    const { questions, left_out } = await get("/api/questions");
    if (stopped) return;
    const known = new Map(asked.map((one) => [one.digest, one]));
    const next = questions.map((one) => known.get(one.digest) ?? question(one, () => load().catch(context.trouble)));
    asked.filter((one) => !next.includes(one)).forEach((one) => one.leave());
    const isNew = next.length !== asked.length || next.some((one, place) => one !== asked[place]);
    asked = next;
    context.waits(questions.length);
    if (isNew || !list.children.length) {
      replace(list, asked.length ? asked.map((one) => one.box) : h("div", { class: "empty" }, h("p", {}, "No question is open."), h("p", { class: "small" }, "When a run of any project asks, it is shown here at once.")), left_out.map((words) => h("p", { class: "note bad" }, words)));
      at = Math.min(at, Math.max(0, asked.length - 1));
      mark();
    }
  }
  const tick = async () => {
    if (!document.hidden) await load().catch(context.trouble);
    if (!stopped) timer = setTimeout(tick, 700);
  };
  await load();
  timer = setTimeout(tick, 700);
  return {
    title: "Inbox",
    leave() { stopped = true; clearTimeout(timer); asked.forEach((one) => one.leave()); },
    key(key) {
      if (key === "j" || key === "k") { move(at + (key === "j" ? 1 : -1)); return true; }
      return asked[at]?.act(key, true) ?? false;
    },
    keys: [["j k", "next and previous"], ["y", "yes, once"], ["s t", "this call, this tool"], ["a", "always"], ["e", "edit"], ["n", "no"]],
  };
}
