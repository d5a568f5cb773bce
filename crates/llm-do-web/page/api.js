// Requests to our own server. The key came behind the `#` of the address, which no server is sent; it stays in this tab.

const FIELD = "llm-do-key";

export function takeKey() {
  const found = /^#k=([0-9a-f]{64})$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(FIELD, found[1]);
    history.replaceState(null, "", `${location.pathname}#/runs`);
  }
  return sessionStorage.getItem(FIELD);
}

export const forgetKey = () => sessionStorage.removeItem(FIELD);

const headers = (more) => ({ authorization: `Bearer ${sessionStorage.getItem(FIELD) ?? ""}`, ...more });

/** What went wrong, in the server's words. */
export class Trouble extends Error {
  constructor(status, error) {
    super(error?.message ?? "the server cannot be reached");
    this.status = status;
    this.error = error ?? {};
    this.hint = error?.hint;
  }
  get words() { return this.hint ? `${this.message}: ${this.hint}` : this.message; }
}

export async function get(path) { return send("GET", path); }
export async function post(path, body = {}) { return send("POST", path, body); }

async function send(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, { method, headers: headers(body ? { "content-type": "application/json" } : {}), body: body && JSON.stringify(body), credentials: "omit", redirect: "error", cache: "no-store" });
  } catch {
    throw new Trouble(0);
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Trouble(answer.status, said.error);
  return said;
}

/** Events as they come, from the last one that was heard on, until they end or are not wanted any more. */
export async function listen(path, hear, signal) {
  let last = null, pause = 250;
  while (!signal.aborted) {
    try {
      const answer = await fetch(path, { headers: headers(last ? { "last-event-id": last } : {}), credentials: "omit", cache: "no-store", signal });
      if (answer.status === 404 || answer.status === 401) return;
      if (!answer.ok) throw new Error();
      pause = 250;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += value;
        let end;
        while ((end = rest.indexOf("\n\n")) >= 0) {
          const frame = rest.slice(0, end);
          rest = rest.slice(end + 2);
          let name = "", data = "", id = null;
          for (const line of frame.split("\n")) {
            if (line.startsWith("event: ")) name = line.slice(7);
            else if (line.startsWith("data: ")) data += line.slice(6);
            else if (line.startsWith("id: ")) id = line.slice(4);
          }
          if (!name) continue;
          if (id) last = id;
          hear(name, JSON.parse(data));
          if (name === "end") return;
        }
      }
    } catch {
      if (signal.aborted) return;
    }
    await new Promise((go) => setTimeout(go, pause));
    pause = Math.min(pause * 2, 5000);
  }
}
