# SPDX-License-Identifier: Apache-2.0
"""Files that show a plan: stash plan and stash report with --html, --chrome-trace, --memory-viz, --layout."""

import copy
import json
import pickle
import pickletools
import unittest

from command import CommandTest
from viewer_rules import Broken, Page, check_chrome_trace, check_layout, check_memory_viz

FILES = ["--html", "r.html", "--chrome-trace", "t.json", "--memory-viz", "m.pickle", "--layout", "l.csv"]
UNTIMED = FILES[:2] + FILES[4:]
# What the viewer's own reader of pickles knows.
OPCODES = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BININT", "BININT1", "LONG1",
           "NEWTRUE", "NEWFALSE", "NONE", "BINFLOAT", "STOP"}


class Viewed(CommandTest):
    def read_pickle(self, name):
        return pickle.loads((self.folder / name).read_bytes())

    def fast(self, name="resnet20", *more, budget=0.5, machine="rtx"):
        return ["plan", name, "--batch", 32, "--threads", 1, "--machine", machine, "--policy", "auto", "--budget", budget,
                "--evaluations", 400, *more]


class Report(Viewed):
    def plan(self, *arguments, name="plan.json"):
        self.done("plan", *arguments, "-o", name)
        return self.read_json(name)

    def check_all(self, plan):
        page = Page((self.folder / "r.html").read_text())
        check_memory_viz(self.read_pickle("m.pickle"), plan)
        check_layout(self.folder / "l.csv", plan)
        return page

    def test_snapshots_as_json(self):
        plan = self.plan("lenet", "--batch", 8)
        self.done("report", "plan.json", "--memory-viz", "m.pickle")
        self.done("report", "plan.json", "--memory-viz", "m.json")
        self.assertEqual(self.read_pickle("m.pickle"), self.read_json("m.json"))
        check_memory_viz(self.read_json("m.json"), plan)
        self.assertLessEqual({op.name for op, _, _ in pickletools.genops((self.folder / "m.pickle").read_bytes())}, OPCODES)

    def test_plans_with_swap(self):
        self.done(*self.fast("resnet20", "-o", "plan.json", *FILES, budget=0.4))
        plan = self.read_json("plan.json")
        kinds = {s["kind"] for s in plan["steps"]}
        self.assertLessEqual({"run", "encode", "decode", "copy_out", "wait_out", "copy_in", "wait_in"}, kinds)
        self.assertGreater(check_chrome_trace(self.read_json("t.json"), plan), 2)
        page = self.check_all(plan)
        self.assertEqual(page.tags.count("svg"), 2)
        for text in ["copy in", "copy out", "compute", "forward", "backward"]:
            self.assertIn(text, page.text("text"))
        self.assertIn(f"budget {plan['budget_bytes'] / 1e6:.2f} MB", page.text("text"))
        self.assertIn("host memory", page.text("li"))
        self.assertIn(f"{plan['times']['simulated_ms']:.3f} ms", page.text("b"))
        largest = max((c for c in plan["choices"] if c["kind"] != "none"), key=lambda c: c["bytes_before"])
        self.assertIn(largest["reason"], page.text("td"))
        # The layout is one that the layout command takes, as high as the plan says.
        self.done("layout", "l.csv", "--capacity", plan["sizes"]["planned_peak"], "--seconds", 5)

    def test_plans_without_swap(self):
        self.done(*self.fast("lenet", "--no-swap", "-o", "plan.json", *FILES, budget=0.9))
        plan = self.read_json("plan.json")
        check_chrome_trace(self.read_json("t.json"), plan)
        page = self.check_all(plan)
        self.assertNotIn("copy in", page.text("text"))
        self.assertNotIn("host memory", page.text("li"))

    def test_plans_without_a_model(self):
        self.done("plan", "vgg_small", "--policy", "fp16", "-o", "plan.json", *UNTIMED)
        page = self.check_all(self.read_json("plan.json"))
        self.assertEqual(page.tags.count("svg"), 1)
        self.refused("report", "plan.json", *FILES, says=["--chrome-trace", "--machine"])
        self.refused("plan", "lenet", *FILES, says=["--chrome-trace", "--machine"])

    def test_a_plan_from_a_file_gives_the_same_files(self):
        self.done(*self.fast("lenet", "-o", "plan.json", *FILES, budget=0.75))
        before = {name: (self.folder / name).read_bytes() for name in FILES[1::2]}
        for name in before:
            (self.folder / name).unlink()
        self.assertEqual(self.done("report", "plan.json", *FILES), "")
        self.assertEqual(before, {name: (self.folder / name).read_bytes() for name in before})

    def test_names_are_escaped(self):
        self.done("graph", "lenet", "--batch", 8, "--threads", 1, "-o", "graph.json")
        graph = self.read_json("graph.json")
        nasty = "</title><script>alert(1)</script>&amp;\"'`\u00fc\u4e2d\U0001f600,;\x01\n"
        graph["name"] = "net " + nasty
        for kind in ("storages", "ops"):
            for part in graph[kind]:
                part["name"] += nasty
        self.write("graph.json", json.dumps(graph))
        self.done(*self.fast("graph.json", "-o", "plan.json", *FILES, budget=0.95))
        plan = self.read_json("plan.json")
        check_chrome_trace(self.read_json("t.json"), plan)
        page = self.check_all(plan)
        shown = nasty.replace("\x01", "\ufffd").replace("\n", "\ufffd")
        self.assertIn("net " + shown, page.text("h1"))
        self.assertIn(shown, page.text("th"))
        self.assertNotIn("alert", page.text("script"))
        names = {e["args"]["op"] for e in self.read_json("t.json")["traceEvents"] if "op" in e.get("args", {})}
        self.assertIn(graph["ops"][0]["name"], names)
        self.assertTrue(any(graph["storages"][0]["name"] in e["user_metadata"]
                            for e in self.read_pickle("m.pickle")["device_traces"][0]))

    def test_the_curve_of_a_sweep(self):
        sweep = ["sweep", "lenet", "--batch", 32, "--threads", 1, "--machine", "rtx", "--evaluations", 100]
        self.done(*sweep, "--budgets", "1.0,0.95,0.01", "--json", "s.json", "--html", "s.html")
        page = Page((self.folder / "s.html").read_text())
        self.assertEqual(page.tags.count("circle"), 2)
        self.assertIn("does not fit", page.text("td"))
        self.done(*self.fast("lenet", "-o", "plan.json", budget=0.95))
        self.done("report", "plan.json", "--html", "r.html", "--sweep", "s.json")
        self.assertIn("Time by budget", Page((self.folder / "r.html").read_text()).text("h2"))
        self.assertEqual(self.run_stash(*sweep, "--budgets", "0.01", "--json", "none.json", "--html", "none.html")[0], 2)
        self.assertIn("No plan fits", Page((self.folder / "none.html").read_text()).text("p"))
        self.refused(*sweep, "--json", "x", "--html", "x", says="x")
        self.refused("report", "plan.json", "--layout", "l.csv", "--sweep", "s.json", says=["--sweep", "--html"])
        for broken in ["", "[]", "{}", '{"rows": [{}]}', '{"rows": 3}', (self.folder / "s.json").read_text()[:-40]]:
            self.write("broken.json", broken)
            self.refused("report", "plan.json", "--html", "r.html", "--sweep", "broken.json", says="broken.json")
        other = self.read_json("s.json")
        self.write("other.json", json.dumps({**other, "batch": 8}))
        self.refused("report", "plan.json", "--html", "r.html", "--sweep", "other.json", says=["--sweep", "batch 8"])

    def test_refuses(self):
        self.plan("lenet", "--batch", 8)
        self.refused("report", "plan.json", says=["--html", "--layout"])
        self.refused("report", "none.json", "--html", "r.html", says="none.json")
        for option in ["--html", "--chrome-trace", "--memory-viz", "--layout"]:
            self.refused("report", "plan.json", option, "missing/file", says="missing/file")
            self.refused("report", "plan.json", option, ".", says="directory")
            self.refused("report", "plan.json", option, "./plan.json", says="plan.json")
        self.refused("report", "plan.json", "--html", "x", "--layout", "x", says="x")
        self.refused("plan", "lenet", "--batch", 8, "-o", "p.json", "--html", "p.json", says="p.json")
        # Where one file cannot be made, none is.
        self.write("old.html", "old")
        self.refused("report", "plan.json", "--html", "old.html", "--chrome-trace", "t.json", says="--chrome-trace")
        self.refused("report", "plan.json", "--html", "/dev/full", code=1, says="/dev/full")
        plan = self.read_json("plan.json")
        plan["buffers"][0]["last_step"] = 10**6
        self.write("plan.json", json.dumps(plan))
        self.refused("report", "plan.json", "--html", "r.html", says=["plan.json", "stash verify"])


