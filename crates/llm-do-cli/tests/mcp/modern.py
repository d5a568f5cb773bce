"""A server of the revision 2026-07-28, and servers of earlier ones that do not know its first question.

  modern.py stdio modern|exits|silent|elicits LOG
  modern.py http modern|earlier LOG        prints its port

What it hears stands in LOG, a line for each message; tasks stand in LOG.tasks, so that a server that is started again knows them.
"""

import base64
import http.server
import json
import os
import sys
import threading

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 1, "default": 30},
    },
    "required": ["name", "age"],
}
TOOLS = [
    {
        "name": "echo",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}},
    },
    {"name": "ask", "inputSchema": {"type": "object"}},
    {"name": "pay", "inputSchema": {"type": "object"}},
    {"name": "endless", "inputSchema": {"type": "object"}},
    {"name": "sample", "inputSchema": {"type": "object"}},
    {"name": "slow", "inputSchema": {"type": "object"}},
    {"name": "stuck", "inputSchema": {"type": "object"}},
    {"name": "bad", "inputSchema": {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}},
]
log_path = sys.argv[3]
lock = threading.Lock()


def log(line):
    with lock, open(log_path, "a") as file:
        file.write(line + "\n")


def tasks(change=None):
    path = log_path + ".tasks"
    try:
        with open(path) as file:
            known = json.load(file)
    except FileNotFoundError:
        known = {}
    if change:
        change(known)
        with open(path + ".new", "w") as file:
            json.dump(known, file)
        os.replace(path + ".new", path)
    return known


