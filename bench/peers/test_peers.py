"""The parts of the comparison that need nobody to compare with: `python3 -m unittest discover bench/peers`."""

import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import compare
import goals
import install
import measure
import page
import picture
import report
import works
from works import BARE, CHECK, INTERPRETER, JOURNALED, LIBRARY, PARSED, PEERS, RUN, SYNCS, WORKS


def figure(cpu, **more):
    """A figure with this CPU time in milliseconds, and as much waiting."""
    seconds = cpu / 1000
    figures = {f"{key}_{what}": seconds for key in ("cpu", "wall") for what in ("seconds", "least", "most")}
    return {"runs": 3, **figures, "peak_rss_kb": None, "instructions": None, **more}


def result(figures, **more):
    empty = {"absent": {}, "failed": {}, "incomplete": {}, "versions": {}, "install_bytes": {"llm-do": 7_000_000}}
    machine = {"system": "Linux", "cpu": "a processor", "cores": 2, "memory_kb": 2**21, "file_system": "ext4"}
    about = {"date": "2026-01-02T03:04:05Z", "machine": machine, "python": "3.11", "rustc": "rustc 1.95", "rounds": 1}
    return {**about, **empty, "figures": figures, **more}


class Reading(unittest.TestCase):
    def test_figures_that_a_program_tells_are_found_among_its_words(self):
        self.assertEqual(measure.told("note: nothing\np99 1200\ncall_us 3.5\n"), {"p99_us": 1200, "call_us": 3.5})

    def test_words_that_look_like_figures_are_none(self):
        self.assertEqual(measure.told("syncs are slow\np99\ncall_us \nwall_us 3 s"), {})

    def test_callgrind_calls_its_sum_one_of_two_names(self):
        self.assertEqual(measure.instructions("events: Ir\nsummary: 42\ntotals: 42\n"), 42)
        self.assertEqual(measure.instructions("events: Ir\ntotals: 43\n"), 43)

    def test_the_reason_of_a_failed_installation_is_the_error_that_says_most(self):
        output = "   Compiling a\nerror: linker `cc` not found\n  |\nerror: could not compile `a`\n\nhint: nothing"
        self.assertEqual(install.reason(output), "error: linker `cc` not found")
        output = (
            "ERROR: Ignored the following versions\nERROR: No matching distribution found for llm==0.36\n[notice] nothing"
        )
        self.assertEqual(install.reason(output), "ERROR: No matching distribution found for llm==0.36")
        self.assertEqual(install.reason("one\ntwo\n"), "two")
        self.assertEqual(install.reason(""), "it does not say why")

    def test_versions_are_those_of_the_repository(self):
        requirements = (install.HERE / "python/requirements.txt").read_text()
        for package, _ in install.PYTHON.values():
            self.assertIn("==", install.requirement(package, requirements))
        lock = (install.HERE / "rust/Cargo.lock").read_text()
        for package in install.RUST:
            self.assertRegex(install.locked_version(package, lock), r"^\d+\.\d+")


