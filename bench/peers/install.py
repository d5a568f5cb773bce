"""Gets the peers from the package registries into a cache, each by itself: one that cannot be had leaves the others alone."""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Rust libraries, each the feature of its runner.
RUST = {"rig-core": "rig", "genai": "genai"}
#: Python libraries by what people call them: the package, and the runner or the command that is run.
PYTHON = {
    "pydantic-ai": ("pydantic-ai-slim", HERE / "python/with_pydantic_ai.py"),
    "openai-agents": ("openai-agents", HERE / "python/with_openai_agents.py"),
    "llm": ("llm", "llm"),
}
BUILD = ("cargo", "build", "--quiet", "--release", "--locked")
#: Longer than any download takes that will ever end.
PATIENCE = 1200


class Absent(Exception):
    """A peer that cannot be had, and why."""


def ours(target, said):
    """What is measured, in release. Without it there is nothing to do."""
    libraries = ["-p", "fake-llm", "-p", "bench"]
    if not packaged(target, said):
        libraries += ["-p", "llm-do-cli"]
    for words in (libraries, ["-p", "llm-do", "--example", "parse_only"]):
        subprocess.run([*BUILD, "--target-dir", target, *words], cwd=ROOT, env=environment(), check=True)


def packaged(target, said):
    """Builds the program as it is handed out, where that can be done."""
    (target / "dist/llm-do").unlink(missing_ok=True)
    try:
        done([ROOT / "packaging/build.sh"], {"CARGO_TARGET_DIR": str(target)}, patience=3 * PATIENCE)
    except Absent as reason:
        said(f"the program cannot be packaged here, so that its plain release build is measured: {reason}")
        return False
    return True


def program(target):
    """As it is handed out, else as cargo builds it."""
    handed_out = target / "dist/llm-do"
    return handed_out if handed_out.exists() else target / "release/llm-do"


def everybody(cache, said):
    """Command lines and versions of those who are there, by who, and the reasons of those who are not."""
    commands, versions, absent = {}, {}, {}
    for who in (*RUST, *PYTHON):
        said(f"{who} ...")
        try:
            install = rust if who in RUST else python
            commands[who], versions[who] = install(who, cache)
        except Absent as reason:
            absent[who] = str(reason)
            said(f"{who} cannot be had here and is left out: {reason}")
    return commands, versions, absent


def interpreter(cache):
    """An interpreter without any libraries, so that none of those which happen to be installed is measured."""
    environment = cache / "python/bare"
    try:
        done([sys.executable, "-m", "venv", "--clear", "--without-pip", environment])
    except Absent:
        return pathlib.Path(sys.executable)
    return environment / "bin/python"


def rust(who, cache):
    runner, target = f"with_{RUST[who]}", cache / "rust"
    done(
        [
            *BUILD,
            "--target-dir",
            target,
            "--manifest-path",
            HERE / "rust/Cargo.toml",
            "--features",
            RUST[who],
            "--bin",
            runner,
        ]
    )
    return [target / "release" / runner], locked_version(who, (HERE / "rust/Cargo.lock").read_text())


def locked_version(package, lock):
    found = re.search(rf'name = "{re.escape(package)}"\nversion = "([^"]+)"', lock)
    return found.group(1) if found else "unknown"


def python(who, cache):
    """An environment of its own, so that what it takes on disk is its own, and nobody has to agree with anybody."""
    package, runner = PYTHON[who]
    wanted = requirement(package, (HERE / "python/requirements.txt").read_text())
    environment = cache / "python" / who
    program, complete = environment / "bin/python", environment / "complete"
    made_of = f"{wanted}\nPython {sys.version}\n"
    if not complete.exists() or complete.read_text() != made_of:
        done([sys.executable, "-m", "venv", "--clear", environment])
        done([program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", wanted])
        complete.write_text(made_of)
    done([program, "-c", f"import importlib.metadata; importlib.metadata.version({package!r})"])
    command = [environment / "bin" / runner] if isinstance(runner, str) else [program, runner]
    return command, wanted.split("==")[1]


def requirement(package, requirements):
    lines = [line.strip() for line in requirements.splitlines()]
    return next(line for line in lines if re.match(rf"{re.escape(package)}(\[[^]]*\])?==", line))


def done(words, variables=None, patience=PATIENCE):
    try:
        ended = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=patience,
            stdin=subprocess.DEVNULL,
            env={**environment(), **(variables or {})},
            cwd=HERE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(str(error)) from error
    if ended.returncode != 0:
        raise Absent(reason(ended.stderr or ended.stdout))


def environment():
    """Without what would have programs built for another machine, and so elsewhere."""
    return {
        name: value for name, value in os.environ.items() if name not in ("CARGO_BUILD_TARGET", "PYTHONHOME", "PYTHONPATH")
    }


def reason(output):
    """The line that says most: the first error of a compiler, from which the others follow; the last of pip; or the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    of_compiler = [line for line in lines if line.startswith("error")]
    of_pip = [line for line in lines if line.startswith("ERROR")]
    return (of_compiler[:1] or of_pip[-1:] or lines[-1:] or ["it does not say why"])[0][:300]