class Refused(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


def text(words):
    return {"resultType": "complete", "content": [{"type": "text", "text": words}]}


def question(key, message, schema=FORM):
    return {key: {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}}


def call(params):
    name, answers, state = params["name"], params.get("inputResponses"), params.get("requestState")
    log(f"call {name} {json.dumps(answers, sort_keys=True)} {state}")
    if name == "echo":
        return text(params["arguments"].get("text", ""))
    if name == "ask":
        if answers is None:
            return {"resultType": "input_required", "inputRequests": question("who", "Who is it?"), "requestState": "s1"}
        if state == "s1":
            asked = question("sure", "Sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]})
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "s2:" + json.dumps(answers["who"])}
        return text(f"{state[3:]} {json.dumps(answers['sure'])}")
    if name == "pay":
        if answers is None:
            asked = {"mode": "url", "message": "Pay first", "url": "https://pay.example.com/bill/1?x=y"}
            return {"resultType": "input_required", "inputRequests": {"p": {"method": "elicitation/create", "params": asked}}}
        return text(answers["p"]["action"])
    if name == "endless":
        return {"resultType": "input_required", "requestState": "more"}
    if name == "sample":
        return {"resultType": "input_required", "inputRequests": {"s": {"method": "sampling/createMessage", "params": {}}}}
    if name in ("slow", "stuck"):
        task = f"{name}-{len(tasks())}"
        tasks(lambda known: known.update({task: {"polls": 0, "answers": None}}))
        return described(task, "working", resultType="task")
    raise Refused(-32602, f"unknown tool {name}")


def described(task, status, **more):
    moment = "2026-07-28T00:00:00Z"
    return {
        "resultType": "complete", "taskId": task, "status": status, "createdAt": moment, "lastUpdatedAt": moment, "ttlMs": None,
        "pollIntervalMs": 1, **more,
    }


def task(method, params):
    name = params["taskId"]
    log(f"{method} {name} {json.dumps(params.get('inputResponses'), sort_keys=True)}")
    if name not in tasks():
        raise Refused(-32602, "unknown task")
    if method == "tasks/cancel":
        tasks(lambda known: known[name].update({"cancelled": True}))
        return {"resultType": "complete"}
    if method == "tasks/update":
        tasks(lambda known: known[name].update({"answers": params["inputResponses"]}))
        return {"resultType": "complete"}
    known = tasks(lambda known: known[name].update({"polls": known[name]["polls"] + 1}))[name]
    if known.get("cancelled"):
        return described(name, "cancelled")
    if name.startswith("stuck") or known["polls"] < 3:
        return described(name, "working", statusMessage=f"poll {known['polls']}")
    if known["answers"] is None:
        return described(name, "input_required", inputRequests=question("who", "Who is it?"))
    return described(name, "completed", result=text(json.dumps(known["answers"]["who"])))


def modern(message, headers=None):
    method, params = message["method"], message.get("params") or {}
    meta = params.get("_meta") or {}
    if PREFIX + "protocolVersion" not in meta:
        raise Refused(-32602, "no `_meta`")
    if meta[PREFIX + "protocolVersion"] != MODERN:
        raise Refused(-32022, "another revision", {"supported": [MODERN], "requested": meta[PREFIX + "protocolVersion"]})
    can = meta[PREFIX + "clientCapabilities"]
    assert "form" in can["elicitation"] and PREFIX + "tasks" in can["extensions"], can
    if headers is not None:
        check_headers(method, params, headers)
    if method == "server/discover":
        log(method)
        return {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        log(method)
        return {"resultType": "complete", "tools": TOOLS, "ttlMs": 60000, "cacheScope": "private"}
    if method == "tools/call":
        return call(params)
    if method.startswith("tasks/"):
        return task(method, params)
    raise Refused(-32601, "there is no such method")


def check_headers(method, params, headers):
    expected = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if method == "tools/call":
        expected["mcp-name"] = params["name"]
        if params["name"] == "echo" and "text" in params["arguments"]:
            expected["mcp-param-text"] = params["arguments"]["text"]
    if method.startswith("tasks/"):
        expected["mcp-name"] = params["taskId"]
    if "mcp-session-id" in headers:
        raise Refused(-32020, "there are no sessions")
    for name, value in expected.items():
        given = headers.get(name) or ""
        if given.startswith("=?base64?"):
            given = base64.b64decode(given[9:-2]).decode()
        if given != value:
            raise Refused(-32020, f"{name} is {given!r}")


def answer(message, headers=None):
    try:
        return {"jsonrpc": "2.0", "id": message["id"], "result": modern(message, headers)}
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}


def say(message):
    print(json.dumps(message), flush=True)


def stdio(kind):
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if kind == "modern":
            if number is not None and method:
                say(answer(message))
            continue
        log(method or "answer " + json.dumps(message.get("result"), sort_keys=True))
        if method == "server/discover" and kind == "exits":
            sys.exit(1)
        elif method == "initialize":
            capabilities = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            say({"jsonrpc": "2.0", "id": number, "result": capabilities})
        elif method == "tools/list":
            say({"jsonrpc": "2.0", "id": number, "result": {"tools": TOOLS[:2]}})
        elif method == "tools/call":
            if kind == "elicits":
                say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Who is it?", "requestedSchema": FORM}})
                said = json.loads(sys.stdin.readline())
                log("answer " + json.dumps(said.get("result"), sort_keys=True))
                say({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": said["result"]["action"]}]}})
            else:
                say({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "old"}]}})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def earlier(self, message):
        """One of 2025-11-25, whose streams break off."""
        method, number = message.get("method"), message.get("id")
        session = self.headers.get("mcp-session-id")
        log(f"POST {method} {session} {self.headers.get('mcp-protocol-version')}")
        if method == "initialize":
            said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            return self.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": said}).encode(), mcp_session_id="s-1")
        if session != "s-1":
            error = {"code": -32000, "message": "Bad Request: no session"}
            return self.reply(400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
        if number is None:
            return self.reply(202, b"")
        if method == "tools/call":
            self.server.waiting = number
            return self.reply(200, b"id: 7\nretry: 10\ndata: \n\n", "text/event-stream")
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": TOOLS[:1]}}).encode())

    def do_POST(self):
        if sys.argv[2] == "earlier":
            return self.earlier(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = answer(message, {name.lower(): value for name, value in self.headers.items()})
        code = said.get("error", {}).get("code")
        self.reply(200 if code is None else 404 if code == -32601 else 400, json.dumps(said).encode())

    def do_GET(self):
        last = self.headers.get("last-event-id")
        if sys.argv[2] == "modern" or last is None:
            return self.reply(405, b"")
        log(f"GET {last} {self.headers.get('mcp-session-id')}")
        # It breaks off once more, and then there is the answer.
        if last == "7":
            return self.reply(200, b"id: 8\ndata: \n\n", "text/event-stream")
        said = json.dumps({"jsonrpc": "2.0", "id": self.server.waiting, "result": {"content": [{"type": "text", "text": "late"}]}})
        self.reply(200, f"id: 9\ndata: {said}\n\n".encode(), "text/event-stream")

    def do_DELETE(self):
        log(f"DELETE {self.headers.get('mcp-session-id')}")
        self.reply(200, b"")

    def reply(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if sys.argv[1] == "stdio":
    stdio(sys.argv[2])
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # Whoever is killed reads no answer.
    server.handle_error = lambda *words: None
    print(server.server_port, flush=True)
    server.serve_forever()
