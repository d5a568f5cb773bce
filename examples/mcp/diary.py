"""A diary for whoever speaks MCP, without any library: one message per line, as JSON, in and out."""

import json
import sys

DAY = {"type": "string", "enum": ["monday", "tuesday", "wednesday", "thursday", "friday"]}
TOOLS = [
    {
        "name": "appointments",
        "description": "The appointments of a day, by hour.",
        "inputSchema": {"type": "object", "properties": {"day": DAY}, "required": ["day"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "make_appointment",
        "description": "Makes an appointment.",
        "inputSchema": {
            "type": "object",
            "properties": {"day": DAY, "hour": {"type": "integer", "minimum": 8, "maximum": 18}, "with": {"type": "string"}},
            "required": ["day", "hour", "with"],
        },
    },
    {
        "name": "clear_day",
        "description": "Cancels all appointments of a day.",
        "inputSchema": {"type": "object", "properties": {"day": DAY}, "required": ["day"]},
        "annotations": {"destructiveHint": True},
    },
]
diary = {"monday": {10: "the dentist"}}


def call(name, arguments):
    day = diary.setdefault(arguments["day"], {})
    if name == "appointments":
        return "\n".join(f"{hour}:00 {who}" for hour, who in sorted(day.items())) or "nothing"
    if name == "make_appointment":
        if arguments["hour"] in day:
            raise ValueError(f"{arguments['hour']}:00 is taken")
        day[arguments["hour"]] = arguments["with"]
        return f"{arguments['day']}, {arguments['hour']}:00, {arguments['with']}"
    day.clear()
    return "cleared"


def answer(method, params):
    if method == "initialize":
        info = {"name": "diary", "version": "1.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            return {"content": [{"type": "text", "text": call(params["name"], params["arguments"])}]}
        except ValueError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
