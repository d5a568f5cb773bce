"""The client that the official conformance suite drives: a project is written for the server whose address comes last, and run
by the program that LLM_DO names, with stdin closed. Where the run wants a login, somebody logs in and it goes on; where it
asks, somebody answers. What is asked of the server is a matter of the scenario, as its author describes it."""

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile

LLM_DO = os.environ["LLM_DO"]
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
URL = sys.argv[-1]
TIMES = 5

CALLS = {
    "initialize": [],
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "request-metadata": [],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "sse-retry": [("test_reconnection", {})],
    "http-standard-headers": [("test_headers", {}), ("my-hyphenated-tool", {})],
    "http-invalid-tool-headers": [("valid_tool", {"region": "us-west1"})],
    "json-schema-ref-no-deref": [],
    "json-schema-2020-12-preservation": [],
    "sep-2322-client-request-state": [
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ],
}


def calls():
    if "toolCalls" in CONTEXT:
        # What is null is left out: arguments that the schema of their tool does not take are refused before they are sent.
        given = [(call["name"], call["arguments"]) for call in CONTEXT["toolCalls"]]
        return [(tool, {key: value for key, value in all.items() if value is not None}) for tool, all in given]
    if SCENARIO == "auth/authorization-server-migration":
        # Its authorization server is another one once the first request was let in.
        return [("test-tool", {}), ("test-tool", {})]
    return CALLS.get(SCENARIO, [("test-tool", {})] if SCENARIO.startswith("auth/") else [])


def auth():
    if not SCENARIO.startswith("auth/"):
        return None
    secret = {"client_secret": {"from_env": "CLIENT_SECRET"}} if "client_secret" in CONTEXT else {}
    if SCENARIO == "auth/client-credentials-basic":
        return {"grant": "client_credentials", "client_id": CONTEXT["client_id"], **secret}
    if SCENARIO == "auth/pre-registration":
        return {"client_id": CONTEXT["client_id"], **secret}
    return "oauth"


def write(place):
    server = {"url": URL}
    if auth():
        server["auth"] = auth()
    manifest = {
        "version": 1,
        "entry": {"agent": "main"},
        "worker_files": ["main.worker"],
        "toolsets": {"suite": {"mcp": server}},
    }
    rounds = [
        {"agent": "main", "round": number + 1, "call": {tool: arguments}}
        for number, (tool, arguments) in enumerate(calls())
    ]
    files = {
        "project.json": json.dumps(manifest),
        "main.worker": "---\nname: main\ntoolsets: [suite]\n---\nYou use tools.\n",
        # JSON is YAML.
        "script.yaml": json.dumps([*rounds, {"say": "done"}]),
    }
    os.makedirs(f"{place}/.config/llm-do")
    with open(f"{place}/.config/llm-do/config.toml", "w") as file:
        file.write('[mcp]\nclient_metadata_url = "https://conformance-test.local/client-metadata.json"\n')
    for name, text in files.items():
        with open(f"{place}/{name}", "w") as file:
            file.write(text)


def ran(place, *words, **more):
    environment = {
        "HOME": place,
        "PATH": os.environ["PATH"],
        "BROWSER": "curl -sL",
        "CLIENT_SECRET": CONTEXT.get("client_secret", ""),
        "LLM_DO_TRUST": "1",
    }
    ended = subprocess.run(
        [LLM_DO, *words], cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=25, **more
    )
    sys.stderr.write(f"$ llm-do {' '.join(words)}\n{ended.stdout}{ended.stderr}exit {ended.returncode}\n")
    return ended


def answered_on_the_way(place):
    """A server of an earlier revision asks within its call: somebody has to be there."""
    from subprocess import PIPE, Popen

    environment = {"HOME": place, "PATH": os.environ["PATH"], "LLM_DO_TRUST": "1"}
    driven = Popen([LLM_DO, "serve", "--stdio"], cwd=place, env=environment, stdin=PIPE, stdout=PIPE, text=True)
    number = 0

    def send(**message):
        driven.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        driven.stdin.flush()

    def ask(method, **params):
        nonlocal number
        number += 1
        send(id=number, method=method, params=params)
        for line in driven.stdout:
            message = json.loads(line)
            sys.stderr.write(line)
            if message.get("method") == "approve":
                has_form = bool(message["params"].get("form"))
                send(id=message["id"], result={"approved": True, **({"values": {}} if has_form else {})})
            elif message.get("id") == number and "method" not in message:
                return message
        raise SystemExit("it ended")

    ask("hello", protocol=1)
    opened = ask("open", project=".", model="scripted:script.yaml")
    ask("turn", scope=opened["result"]["scope"], input="hi")
    driven.stdin.close()
    driven.wait(timeout=10)


def main():
    with tempfile.TemporaryDirectory() as place:
        write(place)
        if SCENARIO == "elicitation-sep1034-client-defaults":
            return answered_on_the_way(place)
        ended = ran(place, "run", ".", "hi", "-m", "scripted:script.yaml", "--approve-all")
        for _ in range(TIMES):
            if ended.returncode != 4:
                break
            run = re.findall(r"resume ([0-9a-z]{8,16})", ended.stderr)
            if not run:
                break
            questions = sorted(set(re.findall(r"--answer ([0-9a-f]{12})", ended.stderr)))
            if "wants a login" in ended.stderr:
                # The suite runs many of these at once, and there are three ports to come back to.
                with open(f"{tempfile.gettempdir()}/llm-do-conformance-login", "w") as turn:
                    fcntl.flock(turn, fcntl.LOCK_EX)
                    logged_in = ran(place, "mcp", "login", "suite", ".")
                if logged_in.returncode != 0:
                    return 1
                ended = ran(place, "resume", run[-1], "--approve-all")
            elif questions:
                words = [word for question in questions for word in ("--answer", f"{question}.confirmed=yes")]
                ended = ran(place, "resume", run[-1], "--approve-all", *words)
            else:
                break
        return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
