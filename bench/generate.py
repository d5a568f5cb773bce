#!/usr/bin/env python3
"""Writes a project of many agents: generate.py DIRECTORY COUNT.

Each agent calls a few others (a binary tree, and every hundredth back to the start), has files and rules; every tenth
has a typed input with a template.
"""

import json
import pathlib
import sys


def worker(index: int, count: int) -> str:
    callees = [child for child in (2 * index + 1, 2 * index + 2) if child < count]
    if index % 100 == 99:
        callees.append(0)
    toolsets = [f"agent{callee:05}" for callee in callees] + ["filesystem_project", "shell_readonly"]
    # What a rule allows needs trust, and nobody is asked for so much at once.
    rule = "allow" if index % 20 == 0 else "ask"
    keys = [
        f"name: agent{index:05}",
        f'description: "Does part {index} of the work"',
        "model: ollama:qwen3",
        f"toolsets: [{', '.join(toolsets)}]",
        f"approval: {{write_file: ask, shell: {rule}}}",
        "limits: {max_requests: 20, max_tool_calls: 100}",
    ]
    if index % 10 == 0:
        keys.append("schema_in: {type: object, properties: {topic: {type: string}}, required: [topic]}")
        keys.append('prompt: "Work on {{ topic }}."')
    instructions = "Do your part, ask the agents below you for theirs, and report in one paragraph.\n" * 5
    return "---\n" + "\n".join(keys) + "\n---\n" + instructions


def main() -> None:
    directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    (directory / "agents").mkdir(parents=True)
    files = [f"agents/agent{index:05}.worker" for index in range(count)]
    for index, path in enumerate(files):
        (directory / path).write_text(worker(index, count))
    manifest = {"version": 1, "entry": {"agent": "agent00000"}, "worker_files": files}
    (directory / "project.json").write_text(json.dumps(manifest, indent=1))


main()
