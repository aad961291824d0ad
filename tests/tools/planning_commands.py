# SPDX-License-Identifier: Apache-2.0
"""The commands that do not train: networks, graph, plan, explain, verify, and the help of all."""

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import tarfile
import time
import unittest
import zipfile

from command import STASH, CommandTest, catches_interrupts, interrupt

NAMES = ["lenet", "vgg_small", "resnet20", "alexnet", "alexnet_lrn", "nin", "overfeat", "vgg16", "inception_v1",
         "resnet50", "resnet101", "resnet152", "resnet200", "resnet1001", "resnet1517", "resnet2000", "inception_v3",
         "unet3d", "lstm_lm", "seq2seq", "bert_base", "bert_large", "gpt2_small", "gpt2_medium",
         "llama_1b", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b16", "unet2d"]
DEEP = ["resnet1001", "resnet1517", "resnet2000"]  # planned in minutes
COMMANDS = ["networks", "graph", "plan", "explain", "report", "verify", "train", "compare", "bench", "layout",
            "sweep", "max-batch", "reproduce"]


MACHINE = {"format": "stash.machine", "version": 1, "name": "m", "flops_per_second": 1e13,
           "memory_bytes_per_second": 5e11, "out_bytes_per_second": 1e10, "in_bytes_per_second": 1e10}


class Help(CommandTest):
    def test_everything_has_help(self):
        out = self.done("--help")
        for command in COMMANDS:
            self.assertIn(command, out)
            self.assertIn("Usage: stash " + command, self.done(command, "--help"))
        self.assertIn("--learning-rate", self.done("--help-all"))
        self.assertRegex(self.done("--version"), r"\A\d+\.\d+\.\d+\n\Z")

    def test_wrong_commands_and_options(self):
        self.refused(says="--help")
        self.refused("bogus", says="'bogus'")
        self.refused("--bogus", says="'--bogus'")
        for command in COMMANDS:
            self.refused(command, "lenet", "--bogus", says=["--bogus", "stash " + command + " --help"])
        self.refused("plan", says="network is required")
        self.refused("networks", "lenet", says="lenet")


def small_trace():
    """A convolution and its gradient, as PyTorch 1.x records them."""
    def node(number, name, parent, schema="", inputs=(), outputs=()):
        def part(index):
            return {"inputs": [t[index] for t in inputs], "outputs": [t[index] for t in outputs]}
        values, types, shapes = part(0), part(1), part(2)
        return {"name": name, "id": number, "parent": parent, "op_schema": schema, "rf_id": number,
                "inputs": values["inputs"], "input_types": types["inputs"], "input_shapes": shapes["inputs"],
                "outputs": values["outputs"], "output_types": types["outputs"], "output_shapes": shapes["outputs"]}

    def tensor(storage, *shape):
        elements = 1
        for d in shape:
            elements *= d
        return [storage + 100, storage, 0, elements, 4, "cuda:0"], "Tensor(float)", list(shape)

    image, weight, y, dw = tensor(1, 8, 3, 64, 64), tensor(2, 16, 3, 1, 1), tensor(3, 8, 16, 64, 64), tensor(4, 16, 3, 1, 1)
    return {"schema": "1.0.1", "pid": 1, "nodes": [
        node(1, "__ROOT_PROCESS__", 1), node(2, "ProfilerStep#3", 1),
        node(3, "aten::cudnn_convolution", 2, "aten::cudnn_convolution(Tensor self, Tensor weight)", [image, weight], [y]),
        node(4, "autograd::engine::evaluate_function: ConvolutionBackward0", 1),
        node(5, "aten::mul", 4, "aten::mul(Tensor self, Tensor other)", [y, y], [tensor(5, 8, 16, 64, 64)]),
        node(6, "aten::convolution_backward", 4,
             "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight)",
             [tensor(5, 8, 16, 64, 64), image, weight], [dw]),
        node(7, "Optimizer.step#SGD.step", 2),
        node(8, "aten::add_", 7, "aten::add_(Tensor(a!) self, Tensor other)", [weight, dw], [weight])]}


class Traces(CommandTest):
    def test_a_trace_is_planned_and_becomes_a_graph(self):
        self.write("t.json", json.dumps(small_trace()))
        self.write("t.json.gz", gzip.compress(json.dumps(small_trace()).encode()))
        plain = self.done("plan", "--trace", "t.json", "--json", "plain.json")
        self.assertIn("t.json, iteration 3", plain)
        self.done("plan", "--trace", "t.json.gz", "--iteration", "3", "--json", "packed.json")
        figures = self.read_json("plain.json")
        self.assertEqual({**figures, "network": ""}, {**self.read_json("packed.json"), "network": ""})
        self.done("graph", "--trace", "t.json", "-o", "graph.json")
        labels = [op["label"] for op in self.read_json("graph.json")["ops"]]
        self.assertEqual(labels, ["aten::cudnn_convolution", "aten::mul", "aten::convolution_backward", "aten::add_"])
        self.assertEqual(self.done("plan", "graph.json"), plain)
        self.done("plan", "--trace", "t.json", "-o", "plan.json")
        self.assertIn("valid", self.done("verify", "plan.json"))
        self.done("explain", "plan.json")

    def test_a_trace_that_was_packed_on_a_mac(self):
        text = json.dumps(small_trace()).encode()
        self.write("t.json", text)
        attributes = bytes.fromhex("00051607000200004d6163204f532058") + bytes(314)
        with tarfile.open(self.folder / "mac.tgz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
            for name, content in [("run/._t.json", attributes), ("run/t.json", text)]:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.pax_headers = {"LIBARCHIVE.xattr.com.apple.quarantine": "MDA4MQ"}
                archive.addfile(entry, io.BytesIO(content))
        for name in ["t.json", "mac.tgz"]:
            self.done("graph", "--trace", name, "-o", name + "_graph.json")
        plain, packed = (self.read_json(name + "_graph.json") for name in ["t.json", "mac.tgz"])
        self.assertEqual(packed, {**plain, "name": "mac.tgz, iteration 3"})

    def test_times_of_a_profile(self):
        self.write("t.json", json.dumps(small_trace()))
        event = {"cat": "cpu_op", "tid": 1, "dur": 7}
        names = {3: "aten::cudnn_convolution", 5: "aten::mul", 6: "aten::convolution_backward"}
        events = [{**event, "name": name, "ts": 100 * i, "args": {"External id": i}} for i, name in names.items()]
        self.write("k.json", json.dumps({"traceEvents": events}))
        self.done("graph", "--trace", "t.json", "--kineto", "k.json", "-o", "graph.json")
        self.assertAlmostEqual(self.read_json("graph.json")["ops"][0]["seconds"], 7e-6)
        self.write("other.json", json.dumps({"traceEvents": events[:1]}))
        self.refused("plan", "--trace", "t.json", "--kineto", "other.json",
                     says=["other.json: ", "'Record function id'", "PyTorch 2.4", "1 of 4 operators of iteration 3"])
        for number, says in [(0, "every 'Record function id' is 0"),
                             (99, ["recorded together with the trace", "0 of 4 operators of iteration 3"])]:
            numbered = [{**e, "args": {**e["args"], "Record function id": number}} for e in events]
            self.write("other.json", json.dumps({"traceEvents": numbered}))
            self.refused("plan", "--trace", "t.json", "--kineto", "other.json", says=says)
        self.write("other.json", json.dumps({"traceEvents": []}))
        self.refused("plan", "--trace", "t.json", "--kineto", "other.json", says="calls of operators")

    def test_wrong_traces_and_options(self):
        trace = self.write("t.json", json.dumps(small_trace()))
        self.refused("plan", "--trace", "none.json", says="none.json")
        self.refused("plan", "--trace", "t.json", "--iteration", "4", says="got 4")
        self.refused("plan", "lenet", "--trace", "t.json", says="--trace")
        self.refused("plan", "lenet", "--iteration", "1", says="--iteration")
        self.refused("plan", "--trace", "t.json", "--batch", "8", says="--batch")
        self.write("cut.json", trace.read_text()[:500])
        self.refused("plan", "--trace", "cut.json", says=["cut.json: ", "byte 500"])


class FilesOfAnotherKind(CommandTest):
    """A file where another one belongs: the message says what it is and what takes it."""

    says = {"t": ["got an execution trace of PyTorch (a list 'nodes'): give it to --trace"],
            "k": ["got a profile (Chrome trace): give it to --kineto, together with its --trace"],
            "g": ["got a training graph ('stash.graph'): give it to stash plan, as FILE.json"],
            "p": ["got a plan ('stash.plan'): give it to stash verify, explain or report"],
            "m": ["got a machine ('stash.machine'): give it to --machine, as FILE.json"]}
    unpack = "unpack it first"

    def setUp(self):
        super().setUp()
        # A word that JSON does not have, as PyTorch writes it.
        self.write("t.json", json.dumps({"value": float("nan"), **small_trace()}))
        self.write("k.json", json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 1}]}))
        self.done("graph", "lenet", "--batch", 8, "-o", "g.json")
        self.done("plan", "g.json", "-o", "p.json")
        self.write("m.json", json.dumps(MACHINE))

    def test_each_command_says_what_it_got(self):
        commands = {"t": ["plan", "--trace"], "k": ["plan", "--trace", "t.json", "--kineto"], "g": ["plan"],
                    "p": ["verify"], "m": ["plan", "lenet", "--machine"]}
        expected = {"t": "an execution trace of PyTorch", "k": "a profile", "g": "a training graph", "p": "a plan",
                    "m": "a machine"}
        for kind, command in commands.items():
            for other, says in self.says.items():
                if other != kind:
                    name = other + ".json"
                    self.refused(*command, name, says=[name + ": ", "expected " + expected[kind], *says])
        for command in [["explain"], ["report", "--html", "x.html"], ["train", "lenet", "--steps", 1, "--plan"]]:
            self.refused(*command, "t.json", says=["t.json: ", *self.says["t"]])
        self.refused("report", "p.json", "--html", "x.html", "--sweep", "p.json", says=["stash sweep", *self.says["p"]])
        self.refused("layout", "p.json", says=["p.json: line 1: expected blocks as CSV", *self.says["p"]])

    def test_packed_files(self):
        def packed(name, source):
            self.write(name, gzip.compress((self.folder / source).read_bytes()))
        for kind in "tkgpm":
            packed(kind + ".gz", kind + ".json")
            packed(kind + "_gz.json", kind + ".json")
        trace, profile = "a gz file of an execution trace", "a gz file of a profile"
        for name, says in [("t_gz.json", [trace, "give it to --trace"]), ("k_gz.json", [profile, "give it to --kineto"]),
                           ("g_gz.json", ["a gz file of a training graph", self.unpack])]:
            self.refused("plan", name, says=[name + ": ", "expected a training graph", "got " + says[0], says[1]])
        for name, says in [("t.gz", [trace, "give it to --trace"]), ("g.gz", ["a gz file of a training graph", self.unpack])]:
            self.refused("plan", name, says=["network: expected a name", "got the file " + name + ", " + says[0], says[1]])
        self.refused("plan", "lenet", "--machine", "m.gz", says=["--machine: expected", "a gz file of a machine", self.unpack])
        self.refused("verify", "p.gz", says=["p.gz: ", "expected a plan", "a gz file of a plan", self.unpack])
        self.refused("plan", "--trace", "p.gz", says=["p.gz: ", *self.says["p"]])
        packed("twice.gz", "t.gz")
        self.refused("plan", "--trace", "twice.gz", says=["got a gz file: ", self.unpack])
        with zipfile.ZipFile(self.folder / "t.zip", "w") as archive:
            archive.write(self.folder / "t.json", "t.json")
        self.refused("plan", "--trace", "t.zip", says=["got a zip archive: ", self.unpack])
        with tarfile.open(self.folder / "t.tar", "w") as archive:
            archive.add(self.folder / "t.json", "t.json")
        self.refused("verify", "t.tar", says=["got a tar archive of an execution trace", "give it to --trace"])
        self.write("blocks.csv.gz", gzip.compress(b"id,lower,upper,size\na,0,1,1\n"))
        self.refused("layout", "blocks.csv.gz", says=["line 1: expected blocks as CSV, got a gz file", self.unpack])
        self.write("notes.txt", "hello")
        self.refused("plan", "notes.txt", says=["network: expected a name", "got the file notes.txt\n"])
        self.refused("plan", "missing.txt", says="'missing.txt'")

    def test_a_file_that_is_named_as_a_network(self):
        self.write("lenet", "hello")
        self.done("plan", "lenet", "--batch", 8)