class Timeline(Viewed):
    def test_verify_reads_it(self):
        self.done(*self.fast("lenet", "-o", "plan.json", budget=0.75))
        plan = self.read_json("plan.json")
        self.assertEqual(len(plan["timeline"]), len(plan["steps"]))
        self.done("verify", "plan.json")
        for damage in [lambda p: p["timeline"].pop(), lambda p: p["timeline"][3].update(end_ms=0.0),
                       lambda p: p.pop("timeline"),
                       lambda p: p["times"].update(simulated_ms=2 * p["times"]["simulated_ms"])]:
            broken = copy.deepcopy(plan)
            damage(broken)
            self.write("broken.json", json.dumps(broken))
            code, out, _ = self.run_stash("verify", "broken.json")
            self.assertEqual(code, 1)
            self.assertIn("bad_times: ", out)
        for timed in ["timeline", "times", "certificate"]:
            plan.pop(timed, None)
        self.write("old.json", json.dumps(plan))
        self.done("verify", "old.json")
        self.refused("report", "old.json", "--chrome-trace", "t.json", says="--chrome-trace")


class Rules(Viewed):
    """The rules of viewer_rules find what breaks them."""

    def test_they_can_fail(self):
        self.done(*self.fast("resnet20", "-o", "plan.json", *FILES, budget=0.4))
        plan = self.read_json("plan.json")
        trace, snapshot = self.read_json("t.json"), self.read_pickle("m.pickle")

        def broken(check, document, damage):
            damaged = copy.deepcopy(document)
            damage(damaged)
            with self.assertRaises(Broken):
                check(damaged, plan)

        def first(events, **fields):
            return next(e for e in events if all(e.get(k) == v for k, v in fields.items()))

        for damage in [
                lambda t: first(t["traceEvents"], ph="X", tid=2).update(tid=1),
                lambda t: first(t["traceEvents"], ph="X", cat="backward").update(dur=1e9),
                lambda t: t["traceEvents"].remove(first(t["traceEvents"], ph="X", cat="encode")),
                lambda t: t["traceEvents"].remove(first(t["traceEvents"], ph="f")),
                lambda t: first(t["traceEvents"], ph="f").update(id=10**6),
                lambda t: first(t["traceEvents"], ph="s").update(ts=0),
                lambda t: first(t["traceEvents"], ph="C", name="device memory")["args"].update(bytes=1),
                lambda t: t["traceEvents"].remove(first(t["traceEvents"], ph="C", name="host memory"))]:
            broken(check_chrome_trace, trace, damage)
        for damage in [
                lambda s: first(s["device_traces"][0], action="alloc").update(category="x"),
                lambda s: s["device_traces"][0].remove(first(s["device_traces"][0], action="free_completed")),
                lambda s: s["device_traces"][1].pop(),
                lambda s: s["device_traces"][0].reverse(),
                lambda s: s["segments"][0]["blocks"].pop(),
                lambda s: s["segments"][0]["blocks"][0].update(state="inactive"),
                lambda s: s["segments"][1].update(address=2**53)]:
            broken(check_memory_viz, snapshot, damage)
        page = (self.folder / "r.html").read_text()
        for old, new in [("</section>", ""), ("<li>", "<li><b>"), ('scope="row"', ""), ("<main>", '<main onclick="x">'),
                         ('<meta charset="utf-8">', '<link href="x">'), ("var(--ground)", "url(x)"), ("</desc>", "</title>")]:
            self.assertIn(old, page)
            with self.assertRaises(Broken):
                Page(page.replace(old, new, 1))


if __name__ == "__main__":
    unittest.main()
