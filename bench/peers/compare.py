"""Runs the same work through everybody, in turn and repeatedly, and tells the medians. Started by `bench/peers.sh`.

Only the standard library is used, so that it runs wherever Python does.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import goals
import install
import measure
import page
import report
from works import BARE, OURS, WORKS, Everybody, Providers

#: Works that take everybody a second or two.
QUICK = ("one", "loop_50", "parallel_64", "runs_100", "nested", "check_1000", "python_cold", "python_calls", "journal")
#: Works in which everything is read or compiled that any work needs.
WARMED = ("one", "check_1000", "check_10000", "python_cold", "python_calls", "journal")
#: Instructions that callgrind counts in a second, about.
COUNTED_A_SECOND = 9e7


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/peers.sh", description="Runs the same work through llm-do, the bare client below it and its peers."
    )
    parser.add_argument("--no-build", action="store_true", help="take llm-do as it is built")
    parser.add_argument("--rounds", type=positive, help="how often everything is done in turn (5)")
    parser.add_argument(
        "--only", nargs="+", choices=WORKS, metavar="WORK", help=f"these works only, nothing is saved: {', '.join(WORKS)}"
    )
    parser.add_argument("--quick", action="store_true", help="one round of the short works, nothing is counted or saved")
    return parser.parse_args()


def positive(word):
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one round")
    return number


class Progress:
    """Lines on standard error, each with the time since the start."""

    def __init__(self):
        self.started = time.monotonic()

    def say(self, words):
        seconds = int(time.monotonic() - self.started)
        print(f"[{seconds // 60:3}:{seconds % 60:02}] {words}", file=sys.stderr, flush=True)


def estimate(known, pairs, rounds, counted):
    """How many seconds the pairs of who and work will take, by figures of an earlier run; unknown ones take nothing."""
    seconds = 0.0
    for who, work in pairs:
        figure = known.get(work, {}).get(who)
        if not figure:
            continue
        wall = figure["wall_seconds"]
        times = min(rounds, measure.ROUNDS_OF_LONG) if wall >= measure.LONG else rounds
        seconds += times * max(wall, min(measure.REPEATED_FOR, wall * measure.REPEATED_AT_MOST))
        if counted:
            seconds += 2 * wall * WORKS[work].remembered + (figure["instructions"] or 0) / COUNTED_A_SECOND
    return seconds


def measure_all(figures, works, rounds, progress):
    """Interleaved, so that whatever else the machine does falls on all of them."""
    names = figures.everybody.names()
    # Once for nothing: no files that nobody has read yet, no modules that are not compiled yet.
    for work in (work for work in works if work in WARMED):
        for who in names:
            if figures.can(who, work):
                figures.attempt(who, work)
                tell_failure(figures, who, work, progress)
    for round_number in range(rounds):
        for work in works:
            progress.say(f"round {round_number + 1} of {rounds}: {WORKS[work].words}")
            for who in names:
                if figures.can(who, work):
                    figures.measure(who, work, round_number)
                    tell_failure(figures, who, work, progress)


def tell_failure(figures, who, work, progress):
    if (who, work) in figures.failed:
        progress.say(f"{who} failed at {work} and is left out there: {figures.failed[who, work]}")


def look_closer(figures, works, progress):
    """Memory and instructions, which do not depend on what else the machine does."""
    names = figures.everybody.names()
    if measure.tells_memory():
        for work in (work for work in works if WORKS[work].remembered):
            progress.say(f"memory: {WORKS[work].words}")
            for who in names:
                for one in ("alone", work) if work == "memory" else (work,):
                    if figures.can(who, one):
                        figures.measure_memory(who, one)
    else:
        progress.say("GNU time is not installed: memory is not measured")
    if shutil.which("valgrind"):
        for work in works:
            counted = [who for who in names if figures.is_counted(who, work)]
            if counted:
                progress.say(f"instructions: {WORKS[work].words}")
            for who in counted:
                figures.count(who, work)
    else:
        progress.say("valgrind is not installed: no instructions are counted")


def install_sizes(target, commands):
    """Bytes on disk of what one installs, interpreters not counted."""
    sizes = {"llm-do": install.program(target).stat().st_size}
    for who in install.PYTHON:
        site = next(iter((target / "peers/python" / who).glob("lib/python*/site-packages")), None)
        if who in commands and site:
            sizes[who] = sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and is_own(file, site))
    return sizes


def is_own(file, site):
    """Not what every environment has, nor what running it leaves."""
    top = file.relative_to(site).parts[0]
    return not top.startswith(("pip", "setuptools", "_distutils", "distutils", "pkg_resources")) and file.suffix != ".pyc"


def told_by(*words):
    """What a program says in its last line, which is no reason to fail."""
    try:
        lines = subprocess.run(words, check=False, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        lines = []
    return lines[-1].strip() if lines else "unknown"


def compare(options, progress):
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or report.ROOT / "target").resolve()
    (target / "peers").mkdir(parents=True, exist_ok=True)
    if not options.no_build:
        progress.say("building llm-do in release: the first time takes minutes")
        install.ours(target, progress.say)
    works = [work for work in WORKS if work in (options.only or (QUICK if options.quick else WORKS))]
    rounds = options.rounds or (1 if options.quick else 5)
    complete = not options.only and not options.quick
    progress.say("getting the peers")
    commands, versions, absent = install.everybody(target / "peers", progress.say)
    python = install.interpreter(target / "peers")
    measure.prepare_process()
    # Beside the build and not in /tmp, which may be memory: a journal is to wait for a disk.
    with (
        tempfile.TemporaryDirectory(dir=target / "peers", prefix="run.") as place,
        contextlib.closing(Providers(target / "release/fake-llm")) as providers,
    ):
        everybody = Everybody(target, commands, python, providers.addresses, pathlib.Path(place))
        everybody.write_agents(works)
        figures = measure.Figures(everybody)
        pairs = [(who, work) for who in everybody.names() for work in works if figures.can(who, work)]
        seconds = estimate(report.saved().get("figures", {}), pairs, rounds, not options.quick)
        progress.say(
            f"{len(pairs)} pairs of work and who does it; by the saved figures about {seconds / 60 + 0.5:.0f} minutes"
        )
        measure_all(figures, works, rounds, progress)
        if not options.quick:
            look_closer(figures, works, progress)
        result = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": {**report.machine(), "file_system": told_by("df", "--output=fstype", place)},
            "python": platform.python_version(),
            "rustc": told_by("rustc", "--version"),
            "rounds": rounds,
            "versions": versions,
            "absent": absent,
            "failed": by_name(figures.failed),
            "incomplete": by_name(figures.incomplete),
            "install_bytes": install_sizes(target, commands),
            "figures": {
                work: {who: figure for who in everybody.names() if (figure := figures.of(who, work))} for work in works
            },
        }
    print(report.everything(result))
    ours = [name for name in result["failed"] if name.startswith((BARE, *OURS))]
    if ours:
        progress.say(f"failed, so nothing is saved: {', '.join(ours)}")
        return 1
    if complete:
        page.save(result)
        progress.say("saved: bench/results/peers.json, docs/performance.md, docs/performance.svg")
        for goal in goals.without_reason(result):
            progress.say(
                f"the goal `{goal}` is missed: bench/peers/goals.py should say why, then bench/peers/page.py writes it"
            )
    return 0


def by_name(errors):
    return {f"{who} at {work}": error for (who, work), error in errors.items()}


def main():
    # As if interrupted: what was started is ended, what was written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress()
    try:
        return compare(arguments(), progress)
    except KeyboardInterrupt:
        progress.say("interrupted: nothing is saved")
        return 130
    except subprocess.CalledProcessError as error:
        progress.say(f"cannot go on: `{' '.join(map(str, error.cmd))}` failed")
        return 1
    except (OSError, RuntimeError) as error:
        progress.say(f"cannot go on: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