class Networks(CommandTest):
    def test_lists_every_network(self):
        lines = self.done("networks").splitlines()
        self.assertEqual([line.split()[0] for line in lines], NAMES)
        self.assertRegex(lines[0], r"28x28x1 .*\d+ parameters +trains")
        self.assertRegex(lines[7], r"224x224x3 +138357544 parameters +plans")
        self.assertRegex(lines[NAMES.index("unet3d")], r"144\^3 +\d+ parameters +plans")
        self.assertRegex(lines[NAMES.index("mobilenet_v2")], r"224x224x3 +3504872 parameters +plans")
        self.assertRegex(lines[NAMES.index("llama_1b")], r"1024 steps +1235814400 parameters +plans")
        self.assertRegex(lines[NAMES.index("gpt2_small")], r"1024 steps +124439808 parameters +plans")

    def test_a_full_disk_is_noticed(self):
        for arguments in [["networks"], ["--help"], ["plan", "--help"], ["--version"]]:
            with open("/dev/full", "w") as full:
                got = subprocess.run([STASH, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((got.returncode, got.stderr),
                             (1, "stash: writing to standard output failed\n"), arguments)


class Graph(CommandTest):
    def test_writes_to_a_file_or_to_standard_output(self):
        self.assertEqual(self.done("graph", "lenet", "--batch", 8, "--threads", 1, "-o", "graph.json"), "")
        out = self.done("graph", "lenet", "--batch", 8, "--threads", 1)
        self.assertEqual(out, (self.folder / "graph.json").read_text())
        graph = self.read_json("graph.json")
        self.assertEqual((graph["name"], graph["batch"], graph["classes"]), ("lenet", 8, 10))

    def test_options_change_the_graph(self):
        self.done("graph", "lenet", "--input", "32x24x3", "--classes", 7, "--density", 0.25, "-o", "graph.json")
        graph = self.read_json("graph.json")
        image = next(s for s in graph["storages"] if s["role"] == "image")
        self.assertEqual((image["shape"], graph["classes"]), ([32, 24, 3], 7))
        self.assertIn(0.25, [s.get("density") for s in graph["storages"]])

    def test_side_and_steps_change_the_graph(self):
        for name, option, value, shape in [("unet3d", "--side", 24, [24, 24, 24, 4]), ("lstm_lm", "--steps", 7, [7]),
                                          ("unet2d", "--side", 48, [48, 48, 3])]:
            self.done("graph", name, "--batch", 2, option, value, "-o", "graph.json")
            storages = self.read_json("graph.json")["storages"]
            self.assertEqual(next(s["shape"] for s in storages if s["role"] in ("image", "label")), shape)
        for name, option, kind in [("lenet", "--side", "volumes"), ("lenet", "--steps", "sequences"),
                                   ("unet3d", "--steps", "sequences"), ("bert_base", "--side", "volumes"),
                                   ("bert_base", "--input", "images"), ("unet3d", "--classes", "images"),
                                   ("vit_b16", "--input", "forward graph"), ("vit_b16", "--steps", "sequences")]:
            self.refused("graph", name, option, "28x28x1" if option == "--input" else 8, says=[option, kind, name])
        self.refused("graph", "unet3d", "--side", 20, says="--side: expected a multiple of 8")
        self.refused("graph", "vit_b16", "--side", 225, says="--side: expected a multiple of 16")
        self.refused("graph", "bert_base", "--steps", 513, says="--steps: expected at most the 512 positions")

    def test_sizes_beyond_all_arithmetic_are_refused(self):
        for name, shape in [("resnet50", "65536x65536x3"), ("lenet", "65536x65536x1")]:
            self.refused("plan", name, "--input", shape, "--batch", 1000000, says=["--batch", "--input"])
        self.refused("plan", "lenet", "--input", "65536x65536x1", says=["pixels", "oneDNN"])
        for arguments in [["--side", 8192, "--batch", 1000000], ["--side", 65536]]:
            self.refused("plan", "unet3d", *arguments, says=["side", "batch", "bytes"])
        self.done("plan", "lenet", "--input", "20000x20000x1", "--no-layout")

    def test_refuses(self):
        self.refused("graph", "nope", says=["nope", *NAMES])
        self.refused("graph", "lenet", "-o", "missing/graph.json", says="missing/graph.json")
        self.refused("graph", "lenet", "-o", ".", says="directory")


class Layout(CommandTest):
    blocks = "id,lower,upper,size\na,0,4,6\nb,2,6,4\nc,4,8,6\nd,0,9,0\n"

    def test_places_blocks_and_writes_them(self):
        self.write("blocks.csv", self.blocks)
        out = self.done("layout", "blocks.csv", "-o", "placed.csv")
        for line in ["blocks +4", "max-live +10 bytes at time 2", "height +10 bytes", "above max-live +0.0000 %",
                     "proven optimal +yes"]:
            self.assertRegex(out, line)
        rows = (self.folder / "placed.csv").read_text().splitlines()
        self.assertEqual(rows[0], "id,lower,upper,size,offset")
        self.assertEqual([row.rsplit(",", 1)[0] for row in rows], self.blocks.splitlines())
        self.done("layout", "placed.csv", "--capacity", 10)

    def test_says_why_a_capacity_is_not_met(self):
        self.write("blocks.csv", self.blocks)
        self.refused("layout", "blocks.csv", "--capacity", 9, "-o", "placed.csv",
                     says=["impossible", "max-live = 10", "time 2", "blocks a, b", "got 9"])
        self.write("fixed.csv", "lower,upper,size,hint\n0,9,4,2\n0,9,4,-1\n")
        self.refused("layout", "fixed.csv", "--capacity", 8, says=["impossible", "at least 10", "no layout is lower"])

    def test_refuses(self):
        self.write("bad.csv", "id,lower,upper,size\na,0,0,1\n")
        self.refused("layout", "bad.csv", says=["bad.csv", "line 2", "'upper'"])
        self.write("clash.csv", "lower,upper,size,hint\n0,9,4,0\n3,4,4,2\n")
        self.refused("layout", "clash.csv", says=["clash.csv", "blocks[1].fixed", "blocks[0]"])
        self.refused("layout", "missing.csv", says="missing.csv")
        self.refused("layout", "bad.csv", "--seconds", -1, says="--seconds")
        self.refused("layout", "bad.csv", "--capacity", -1, says="--capacity")

    def test_gaps_end_as_lifetimes_do(self):
        self.write("exclusive.csv", "id,lower,upper,size,gaps\nA,0,8,6,2-5\nB,2,5,6,\nC,0,8,2,\n")
        self.write("inclusive.csv", "id,start,end,size,gaps\nA,0,7,6,2-4\nB,2,4,6,\nC,0,7,2,\n")
        for name in ["exclusive", "inclusive"]:
            self.assertRegex(self.done("layout", name + ".csv", "-o", name + "_placed.csv"), "height +8 bytes")
            rows = (self.folder / (name + "_placed.csv")).read_text().splitlines()
            self.assertEqual(rows[0], "id,lower,upper,size,gaps,offset")
            self.assertTrue(rows[1].startswith("A,0,8,6,2-5,"), rows[1])
        self.write("one.csv", "id,start,end,size,gaps\nA,0,7,6,3-3\nB,3,3,6,\n")
        self.assertRegex(self.done("layout", "one.csv"), "height +6 bytes")

    def test_an_interrupt_keeps_the_best_layout(self):
        rows = ["id,lower,upper,size"]
        for i in range(400):
            rows.append(f"{i},{i * 37 % 100},{i * 37 % 100 + 1 + i * 53 % 90},{100 + i * 7919 % 1009}")
        self.write("blocks.csv", "\n".join(rows))
        # Until the search has begun, an interrupt ends the command: a slow machine gets more time.
        for seconds in [0.5, 2, 8, 30]:
            process = self.start("layout", "blocks.csv", "--seconds", 1000, "-o", "placed.csv")
            time.sleep(seconds)
            interrupt(process)
            out, err = process.communicate(timeout=100)
            if process.returncode not in [130, -signal.SIGINT]:
                break
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("height", out)
        self.assertEqual(len((self.folder / "placed.csv").read_text().splitlines()), 401)


class Plan(CommandTest):
    fields = ["baseline_peak_bytes", "planned_peak_bytes", "wall_bytes", "bound_bytes", "footprint_ratio",
              "baseline_peak_bytes_total", "planned_peak_bytes_total", "footprint_ratio_total"]

    def plan(self, *arguments):
        out = self.done("plan", *arguments, "--json", "figures.json")
        figures = self.read_json("figures.json")
        for field in self.fields:
            self.assertGreater(figures[field], 0, field)
        self.assertIn(f"{figures['planned_peak_bytes'] / 1e6:.3f} MB", out)
        self.assertAlmostEqual(figures["footprint_ratio"],
                               figures["baseline_peak_bytes"] / figures["planned_peak_bytes"])
        self.assertGreaterEqual(figures["planned_peak_bytes"], figures["bound_bytes"])
        for encoding in figures["encodings"]:
            self.assertLessEqual({"name", "encoding", "bytes_before", "bytes_after"}, set(encoding))
        return figures

    def test_every_network_and_policy(self):
        sizes = {"unet3d": ["--side", 32], "seq2seq": ["--steps", 8], "lstm_lm": ["--steps", 8],
                 "llama_1b": ["--steps", 64]}
        for name in NAMES:
            if name in DEEP:
                continue
            ratios = []
            for policy in ["none", "lossless", "fp16", "fp8"]:
                figures = self.plan(name, "--batch", 16, "--policy", policy, *sizes.get(name, []))
                self.assertEqual((figures["network"], figures["policy"], figures["batch"]), (name, policy, 16))
                ratios.append(figures["footprint_ratio"])
                if policy == "none":
                    self.assertEqual({e["encoding"] for e in figures["encodings"]}, {"raw"})
            self.assertEqual(ratios[0], 1.0, name)
            self.assertGreater(ratios[1], 1.0, name)
            self.assertEqual(sorted(ratios), ratios, name)

    def test_without_a_layout(self):
        self.plan("resnet20", "--policy", "fp8", "-o", "placed.json")
        placed = self.read_json("placed.json")
        figures = self.plan("resnet20", "--policy", "fp8", "--no-layout", "-o", "plan.json", "--html", "plan.html")
        self.assertIs(figures["laid_out"], False)
        plan = self.read_json("plan.json")
        self.assertIs(plan["laid_out"], False)
        self.assertEqual({b["offset"] for b in plan["buffers"]}, {0})
        self.assertEqual(plan["sizes"]["planned_peak"], plan["sizes"]["max_live"])
        self.assertLessEqual(plan["sizes"]["planned_peak"], placed["sizes"]["planned_peak"])
        self.assertIn("valid", self.done("verify", "plan.json"))
        self.done("explain", "plan.json")
        for option in ["--layout", "--memory-viz"]:
            self.refused("plan", "resnet20", "--no-layout", option, "x", says=[option, "layout"])
            self.refused("report", "plan.json", option, "x", says=[option, "layout"])
        self.refused("train", "resnet20", "--plan", "plan.json", "--steps", 1, says="layout")

    def test_a_graph_file_gives_the_plan_of_the_network(self):
        self.done("graph", "resnet20", "--batch", 32, "--threads", 2, "-o", "graph.json")
        self.done("plan", "graph.json", "--threads", 2, "-o", "from_file.json")
        self.done("plan", "resnet20", "--batch", 32, "--threads", 2, "-o", "from_name.json")
        self.assertEqual((self.folder / "from_file.json").read_bytes(), (self.folder / "from_name.json").read_bytes())
        self.assertEqual(self.plan("graph.json", "--batch", 8)["batch"], 8)
        for option, value in [("--density", 0.3), ("--input", "28x28x1"), ("--classes", 10), ("--side", 8),
                              ("--steps", 8)]:
            self.refused("plan", "graph.json", option, value, says=[option, "graph.json"])

    def test_density_and_threads(self):
        dense, sparse = (self.plan("nin", "--batch", 16, "--density", d) for d in (0.7, 0.3))
        self.assertLess(sparse["planned_peak_bytes"], dense["planned_peak_bytes"])
        self.assertEqual(self.plan("lenet", "--threads", 3)["threads"], 3)

    def test_recompute(self):
        again, kept = (self.plan("efficientnet_b0", "--batch", 2, "--recompute", what) for what in ("cheap", "none"))
        self.assertEqual(again["baseline_peak_bytes"], kept["baseline_peak_bytes"])
        self.assertGreater(kept["planned_peak_bytes"], 2 * again["planned_peak_bytes"])
        self.done("graph", "efficientnet_b0", "--batch", 2, "--recompute", "none", "-o", "graph.json")
        self.assertEqual(self.read_json("graph.json")["recompute"], [])
        self.refused("plan", "efficientnet_b0", "--recompute", "all", says="--recompute")

    def test_budgets_in_all_spellings(self):
        base = self.plan("vgg_small", "--threads", 1)["baseline_peak_bytes_total"]
        for text, expected in [(str(base), base), ("64MiB", 64 << 20), ("0.03125GiB", 32 << 20), ("32768KiB", 32 << 20),
                               ("100%", base), ("1.0", base), ("0.9", base * 0.9), ("87.5%", base * 0.875)]:
            figures = self.plan("vgg_small", "--threads", 1, "--budget", text)
            self.assertAlmostEqual(figures["budget_bytes"], expected, delta=1, msg=text)
            self.assertLessEqual(figures["planned_peak_bytes_total"], figures["budget_bytes"])
            if figures["budget_bytes"] >= base:
                self.assertEqual({e["encoding"] for e in figures["encodings"]}, {"raw"}, text)

    def test_an_impossible_budget_names_op_tensors_and_the_smallest_budget(self):
        for name, policy in [("lenet", "lossless"), ("resnet20", "fp8"), ("alexnet", "fp16")]:
            arguments = ["plan", name, "--policy", policy, "--batch", 16, "--threads", 1]
            message = self.refused(*arguments, "--budget", 1, says="weights")
            self.assertRegex(message, r"while \S+ runs")
            self.assertRegex(message, r"\w \((dense|encoded), \d+ bytes\)")
            least = self.smallest_budget(message)
            self.assertEqual(self.smallest_budget(self.refused(*arguments, "--budget", least - 1)), least)
            self.done(*arguments, "--budget", least, "-o", "plan.json")
            self.done("verify", "plan.json")

    def test_force(self):
        for encoding, policy in [("raw", "lossless"), ("sign_mask", "lossless"), ("bitmap", "lossless"),
                                 ("window_index", "lossless"), ("relu_pool", "lossless"), ("fp16", "fp16"),
                                 ("bitmap_fp16", "fp16"), ("fp8", "fp8"), ("bitmap_fp8", "fp8")]:
            figures = self.plan("vgg_small", "--policy", policy, "--force", encoding)
            self.assertIn(encoding, [e["encoding"] for e in figures["encodings"]])
        forms = {e["encoding"] for e in self.plan("resnet20", "--force", "recompute")["encodings"]}
        self.assertTrue(any(form.startswith("recompute") for form in forms), forms)
        self.refused("plan", "lenet", "--force", "zip", says=["zip", "bitmap", "relu_pool"])
        self.refused("plan", "lenet", "--force", "fp8", says=["fp8", "lossless"])
        self.refused("plan", "lenet", "--force", "", says="--force")

    def test_gist_needs_no_machine(self):
        alone = self.plan("vgg_small", "--policy", "gist", "--values", "fp8", "-o", "gist.json")
        self.done("verify", "gist.json")
        on_machine = self.plan("vgg_small", "--policy", "gist", "--values", "fp8", "--machine", "rtx")
        self.assertEqual(alone["policy"], "gist")
        self.assertEqual(alone["encodings"], on_machine["encodings"])
        self.refused("plan", "vgg_small", "--policy", "gist", "--budget", 0.01, says=["budget", "expected at least"])
        self.refused("plan", "vgg_small", "--policy", "gist", "--force", "bitmap", says="gist")

    def test_options_without_a_use_are_refused(self):
        self.refused("plan", "lenet", "--values", "fp8", says=["--values", "auto or gist", "lossless"])
        self.refused("plan", "lenet", "--swap-all", says=["--swap-all", "swap-only"])
        self.refused("plan", "lenet", "--swap-all", "--policy", "swap-only", says=["--machine", "swap-only"])
        for policy in ("swap-only", "lms", "layrub"):
            for budget in ([], ["--budget", "1GiB"]):
                self.refused("plan", "lenet", "--policy", policy, *budget, says=["--policy", "--machine", policy])
                self.refused("plan", "lenet", "--policy", policy, "--machine", "rtx", "--no-swap", *budget,
                             says=["--no-swap", policy])
        for option in (["--no-swap"], ["--evaluations", 10], ["--evaluations", 12000], ["--search-seed", 1]):
            self.refused("plan", "lenet", *option, says=[option[0] + ": expected --machine with it", "got none"])
            self.refused("train", "lenet", "--steps", 1, *option, says=option[0] + ": expected --machine with it")
            self.done("plan", "lenet", "--batch", 8, "--machine", "rtx", *option)
        self.done("plan", "lenet", "--batch", 8, "--machine", "rtx", "--search-seed", 2**63 - 1)
        for seed in ["-1", 2**64, 2**63, "1.5", "x", ""]:
            says = "--search-seed: expected a whole number from 0 to 9223372036854775807"
            self.refused("plan", "lenet", "--machine", "rtx", "--search-seed", seed, says=says)
            self.refused("reproduce", "gist", "--only", "none", "--search-seed", seed, says=says)
        for option in ("--allow", "--deny"):
            self.refused("plan", "lenet", option, "nosuch*=raw", says=[option, "nosuch*", "stash explain"])
            self.refused("sweep", "lenet", "--machine", "rtx", "--budgets", 0.8, option, "nosuch=raw", says=option)
        self.refused("sweep", "lenet", "--machine", "rtx", "--budgets", "0.8,much", says="--budgets: expected")
        self.refused("max-batch", "lenet", "--machine", "rtx", "--memory", "much", says="--memory: expected")
        self.refused("plan", "lenet", "--machine", "ref_rtx", says=["policy auto", "ref_rtx", "lossless"])
        self.done("plan", "lenet", "-o", "plan.json")
        for option in (["--machine", "rtx"], ["--values", "fp8"], ["--deny", "*=raw"], ["--no-swap"]):
            self.refused("train", "lenet", "--plan", "plan.json", "--steps", 1, *option, says=[option[0], "--plan"])

    def test_what_moves_to_the_host_is_told(self):
        printed = self.done("plan", "resnet20", "--machine", "rtx", "--policy", "auto", "--budget", 0.5, "-o",
                            "plan.json", "--json", "plan_report.json")
        self.assertIn("step on rtx", printed)
        self.assertIn("on the host", printed)
        report = self.read_json("plan_report.json")
        self.assertGreater(report["host_bytes"], 0)
        self.assertLessEqual(report["bound_ms"], report["simulated_ms"])
        self.assertIn("goes to the host and comes back", self.done("explain", "plan.json"))

    def test_refuses_wrong_arguments(self):
        self.refused("plan", "nope", says=["nope", "lenet"])
        self.refused("plan", "lenet", "--policy", "zip", says=["zip", "none, lossless, fp16, fp8"])
        for budget in ["-1", "-5%", "0", "0%", "0.0", "1e9", "nan", "inf", "64MB", "64 MiB", "", "x",
                       "99999999999999999999"]:
            self.refused("plan", "lenet", "--budget", budget, says="--budget: expected")
        for option, values in {"--batch": ["0", "-1", "x", "1.5", "", "10000000"], "--threads": ["0", "-1", "9999"],
                               "--density": ["-0.1", "1.1", "nan", "x"], "--classes": ["0", "-3"],
                               "--input": ["28x28", "28x28x1x1", "0x28x1", "-1x28x1", "axbxc", "", "28X28X1"]}.items():
            for value in values:
                self.refused("plan", "lenet", option, value, says=option + ": expected")
        self.refused("plan", "lenet", "--input", "2x2x1", says="pool1")
        self.refused("plan", "lenet", "extra", says="extra")

    def test_refuses_bad_files(self):
        self.refused("plan", "missing.json", says=["missing.json", "No such file"])
        (self.folder / "folder.json").mkdir()
        self.refused("plan", "folder.json", says=["folder.json", "directory"])
        self.write("empty.json", "")
        self.refused("plan", "empty.json", says=["empty.json", "empty"])
        text = self.done("graph", "lenet")
        for cut in [1, 100, len(text) // 2, len(text) - 3]:
            self.write("cut.json", text[:cut])
            self.refused("plan", "cut.json", says=["cut.json", "JSON"])
        self.write("wrong.json", text.replace('"batch":64', '"batch":-64', 1).replace('"batch": 64', '"batch": -64', 1))
        self.refused("plan", "wrong.json", says=["wrong.json", "batch"])
        self.write("noise.json", bytes(range(256)) * 50)
        self.refused("plan", "noise.json", says="noise.json")
        self.done("plan", "lenet", "-o", "plan.json")
        self.refused("plan", "plan.json", says=["plan.json", "stash.graph"])

    def test_outputs_are_checked_before_the_work(self):
        start = time.monotonic()
        for option in ["-o", "--json"]:
            for path in ["missing/plan.json", ".", "", "x" * 5000]:
                self.refused("plan", "resnet152", "--batch", 64, "--policy", "fp16", option, path)
        self.refused("plan", "lenet", "-o", "plan.json", "--json", "missing/x.json", says="missing/x.json")
        self.assertLess(time.monotonic() - start, 10)
        self.write("kept.json", "kept")
        self.refused("plan", "nope", "-o", "kept.json")
        self.assertEqual((self.folder / "kept.json").read_text(), "kept")

    def test_outputs_and_inputs_are_files_of_their_own(self):
        for name in ("g", "link_target"):
            self.write(name + ".json", self.done("graph", "lenet", "--batch", 8))
        (self.folder / "link.json").symlink_to("link_target.json")
        (self.folder / "hard.json").hardlink_to(self.folder / "g.json")
        (self.folder / "sub").mkdir()
        self.write("m.json", json.dumps(MACHINE))
        self.write("t.json", json.dumps(small_trace()))
        self.write("b.csv", Layout.blocks)
        self.done("sweep", "g.json", "--machine", "m.json", "--budgets", "1.0", "--json", "s.json")
        self.done("plan", "g.json", "-o", "p.json")
        before = {path: path.read_bytes() for path in self.folder.glob("*.*")}
        for arguments, both in [
                (["plan", "lenet", "-o", "a.json", "--json", "a.json"], ["--json a.json", "-o a.json"]),
                (["plan", "lenet", "-o", "a.json", "--json", "./sub/../a.json"], ["--json ./sub/../a.json", "-o a.json"]),
                (["plan", "lenet", "-o", "a.json", "--html", self.folder / "a.json"], ["--html /", "-o a.json"]),
                (["plan", "g.json", "-o", "g.json"], ["-o g.json", "the graph g.json"]),
                (["plan", "g.json", "-o", "hard.json"], ["-o hard.json", "the graph g.json"]),
                (["plan", "link.json", "--json", "link_target.json"], ["--json link_target.json", "the graph link.json"]),
                (["plan", "g.json", "--machine", "m.json", "--html", "m.json"], ["--html m.json", "--machine m.json"]),
                (["plan", "--trace", "t.json", "-o", "t.json"], ["-o t.json", "--trace t.json"]),
                (["plan", "lenet", "--html", "s.json", "--sweep", "s.json"], ["--html s.json", "--sweep s.json"]),
                (["report", "p.json", "--layout", "p.json"], ["--layout p.json", "the plan p.json"]),
                (["report", "p.json", "--layout", "x", "--html", "x"], ["--layout x", "--html x"]),
                (["sweep", "g.json", "--machine", "rtx", "--json", "g.json"], ["--json g.json", "the graph g.json"]),
                (["sweep", "g.json", "--machine", "m.json", "--html", "m.json"], ["--html m.json", "--machine m.json"]),
                (["sweep", "lenet", "--machine", "rtx", "--json", "q.json", "--html", "./q.json"],
                 ["--html ./q.json", "--json q.json"]),
                (["max-batch", "lenet", "--machine", "m.json", "--memory", "64MiB", "--json", "m.json"],
                 ["--json m.json", "--machine m.json"]),
                (["graph", "g.json", "--repeat", 2, "-o", "g.json"], ["-o g.json", "the graph g.json"]),
                (["graph", "--trace", "t.json", "-o", "t.json"], ["-o t.json", "--trace t.json"]),
                (["layout", "b.csv", "-o", "./b.csv"], ["-o ./b.csv", "the blocks b.csv"])]:
            self.refused(*arguments, says=[*both, "expected a file of its own"])
        self.assertEqual(before, {path: path.read_bytes() for path in self.folder.glob("*.*")})

    def test_devices_and_names_may_repeat(self):
        self.done("plan", "lenet", "-o", "/dev/null", "--json", "/dev/null")
        self.done("plan", "lenet", "--machine", "rtx", "-o", "lenet", "--json", "rtx")
        self.assertEqual(self.read_json("lenet")["format"], "stash.plan")

    def test_a_write_that_fails_is_reported(self):
        self.refused("plan", "lenet", "-o", "/dev/full", says="/dev/full", code=1)

    def test_a_write_that_fails_leaves_the_old_file(self):
        self.write("kept.json", "kept")
        for disposition in (signal.SIG_IGN, signal.SIG_DFL):
            def small_files_only(disposition=disposition):
                signal.signal(signal.SIGXFSZ, disposition)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

            got = subprocess.run([STASH, "graph", "lenet", "-o", "kept.json"], cwd=self.folder, capture_output=True,
                                 text=True, preexec_fn=small_files_only)
            self.assertEqual((got.returncode, got.stdout), (1, ""))
            self.assertRegex(got.stderr, r"\Astash: kept.json: writing failed: [^\n]+\n\Z")
            self.assertEqual([p.name for p in self.folder.iterdir()], ["kept.json"])
            self.assertEqual((self.folder / "kept.json").read_text(), "kept")

    def test_pipes_with_a_name_can_be_written(self):
        graph = self.done("graph", "lenet", "--batch", 8)
        os.mkfifo(self.folder / "pipe")
        with subprocess.Popen(["cat", "pipe"], cwd=self.folder, stdout=subprocess.PIPE, text=True) as reader:
            process = self.start("graph", "lenet", "--batch", 8, "-o", "pipe")
            try:
                got, _ = reader.communicate(timeout=60)
                self.assertEqual(process.communicate(timeout=60), ("", ""))
            finally:
                process.kill()
                reader.kill()
        self.assertEqual((process.returncode, got), (0, graph))
        self.assertTrue((self.folder / "pipe").is_fifo())

    def test_a_link_to_nothing_stays_a_link(self):
        (self.folder / "sub").mkdir()
        (self.folder / "link.json").symlink_to("sub/next.json")
        (self.folder / "sub/next.json").symlink_to("../target.json")
        self.refused("plan", "lenet", "-o", "target.json", "--json", "link.json",
                     says=["--json link.json", "expected a file of its own", "-o target.json"])
        self.refused("plan", "nope", "-o", "link.json", says="nope")
        self.done("graph", "lenet", "--batch", 8, "-o", "link.json")
        self.assertTrue((self.folder / "link.json").is_symlink())
        self.assertTrue((self.folder / "sub/next.json").is_symlink())
        self.assertEqual(self.read_json("target.json")["format"], "stash.graph")
        (self.folder / "loop.json").symlink_to("loop.json")
        self.refused("plan", "lenet", "-o", "loop.json", says="loop.json: expected a path that can be written")
        (self.folder / "lost.json").symlink_to("missing/x.json")
        self.refused("plan", "lenet", "-o", "lost.json", says="lost.json: expected a path that can be written")

    def test_a_new_file_keeps_the_permissions_and_the_link(self):
        kept = self.write("kept.json", "old")
        kept.chmod(0o600)
        (self.folder / "link.json").symlink_to("kept.json")
        self.done("graph", "lenet", "-o", "link.json")
        self.assertTrue((self.folder / "link.json").is_symlink())
        self.assertEqual(kept.stat().st_mode & 0o777, 0o600)
        self.assertEqual(json.loads(kept.read_text())["format"], "stash.graph")

    def test_standard_input_and_output_can_be_files(self):
        graph = self.done("graph", "lenet", "--batch", 8)
        got = subprocess.run([STASH, "plan", "-", "-o", "plan.json"], cwd=self.folder, input=graph,
                             capture_output=True, text=True)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.done("plan", "lenet", "--batch", 8, "-o", "named.json")
        self.assertEqual((self.folder / "plan.json").read_text(), (self.folder / "named.json").read_text())
        nothing = subprocess.run([STASH, "plan", "-"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
        self.assertEqual((nothing.returncode, nothing.stderr),
                         (2, "stash: -: expected a readable file, got: nothing on standard input\n"))
        self.refused("plan", "lenet", "-o", "-", says="/dev/stdout")
        self.assertEqual(self.done("graph", "lenet", "--batch", 8, "-o", "/dev/stdout"), graph)

    def test_can_be_interrupted(self):
        process = self.start("plan", "resnet152", "--policy", "fp8", "-o", "plan.json")
        while process.poll() is None and not catches_interrupts(process):
            time.sleep(0.005)
        interrupt(process)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    # The solver of linear programs, which works for seconds here, must not keep the signal for itself.
    def test_can_be_interrupted_while_the_relaxation_is_solved(self):
        large = ["resnet1001", "--batch", 32, "--machine", "m40_12gb"]
        for command in [["plan", *large, "--budget", 0.5, "-o", "plan.json"], ["sweep", *large, "--budgets", 0.5]]:
            process = self.start(*command)
            time.sleep(1)
            interrupt(process)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, (command, out, err))
            self.assertFalse((self.folder / "plan.json").exists())
            if out:
                self.assertEqual(err, "stash: sweep: interrupted; the rows are the best plans so far\n")


class LargestBatch(CommandTest):
    def test_the_first_policy_is_what_ratios_are_to(self):
        self.done("max-batch", "lenet", "--machine", "m40_12gb", "--memory", "64MiB", "--policy", "none,lossless",
                  "--evaluations", 200, "--json", "rows.json")
        rows = self.read_json("rows.json")["rows"]
        self.assertEqual([r["policy"] for r in rows], ["none", "lossless"])
        self.assertGreater(rows[1]["batch"], rows[0]["batch"])
        for row in rows:
            self.assertLessEqual(row["planned_peak_bytes"], 64 * 2**20)
            self.assertNotEqual(row["limit"], "")

    def test_nothing_that_fits_is_a_failure(self):
        code, out, err = self.run_stash("max-batch", "lenet", "--machine", "m40_12gb", "--memory", "1KiB", "--policy",
                                        "none,lossless", "--evaluations", 200)
        self.assertEqual(code, 2, (out, err))
        self.assertIn("weights, gradients, momentum and workspace", out)
        self.assertIn("no step of lenet fits into 1024 bytes", err)

    def test_a_network_has_only_so_many_positions(self):
        out = self.done("max-batch", "bert_base", "--machine", "rtx", "--memory", "64GiB", "--grow", "steps",
                        "--policy", "none,lossless", "--evaluations", 10, "--json", "rows.json")
        self.assertIn("the network has no more positions", out)
        for row in self.read_json("rows.json")["rows"]:
            self.assertEqual((row["steps"], row["limit"]), (512, "the network has no more positions"))
            self.assertTrue(row["verified"])

    def test_sizes_that_a_network_does_not_have_do_not_fit(self):
        # One step of a sequence is none.
        code, out, _ = self.run_stash("max-batch", "lstm_lm", "--machine", "rtx", "--memory", "1MiB", "--grow", "steps",
                                      "--policy", "none", "--json", "rows.json")
        self.assertEqual(code, 2)
        self.assertIn("weights, gradients, momentum and workspace", out + str(self.read_json("rows.json")))

    def test_numbers(self):
        for share in ["0x10", " 1", "1 ", "+1", "inf", "nan", "-1", "%", "1%%", "1,5"]:
            self.refused("max-batch", "lenet", "--machine", "rtx", "--memory", "64MiB", f"--max-slowdown={share}",
                         says="--max-slowdown: expected a share")
        for memory in ["0.5", "50%"]:
            message = self.refused("max-batch", "lenet", "--machine", "rtx", "--memory", memory, says="--memory: expected")
            self.assertNotIn("share", message)
            self.assertNotIn("share", self.refused("train", "lenet", "--steps", 1, "--memory-limit", memory,
                                                   says="--memory-limit: expected"))

    def test_only_what_a_network_has_can_grow(self):
        self.refused("max-batch", "lenet", "--machine", "m40_12gb", "--grow", "steps", says="--grow")
        self.refused("max-batch", "lenet", says="--machine")
        self.refused("max-batch", "--machine", "m40_12gb", says="network is required")


class Sweep(CommandTest):
    command = ["sweep", "lenet", "--batch", 8, "--machine", "rtx", "--evaluations", 10]

    def test_without_offsets_budgets_hold_for_live_bytes(self):
        self.done(*self.command, "--budgets", "0.9,0.8", "--json", "placed.json")
        self.done(*self.command, "--budgets", "0.9,0.8", "--no-layout", "--json", "live.json")
        placed, live = self.read_json("placed.json"), self.read_json("live.json")
        self.assertEqual([placed["laid_out"], live["laid_out"]], [True, False])
        self.assertTrue(live["rows"][0]["feasible"])
        for row in (row for row in live["rows"] if row["feasible"]):
            self.assertTrue(row["valid"])
            self.assertLessEqual(row["planned_peak_bytes"], row["budget_bytes"])

    def test_the_unplanned_time_does_not_depend_on_what_fits(self):
        fits = self.done(*self.command, "--budgets", "1.0,0.01", "--json", "fits.json")
        code, out, err = self.run_stash(*self.command, "--budgets", "0.01,0.02", "--json", "none.json")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"\Astash: sweep: expected a budget that a plan of lenet fits, got 0.01, 0.02[^\n]+\n\Z")
        self.assertEqual(out.splitlines()[0], fits.splitlines()[0])
        none, some = self.read_json("none.json"), self.read_json("fits.json")
        self.assertGreater(none["unplanned_ms"], 0)
        self.assertEqual(none["unplanned_ms"], some["unplanned_ms"])
        self.assertEqual([r["feasible"] for r in none["rows"]], [False, False])
        self.assertEqual([r["interrupted"] for r in some["rows"]], [False, False])
        self.done("plan", "lenet", "--batch", 8, "--machine", "rtx", "-o", "plan.json")
        self.assertAlmostEqual(self.read_json("plan.json")["times"]["unplanned_ms"], none["unplanned_ms"], places=9)

    def test_an_interrupt_is_in_the_rows(self):
        command = ["sweep", "resnet50", "--machine", "rtx", "--evaluations", 1000000, "--budgets", "0.8,0.6", "--json",
                   "rows.json"]
        # Before the search an interrupt ends the command at once, and a solver of linear programs may swallow it.
        for seconds in [2, 3, 5, 8]:
            process = self.start(*command)
            time.sleep(seconds)
            interrupt(process)
            _, err = process.communicate(timeout=200)
            if "stash: sweep: interrupted" in err:
                break
        self.assertEqual(process.returncode, 130)
        self.assertIn("stash: sweep: interrupted", err)
        rows = self.read_json("rows.json")["rows"]
        self.assertTrue(rows[0]["interrupted"])  # the largest budget comes last


class Reproduce(CommandTest):
    def test_rows_say_what_they_are(self):
        code, _, _ = self.run_stash("reproduce", "gist", "--only", "alexnet, batch 64, lossless", "--json", "rows.json")
        self.assertEqual(code, 0)
        rows = self.read_json("rows.json")["rows"]
        self.assertIn("alexnet, batch 64, lossless", rows[0]["what"])
        for row in rows:
            self.assertEqual((row["executed"], row["verified"]), ("nothing", "yes"))
            self.assertNotEqual(row["limit"], "")

    def test_an_unknown_table(self):
        self.refused("reproduce", "tables", says=["gist, meng, lms, layrub", "tables"])

    def test_rows_that_no_table_has(self):
        self.refused("reproduce", "gist", "--only", "resnet51", says=["--only: expected", "got resnet51"])


class BuilderOptions(CommandTest):
    def test_updates_in_backward(self):
        self.done("plan", "lenet", "--json", "plain.json")
        self.done("plan", "lenet", "--fused-update", "--json", "fused.json", "-o", "plan.json")
        self.assertLess(self.read_json("fused.json")["parameter_bytes"], self.read_json("plain.json")["parameter_bytes"])
        self.assertIn("valid", self.done("verify", "plan.json"))
        self.refused("plan", "seq2seq", "--fused-update", says="--fused-update")

    def test_losses_in_chunks(self):
        sizes = []
        for options in [[], ["--loss-chunk", 1]]:
            self.done("plan", "lstm_lm", "--steps", 8, "--batch", 4, *options, "--json", "figures.json")
            sizes.append(self.read_json("figures.json")["planned_peak_bytes_total"])
        self.assertLess(sizes[1], sizes[0])
        self.refused("plan", "lenet", "--loss-chunk", 1, says="--loss-chunk")


class ExplainAndVerify(CommandTest):
    def test_a_valid_plan(self):
        self.done("plan", "resnet20", "--policy", "fp8", "-o", "plan.json", "--json", "figures.json")
        self.assertIn("valid", self.done("verify", "plan.json"))
        lines = self.done("explain", "plan.json").splitlines()
        for e in self.read_json("figures.json")["encodings"]:
            line = next(line for line in lines if line.split()[:1] == [e["name"]])
            for part in [e["encoding"], str(e["bytes_before"]), str(e["bytes_after"]), "backward", e["reason"]]:
                self.assertIn(part, line)

    def test_no_bound_is_called_none(self):
        self.done("plan", "lenet", "--batch", 8, "--machine", "rtx", "-o", "plan.json")
        self.assertIn("bound verified", self.done("verify", "plan.json"))
        plan = self.read_json("plan.json")
        plan["times"]["bound_ms"] = 0
        self.write("weak.json", json.dumps(plan))
        out = self.done("verify", "weak.json")
        self.assertIn("no bound", out)
        self.assertNotIn("gap", out)

    def test_names_from_files_cannot_steer_the_terminal(self):
        nasty = "\x1b]0;owned\x07\r\n\t\x7f\u009b2J \u00fc\u4e2d"
        shown = r"\x1b]0;owned\x07\x0d\x0a\x09\x7f\xc2\x9b2J " + "\u00fc\u4e2d"
        graph = json.loads(self.done("graph", "lenet", "--batch", 8))
        graph["name"] = "net" + nasty
        for part in graph["storages"] + graph["ops"]:
            part["name"] += nasty
        self.write("g.json", json.dumps(graph))
        self.write("m.json", json.dumps({**MACHINE, "name": "m" + nasty}))
        fast = ["--machine", "m.json", "--evaluations", 100]
        plan = self.done("plan", "g.json", *fast, "--budget", 0.9, "-o", "plan.json")
        damaged = self.read_json("plan.json")
        damaged["choices"][next(i for i, c in enumerate(damaged["choices"]) if c["kind"] != "none")]["reason"] = nasty
        self.write("reason.json", json.dumps(damaged))
        explained = self.done("explain", "reason.json")
        damaged["buffers"][-1]["offset"] = 1
        damaged["steps"].reverse()
        self.write("damaged.json", json.dumps(damaged))
        verified = self.run_stash("verify", "damaged.json")
        swept = self.done("sweep", "g.json", *fast, "--budgets", "1.0")
        refused = [self.refused("plan", "g.json", "--budget", 1), self.refused("explain", "damaged.json"),
                   self.refused("plan", "lenet", "--trace", "a" + nasty), self.refused("plan" + nasty)]
        grown = self.done("max-batch", "lenet", *fast, "--policy", "none", "--memory", "4MiB")
        for text in [plan, explained, swept, grown, *refused, *verified[1:]]:
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")
        self.assertIn("net" + shown + ", batch 8", plan)
        self.assertIn("m" + shown, plan)
        self.assertIn("pool1" + shown, plan)
        self.assertIn("net" + shown + ", batch 8", swept)
        self.assertIn("on m" + shown, swept)
        self.assertIn("on m" + shown, grown)
        self.assertIn(shown, verified[1])
        self.assertIn("; " + shown, explained)
        tensors = sum(c["kind"] != "none" for c in damaged["choices"])
        table = explained[explained.index("\ntensor "):].splitlines()[2:]
        self.assertEqual(len(table), tensors)

    def test_damaged_plans_have_findings(self):
        self.done("plan", "vgg_small", "-o", "plan.json")
        plan = (self.folder / "plan.json").read_text()

        def damage(change):
            p = json.loads(plan)
            change(p)
            self.write("damaged.json", json.dumps(p))
            code, out, err = self.run_stash("verify", "damaged.json")
            self.assertEqual(code, 1)
            self.assertEqual(err.count("\n"), 1)
            self.refused("explain", "damaged.json", says=["damaged.json", "stash verify"])
            self.refused("train", "vgg_small", "--plan", "damaged.json", "--steps", 1)
            return out

        self.assertIn("bad_totals", damage(lambda p: p["sizes"].update(planned_peak=64)))
        self.assertIn("bad_order", damage(lambda p: p["steps"].reverse()))
        self.assertIn("bad_overlap", damage(lambda p: [b.update(offset=0) for b in p["buffers"]]))
        self.assertIn("bad_reference", damage(lambda p: p["choices"].pop()))
        self.assertIn("bad_reference", damage(lambda p: p["alternative"].__setitem__(-2, 9)))
        self.assertIn("illegal_encoding", damage(lambda p: p.update(policy="none")))

    def test_refuses_what_is_no_plan(self):
        self.done("plan", "lenet", "-o", "plan.json")
        text = (self.folder / "plan.json").read_text()
        for command in ["explain", "verify"]:
            self.refused(command, says="plan is required")
            self.refused(command, "missing.json", says="missing.json")
            self.refused(command, ".", says="directory")
            for cut in [0, 1, 200, len(text) // 2, len(text) - 3]:
                self.write("cut.json", text[:cut])
                self.refused(command, "cut.json", says="cut.json")
            self.write("graph.json", self.done("graph", "lenet"))
            self.refused(command, "graph.json", says=["graph.json", "stash.plan"])


if __name__ == "__main__":
    unittest.main()