class Commands(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        addresses = {name: f"http://{name}" for name in (*WORKS, *works.MORE_PROVIDERS)}
        installed = {who: [who] for who in PEERS}
        self.everybody = works.Everybody(pathlib.Path("target"), installed, "python", addresses, self.place)

    def test_everybody_does_something_and_every_work_has_its_limit_and_one_of_ours(self):
        does = {(who, work) for who in self.everybody.names() for work in WORKS if self.everybody.command(who, work)}
        for who in self.everybody.names():
            self.assertTrue(any(who == one for one, _ in does), who)
        for work, told in WORKS.items():
            self.assertIn((told.floor, work), does)
            self.assertTrue(any((who, work) in does for who in works.OURS), work)

    def test_every_run_has_a_journal_of_its_own(self):
        path = self.everybody.command(JOURNALED, "journal").words[-1]
        self.assertEqual(self.everybody.command(JOURNALED, "journal").words[-1], path)
        path.write_text("")
        self.assertNotEqual(self.everybody.command(JOURNALED, "journal").words[-1], path)

    def test_who_is_absent_has_no_command(self):
        alone = works.Everybody(pathlib.Path("target"), {}, "python", self.everybody.addresses, self.place / "alone")
        self.assertEqual([who for who in PEERS if who in alone.names() or alone.command(who, "one")], [])


class Tables(unittest.TestCase):
    def test_numbers_are_as_long_as_they_are_worth(self):
        self.assertEqual(
            [report.scaled(*told) for told in ((None, 1, 1), (0, 1, 1), (0.25, 0.001, 1), (12_345, 1, 1))],
            ["–", "0.0", "250.0", "12\u202f345"],
        )
        self.assertEqual(
            [report.ratio(*told) for told in ((3, 2), (300, 2), (3, None), (None, 2))], ["1.50", "150", "–", "–"]
        )

    def test_a_glance_names_the_best_peer(self):
        told = report.glance(
            result({"one": {BARE: figure(1), LIBRARY: figure(2), "genai": figure(4), "rig-core": figure(8)}})
        )
        self.assertIn("| 1.0 | 2.0 | – | 4.0\u00a0(genai) | **2.00** | **0.50** |", told)

    def test_the_headline_spans_all_works(self):
        one = {BARE: figure(1), LIBRARY: figure(2), "genai": figure(4), "llm": figure(500)}
        two = {BARE: figure(1), LIBRARY: figure(1), "genai": figure(4), "llm": figure(500)}
        told = report.headline({"one": one, "nested": two, "check_1000": {PARSED: figure(1), CHECK: figure(9)}})
        self.assertIn("1.0 to 2.0 times the CPU of the bare client; genai takes 2.0 to 4.0 times", told)
        self.assertTrue(told.endswith("that of the library, llm 250 to 500."), told)
        self.assertEqual(report.headline({}), "")

    def test_work_without_peers_is_compared_with_its_own_limit(self):
        told = report.glance(result({"check_1000": {PARSED: figure(10), CHECK: figure(15)}}))
        self.assertIn("| 10.0 (reading and parsing alone) | 15.0 | **1.50** | – |", told)

    def test_what_a_journal_cannot_do_without_is_the_run_and_the_disk(self):
        told = report.glance(result({"journal": {RUN: figure(10), SYNCS: figure(20), JOURNALED: figure(33)}}))
        self.assertIn("| 10.0 (llm-do run) + 20.0 (its lines alone) | 33.0 | **1.10** | – |", told)

    def test_a_column_without_figures_is_left_out(self):
        told = report.detail("one", {BARE: figure(1), RUN: figure(2)})
        self.assertNotIn("instructions", told)
        self.assertIn("million instructions", report.detail("one", {BARE: figure(1, instructions=1000)}))

    def test_only_runs_at_once_have_a_throughput_and_a_percentile(self):
        self.assertIn("| 500 | 1.5 |", report.detail("runs_100", {LIBRARY: figure(200, p99_us=1500)}))
        self.assertNotIn("p99", report.detail("one", {LIBRARY: figure(200, p99_us=1500)}))

    def test_a_terminal_is_not_told_of_goals_that_nobody_asked_for(self):
        told = report.everything(result({"check_1000": {PARSED: figure(10), CHECK: figure(15)}}))
        self.assertIn("llm-do check 1.50 ×", told)
        self.assertNotIn(goals.UNKNOWN, told)

    def test_who_is_missing_is_named_with_the_reason(self):
        told = report.head(result({}, absent={"llm": "no\n index |"}, failed={"genai at one": "exit code 1"}))
        self.assertIn("**llm** could not be installed and is left out: no index \\|.", told)
        told += report.head(result({}, incomplete={"rig-core at loop_400": "instructions: it took more than 300 seconds"}))
        self.assertIn("**rig-core at loop_400** lacks figures of instructions: it took more than 300 seconds.", told)
        self.assertIn("**genai at one** failed and is left out: exit code 1.", told)


class Goals(unittest.TestCase):
    def verdicts(self, figures, **more):
        told = result(figures, **more)
        rows = goals.table(told).splitlines()[2:]
        return {goal.name: row.split("|")[4].strip() for goal, row in zip(goals.of(told), rows)}

    def test_a_goal_is_met_or_missed_by_the_figures(self):
        for million, verdict in ((2.0, goals.MET), (2.01, goals.MISSED)):
            figures = {"one": {RUN: figure(1, instructions=million * 1e6)}}
            self.assertEqual(self.verdicts(figures)["cold"], verdict)

    def test_a_reason_is_given_only_while_a_goal_is_missed(self):
        self.assertEqual(self.verdicts({})["binary"], goals.MET)
        missed = self.verdicts({}, install_bytes={"llm-do": 9_000_000})["binary"]
        self.assertEqual(missed, f"{goals.MISSED}: {goals.REASONS['binary']}")

    def test_a_missed_goal_without_a_reason_is_pointed_out(self):
        missed = {"runs_1000": {BARE: figure(1), LIBRARY: figure(2)}}
        self.assertEqual(goals.without_reason(result(missed)), ["runs_cpu"])
        self.assertEqual(goals.without_reason(result({})), [])

    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        verdicts = self.verdicts({}, install_bytes={})
        self.assertEqual(set(verdicts.values()), {goals.UNKNOWN})

    def test_a_delta_is_what_a_long_stream_takes_more_than_a_short_one(self):
        figures = {
            "one": {BARE: figure(1), LIBRARY: figure(5)},
            "stream_20000": {BARE: figure(11), LIBRARY: figure(25)},
        }
        standing = next(goal for goal in goals.of(result(figures)) if goal.name == "delta_cpu").standings[0]
        self.assertAlmostEqual(standing.figure, 2.0)

    def test_a_run_takes_what_a_thousand_take_more_than_one(self):
        self.assertAlmostEqual(goals.kb_a_run(figure(1, peak_rss_kb=1000 + 999 * 30, alone_rss_kb=1000)), 30)
        self.assertIsNone(goals.kb_a_run(figure(1, peak_rss_kb=1000)))

    def test_python_is_given_thirty_milliseconds(self):
        for milliseconds, met in ((39, True), (41, False)):
            figures = {"python_cold": {INTERPRETER: figure(10), RUN: figure(milliseconds)}}
            self.assertEqual(self.verdicts(figures)["python_cold"] == goals.MET, met)

    def test_one_row_behind_one_peer_is_a_miss_and_is_named(self):
        figures = {"nested": {LIBRARY: figure(5, instructions=7), "genai": figure(4, instructions=9), "llm": figure(6)}}
        behind, compared = goals.behind_peers(figures)
        self.assertEqual(compared, 2)
        self.assertEqual(behind, {(LIBRARY, "genai", "nested"): ["CPU 1.25 ×"]})
        told = goals.Behind(behind, compared)
        self.assertEqual(str(told), "1 of 2; llm-do, library behind genai at three levels of nested agents (CPU 1.25 ×)")
        self.assertFalse(told.met())

    def test_every_reason_belongs_to_a_goal(self):
        names = {goal.name for goal in goals.of(result({}))}
        self.assertEqual(set(goals.REASONS) - names, set())


class Planning(unittest.TestCase):
    def test_long_runs_are_done_in_fewer_rounds(self):
        known = {"loop_400": {"llm": figure(20_000)}, "one": {"llm": figure(1_000)}}
        pairs = [("llm", "loop_400"), ("llm", "one"), ("llm", "nested")]
        self.assertAlmostEqual(compare.estimate(known, pairs, 5, counted=False), 3 * 20 + 5 * 1)

    def test_counting_takes_its_time(self):
        known = {"loop_50": {"genai": figure(1_000, instructions=int(compare.COUNTED_A_SECOND * 7))}}
        self.assertAlmostEqual(compare.estimate(known, [("genai", "loop_50")], 1, counted=True), 1 + 7)

    def test_the_works_of_a_quick_run_exist(self):
        self.assertEqual(set(compare.QUICK) - set(WORKS), set())


class Picture(unittest.TestCase):
    def test_it_is_drawn_to_scale(self):
        places = [picture.position(times, 3) for times in (1, 10, 100, 1000)]
        steps = {round(after - before, 6) for before, after in zip(places, places[1:])}
        self.assertEqual(len(steps), 1)
        self.assertEqual(picture.position(0.5, 3), picture.position(1, 3))

    def test_it_is_well_formed_and_names_everybody_who_was_measured(self):
        everybody = {BARE: figure(1), LIBRARY: figure(2), RUN: figure(3), "genai": figure(40), "openai-agents": figure(1500)}
        drawn = picture.drawn({"one": everybody, "memory": everybody})
        texts = [element.text for element in xml.etree.ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
        for who, times in ((LIBRARY, "2.0"), (RUN, "3.0"), ("genai", "40.0"), ("openai-agents", "1 500")):
            self.assertIn(f"{who}  {times} ×", texts)
        self.assertEqual(texts.count(WORKS["one"].words), 1)
        self.assertNotIn(WORKS["memory"].words, texts)


class Page(unittest.TestCase):
    MARKED = "words\n" + "".join(f"<!-- measured: {name} -->\nold\n<!-- /measured -->\nmore {name}\n" for name in page.PARTS)

    def test_figures_replace_figures_and_words_stay(self):
        told = result({"one": {BARE: figure(1), RUN: figure(2)}})
        written = page.filled(self.MARKED, told)
        self.assertNotIn("\nold\n", written)
        for name in page.PARTS:
            self.assertIn(f"more {name}\n", written)
        self.assertEqual(page.filled(written, told), written)

    def test_a_page_without_a_place_for_figures_is_refused(self):
        with self.assertRaisesRegex(ValueError, "0 parts `goals`"):
            page.filled(self.MARKED.replace("measured: goals", "measured: gaols"), result({}))

    def test_the_page_and_its_picture_are_what_the_saved_figures_give(self):
        for path, text in page.made(report.saved()).items():
            self.assertEqual(path.read_text(), text, f"{path} is stale: `python3 bench/peers/page.py` writes it")


if __name__ == "__main__":
    unittest.main()
