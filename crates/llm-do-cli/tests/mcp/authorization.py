"""A server of tools and its authorization server in one, of the revision 2026-07-28, honest or not.

  authorization.py CASE LOG        prints its port

LOG has a line for each request. Whatever the case names is done wrong, and nothing else. `evil` in an address is a server of
this process, too: a line of LOG that begins with `evil` says that somebody was led there.
"""

import base64
import hashlib
import http.server
import json
import sys
import threading
import time
import urllib.parse

CASE, LOG = sys.argv[1], sys.argv[2]
lock = threading.Lock()
state = {"codes": {}, "access": set(), "refresh": {}, "count": 0}
HUGE = "x" * 300_000


def log(line):
    with lock, open(LOG, "a") as file:
        file.write(line + "\n")


def new(kind):
    state["count"] += 1
    return f"{kind}-token-{state['count']:04}-that-nobody-may-see"


def tokens():
    access, refresh = new("access"), new("refresh")
    state["access"] = {access}
    state["refresh"][refresh] = access
    made = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "expires_in": 3600}
    if CASE == "token_mac":
        made["token_type"] = "mac"
    if CASE == "token_line":
        made["access_token"] = "a\r\nX-Other: b"
    if CASE == "token_number":
        made["access_token"] = 7
    if CASE == "token_huge":
        made["more"] = HUGE
    return made


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    @property
    def here(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, status, body=b"", kind="application/json", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def resource(self):
        own, issuer = f"{self.here}/mcp", self.here
        document = {"resource": own, "authorization_servers": [issuer], "scopes_supported": ["read"]}
        changed = {
            "resource_host": {"resource": "http://localhost:1/mcp"},
            "resource_public": {"resource": "https://evil.example.com/mcp"},
            "resource_path": {"resource": f"{own}/other"},
            "resource_sibling": {"resource": f"{self.here}/mc"},
            "resource_scheme": {"resource": own.replace("http:", "https:")},
            "resource_query": {"resource": f"{own}?x=y"},
            "resource_empty": {"resource": ""},
            "issuer_none": {"authorization_servers": []},
            "issuer_plain": {"authorization_servers": ["http://auth.example.com"]},
            "issuer_script": {"authorization_servers": ["javascript:alert(1)"]},
            "issuer_user": {"authorization_servers": [f"http://me@127.0.0.1:{self.server.server_port}"]},
            "issuer_file": {"authorization_servers": ["file:///etc/passwd"]},
            "issuer_number": {"authorization_servers": [7]},
            "resource_huge": {"more": HUGE},
        }
        return {**document, **changed.get(CASE, {})}

    def issuer(self):
        document = {
            "issuer": self.here,
            "authorization_endpoint": f"{self.here}/authorize",
            "token_endpoint": f"{self.here}/token",
            "registration_endpoint": f"{self.here}/register",
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": CASE.startswith("iss"),
        }
        changed = {
            "other_issuer": {"issuer": "https://evil.example.com"},
            "other_slash": {"issuer": f"{self.here}/"},
            "other_case": {"issuer": self.here.replace("http", "HTTP")},
            "other_name": {"issuer": self.here.replace("127.0.0.1", "localhost")},
            "pkce_plain": {"code_challenge_methods_supported": ["plain"]},
            "pkce_none": {"code_challenge_methods_supported": []},
            "token_plain": {"token_endpoint": "http://auth.example.com/token"},
            "token_file": {"token_endpoint": "file:///token"},
            "page_script": {"authorization_endpoint": "javascript:alert(1)"},
            "page_plain": {"authorization_endpoint": "http://auth.example.com/authorize"},
            "page_none": {"authorization_endpoint": None},
            "register_plain": {"registration_endpoint": "http://auth.example.com/register"},
            "register_none": {"registration_endpoint": None},
            "issuer_huge": {"more": HUGE},
        }
        return {**document, **changed.get(CASE, {})}

    def do_GET(self):
        place, _, query = self.path.partition("?")
        log(f"{'evil ' if 'evil' in place else ''}GET {place}")
        said = dict(urllib.parse.parse_qsl(query))
        if "oauth-protected-resource" in place:
            if CASE == "resource_moved":
                return self.reply(302, location=f"{self.here}/evil")
            if CASE == "resource_broken":
                return self.reply(500)
            if CASE == "resource_gone":
                return self.reply(404)
            if CASE == "resource_words":
                return self.reply(200, b"<html>")
            return self.reply(200, self.resource())
        if "oauth-authorization-server" in place or "openid-configuration" in place:
            if CASE == "issuer_moved":
                return self.reply(302, location=f"{self.here}/evil")
            if CASE == "issuer_gone":
                return self.reply(404)
            if CASE == "issuer_words":
                return self.reply(200, b"[]")
            return self.reply(200, self.issuer())
        if place == "/authorize":
            return self.authorize(said)
        self.reply(404)

    def authorize(self, said):
        assert said["code_challenge_method"] == "S256" and said["resource"] == f"{self.here}/mcp", said
        code = f"code-{len(state['codes'])}"
        state["codes"][code] = said["code_challenge"]
        back = {"code": code, "state": said["state"]}
        if CASE.startswith("iss"):
            back["iss"] = self.here
        changed = {
            "iss_wrong": {"iss": "https://evil.example.com"},
            "iss_slash": {"iss": f"{self.here}/"},
            "iss_missing": {"iss": None},
            "declined": {"code": None, "error": "access_denied"},
            "no_code": {"code": None},
            "empty_code": {"code": ""},
        }
        back = {**back, **changed.get(CASE, {})}
        words = urllib.parse.urlencode({key: value for key, value in back.items() if value is not None})
        self.reply(302, location=f"{said['redirect_uri']}?{words}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        place = self.path
        if place == "/mcp":
            return self.tools(json.loads(body))
        log(f"{'evil ' if 'evil' in place else ''}POST {place}")
        if place == "/register":
            if CASE == "register_refused":
                return self.reply(400, {"error": "invalid_client_metadata"})
            if CASE == "register_words":
                return self.reply(201, b"hello")
            if CASE == "register_nobody":
                return self.reply(201, {"client_name": "x"})
            if CASE == "register_moved":
                return self.reply(307, location=f"{self.here}/evil")
            wanted = json.loads(body)
            assert wanted["application_type"] == "native" and "refresh_token" in wanted["grant_types"], wanted
            return self.reply(201, {"client_id": "client", **wanted})
        if place == "/token":
            return self.token(dict(urllib.parse.parse_qsl(body)))
        self.reply(404)

    def token(self, said):
        log(f"token {said['grant_type']}")
        if CASE == "token_moved":
            return self.reply(307, location=f"{self.here}/evil")
        if CASE == "token_refused":
            return self.reply(400, {"error": "invalid_grant"})
        if CASE == "token_words":
            return self.reply(200, b"hello")
        assert said["resource"] == f"{self.here}/mcp", said
        if said["grant_type"] == "refresh_token":
            time.sleep(0.2 if CASE == "good_slow" else 0)
            with lock:
                if said["refresh_token"] not in state["refresh"]:
                    return self.reply(400, {"error": "invalid_grant"})
                return self.reply(200, tokens())
        challenge = base64.urlsafe_b64encode(hashlib.sha256(said["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if state["codes"].pop(said["code"], None) != challenge:
            return self.reply(400, {"error": "invalid_grant"})
        with lock:
            return self.reply(200, tokens())

    def tools(self, message):
        method = message["method"]
        log(f"mcp {method}")
        if method == "expire":
            with lock:
                state["access"] = set()
            return self.reply(200, {})
        given = self.headers.get("authorization", "").removeprefix("Bearer ")
        with lock:
            known = given in state["access"]
        if not known:
            named = f'{self.here}/.well-known/oauth-protected-resource/mcp'
            named = "file:///etc/passwd" if CASE == "challenge_file" else named
            return self.reply(401, {}, www_authenticate=f'Bearer resource_metadata="{named}", scope="read"')
        results = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "ttlMs": 60000},
            "tools/call": {"content": [{"type": "text", "text": f"you are {given}"}]},
        }
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **results[method]}})


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *words):
        """Whoever is killed reads no answer."""


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
