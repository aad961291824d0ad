# SPDX-License-Identifier: Apache-2.0
"""stash train and stash compare, on generated images and on small files made here."""

import gzip
import itertools
import math
import struct
import time
import unittest
import xml.etree.ElementTree as xml
from array import array
from collections import Counter

from command import CommandTest, interrupt

POLICIES = ["none", "lossless", "fp16", "fp8"]
SHORT = ["--batch", 16, "--steps", 3, "--test-images", 32, "--threads", 2]


def idx(shape, content):
    return struct.pack(">BBBB", 0, 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape) + content


class Data(CommandTest):
    """A folder `data` with 40 training and 20 test images in IDX form."""

    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.data.mkdir()
        for name, count in [("train", 40), ("t10k", 20)]:
            pixels = bytes((i * 37 + i // 784) % 256 for i in range(count * 784))
            labels = bytes(i % 10 for i in range(count))
            self.write(f"data/{name}-images-idx3-ubyte", idx([count, 28, 28], pixels))
            self.write(f"data/{name}-labels-idx1-ubyte.gz", gzip.compress(idx([count], labels)))


class Train(CommandTest):
    fields = ["losses", "final_weights_sha256", "baseline_peak_bytes", "planned_peak_bytes", "measured_peak_bytes",
              "wall_bytes", "footprint_ratio", "step_ms_median", "test_accuracy", "encodings", "reruns",
              "baseline_peak_bytes_total", "planned_peak_bytes_total", "measured_peak_bytes_total"]

    def train(self, *arguments, network="lenet"):
        out = self.done("train", network, *SHORT, *arguments, "--json", "record.json")
        record = self.read_json("record.json")
        for field in self.fields:
            self.assertIn(field, record)
        self.assertEqual(len(record["losses"]), 3)
        self.assertRegex(record["final_weights_sha256"], r"\A[0-9a-f]{64}\Z")
        self.assertLessEqual(record["measured_peak_bytes"], record["planned_peak_bytes"])
        self.assertGreater(record["measured_peak_bytes"], 0.9 * record["planned_peak_bytes"])
        self.assertTrue(0 <= record["test_accuracy"] <= 1)
        self.assertGreater(record["step_ms_median"], 0)
        for encoding in record["encodings"]:
            self.assertLessEqual({"name", "encoding", "bytes_before", "bytes_after"}, set(encoding))
        return record, out

    def test_generated_images_are_announced_and_progress_is_shown(self):
        _, out = self.train()
        self.assertRegex(out, r"\Adata: generated images \(no --data folder, STASH_DATA not set\)")
        self.assertRegex(out, r"step 3/3  loss \d+\.\d+  \d+ images/s  arena \d+ bytes\n")

    def test_policies_from_one_seed(self):
        for network in ["lenet", "vgg_small", "resnet20"]:
            records = {p: self.train("--policy", p, "--seed", 5, network=network)[0] for p in POLICIES}
            for same in ["losses", "final_weights_sha256"]:
                self.assertEqual(records["lossless"][same], records["none"][same], network)
            if network != "lenet":  # whose smallest plan may be one of masks alone
                self.assertNotEqual(records["fp8"]["final_weights_sha256"], records["none"]["final_weights_sha256"])
            self.assertEqual(records["none"]["footprint_ratio"], 1)
            self.assertGreater(records["lossless"]["footprint_ratio"], 1.2)

    def test_the_seed_is_the_run(self):
        first, again, other = (self.train("--seed", s)[0]["final_weights_sha256"] for s in [1, 1, 2])
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_forced_encodings(self):
        baseline = self.train("--policy", "none", network="vgg_small")[0]
        for encoding, policy in [("raw", "lossless"), ("sign_mask", "lossless"), ("bitmap", "lossless"),
                                 ("window_index", "lossless"), ("relu_pool", "lossless"), ("fp16", "fp16"),
                                 ("bitmap_fp16", "fp16"), ("fp8", "fp8"), ("bitmap_fp8", "fp8")]:
            record = self.train("--policy", policy, "--force", encoding, network="vgg_small")[0]
            self.assertIn(encoding, [e["encoding"] for e in record["encodings"]])
            if policy == "lossless":
                self.assertEqual(record["losses"], baseline["losses"], encoding)
                self.assertEqual(record["final_weights_sha256"], baseline["final_weights_sha256"], encoding)
        record = self.train("--force", "recompute", network="resnet20")[0]
        self.assertTrue(any(e["encoding"].startswith("recompute") for e in record["encodings"]))

    def test_a_plan_gives_the_run_of_its_policy(self):
        for policy in ["none", "lossless"]:
            self.done("plan", "lenet", "--batch", 16, "--threads", 2, "--policy", policy, "-o", "plan.json")
            by_plan = self.train("--plan", "plan.json")[0]
            by_policy = self.train("--policy", policy)[0]
            for same in ["losses", "final_weights_sha256"]:
                self.assertEqual(by_plan[same], by_policy[same])

    def test_budgets(self):
        message = self.refused("train", "lenet", *SHORT, "--budget", 1, says="weights")
        least = self.smallest_budget(message)
        tight = self.train("--budget", least)[0]
        full = self.train("--budget", "100%")[0]
        self.assertLessEqual(tight["planned_peak_bytes_total"], least)
        self.assertEqual({e["encoding"] for e in full["encodings"]}, {"raw"})
        self.assertEqual(tight["final_weights_sha256"], full["final_weights_sha256"])

    def test_activations_are_what_the_relus_put_out(self):
        for network, counts in [("lenet", {"relu": 3, "relu_max_pool": 2}), ("vgg_small", {"relu": 7, "relu_max_pool": 3}),
                                ("resnet20", {"relu": 9, "batch_norm": 10})]:
            maps = {}
            for policy in ["none", "lossless"]:
                pooled_maps = []
                out = self.done("train", network, *SHORT, "--policy", policy, "--dump-activations", f"maps/{network}")
                self.assertRegex(out, rf"{sum(counts.values())} feature maps in maps/{network}\n\Z")
                index = self.read_json(f"maps/{network}/activations.json")
                self.assertEqual((index["network"], index["batch"], index["steps"]), (network, 16, 3))
                self.assertEqual(Counter(m["op"] for m in index["maps"]), counts)
                maps[policy] = {}
                kept = {m["name"]: m["kept"] for m in index["maps"]}
                if policy == "none":
                    self.assertEqual(set(kept.values()), {"raw"}, kept)
                elif network == "vgg_small":
                    self.assertEqual((kept["conv1_1/relu"], kept["pool1/relu"], kept["pool1"]),
                                     ("bitmap", "window_index", "bitmap"))
                for m in index["maps"]:
                    values = array("f", (self.folder / "maps" / network / m["file"]).read_bytes())
                    self.assertEqual(len(values), math.prod(m["shape"]), m)
                    self.assertEqual(m["shape"][0], 16)
                    positive = sum(v > 0 for v in values) / len(values)
                    self.assertTrue(min(values) == 0 and 0 < positive < 1, (m, positive))
                    maps[policy][m["name"]] = values
                    if "pooled_by" in m:
                        pooled_maps.append((m, values))
                for m, values in pooled_maps:
                    self.check_pooled(m, values, maps[policy][m["name"].removesuffix("/relu")])
            self.assertEqual(maps["none"], maps["lossless"])

    def check_pooled(self, m, values, pooled):
        self.assertEqual(m["pooled_by"], [2, 2, 2, 2, 0, 0])
        (n, h, w, c), (_, pooled_h, pooled_w, _) = m["shape"], m["pooled_shape"]

        def at(sample, row, column, channel):
            return values[((sample * h + row) * w + column) * c + channel]

        positions = list(itertools.product(range(n), range(pooled_h), range(pooled_w), range(c)))
        self.assertEqual(len(positions), len(pooled))
        for i in range(0, len(positions), 7):
            s, y, x, k = positions[i]
            window = [at(s, 2 * y + dy, 2 * x + dx, k) for dy in (0, 1) for dx in (0, 1)]
            self.assertEqual(max(window), pooled[i], (m["name"], positions[i]))

    def test_dumping_activations_changes_nothing_else(self):
        plain = self.train("--seed", 3)[0]["final_weights_sha256"]
        self.assertEqual(self.train("--seed", 3, "--dump-activations", "maps")[0]["final_weights_sha256"], plain)

    def test_refuses_wrong_arguments_before_the_work(self):
        start = time.monotonic()
        for network in ["lenet"]:
            for option, values in {"--batch": ["0", "-1", "x", "100000"], "--steps": ["0", "-1", "x"],
                                   "--epochs": ["0", "-1"], "--threads": ["0", "-1"], "--test-images": ["0"],
                                   "--seed": ["-1", "x"], "--learning-rate": ["-1", "nan", "x"],
                                   "--momentum": ["-0.1", "1.1", "nan"], "--weight-decay": ["-1", "nan"],
                                   "--budget": ["0", "-1", "1e9", ""], "--policy": ["zip"], "--force": ["zip", ""],
                                   "--json": ["missing/record.json", ".", ""], "--data": ["missing", ""],
                                   "--plan": ["missing.json", ".", ""], "--dump-activations": ["", "/dev/null/maps"]}.items():
                for value in values:
                    self.refused("train", network, option, value)
        self.refused("train", "nope", says=["nope", "lenet"])
        for planned in ["vgg16", "bert_base", "unet3d"]:
            self.refused("train", planned, says=[planned, "can only be planned"])
        self.refused("train", "lenet", "--steps", 1, "--epochs", 1)
        self.refused("train", "lenet", "--policy", "none", "--plan", "plan.json")
        self.refused("train", "lenet", "--batch", 60000, says=["--batch", "8192", "60000"])
        self.refused("train", "lenet", "--policy", "none", "--force", "bitmap", "--steps", 1, says="bitmap")
        self.assertLess(time.monotonic() - start, 60)

    def test_outputs_and_inputs_are_files_of_their_own(self):
        self.done("plan", "lenet", "--batch", 16, "-o", "plan.json")
        (self.folder / "maps").mkdir()
        for arguments, both in [
                (["train", "--json", "x", "--chrome-trace", "./x"], ["--chrome-trace ./x", "--json x"]),
                (["train", "--plan", "plan.json", "--json", "plan.json"], ["--json plan.json", "--plan plan.json"]),
                (["train", "--machine", "plan.json", "--json", "plan.json"], ["--json plan.json", "--machine plan.json"]),
                (["train", "--dump-activations", "maps", "--json", "maps/activations.json"],
                 ["--dump-activations maps/activations.json", "--json maps/activations.json"]),
                (["compare", "--svg", "x", "--json", "./x"], ["--json ./x", "--svg x"])]:
            self.refused(arguments[0], "lenet", "--steps", 1, *arguments[1:], says=both)

    def test_refuses_plans_that_do_not_fit(self):
        def plan(*arguments):
            self.done("plan", *arguments, "-o", "plan.json")
            return ["train", "lenet", "--plan", "plan.json", "--steps", 1]

        self.refused(*plan("resnet20"), says=["plan.json", "lenet", "resnet20"])
        self.refused(*plan("lenet", "--input", "32x32x3"), says=["plan.json", "28x28x1", "32x32x3"])
        self.refused(*plan("lenet", "--classes", 5), says=["plan.json", "classes"])
        self.refused(*plan("lenet", "--batch", 10000), says=["8192", "10000"])
        self.refused(*plan("lenet", "--batch", 16), "--batch", 17, says=["--batch", "16", "17"])
        self.refused(*plan("lenet", "--threads", 2), "--threads", 1, says="--threads")
        text = (self.folder / "plan.json").read_text()
        self.write("plan.json", text[:len(text) // 2])
        self.refused("train", "lenet", "--plan", "plan.json", says="plan.json")

    def test_an_interrupt_stops_after_the_step(self):
        process = self.start("train", "vgg_small", "--steps", 100000, "--batch", 16, "--json", "record.json",
                             "--dump-activations", "maps/of/vgg_small")
        process.stdout.readline()  # data
        process.stdout.readline()  # first step
        start = time.monotonic()
        interrupt(process)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - start, 15)
        self.assertRegex(err, r"\Astash: interrupted after \d+ steps\n\Z")
        self.assertEqual(list(self.folder.iterdir()), [])


class TrainWithSwap(CommandTest):
    """Maps go to the host in the background."""

    SWAP = ["--machine", "cpu", "--policy", "swap-only", "--swap-all"]

    def train(self, *arguments, network="vgg_small"):
        self.done("train", network, *SHORT, *arguments, "--json", "record.json")
        return self.read_json("record.json")

    def test_the_run_is_that_without_swap(self):
        plain = self.train("--policy", "none")
        for folder in [[], ["--swap-folder", "."]]:
            swapped = self.train(*self.SWAP, *folder)
            self.assertLess(swapped["measured_peak_bytes"], plain["measured_peak_bytes"])
            for same in ["losses", "final_weights_sha256"]:
                self.assertEqual(swapped[same], plain[same])
        self.assertEqual([p.name for p in self.folder.iterdir()], ["record.json"])

    def test_measured_times_stand_next_to_predicted_ones(self):
        self.train(*self.SWAP, "--chrome-trace", "t.json")
        trace = self.read_json("t.json")
        names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        self.assertEqual(names, {1: "vgg_small, predicted", 2: "vgg_small, measured"})
        ends, copies = {}, {1: [], 2: []}
        for e in trace["traceEvents"]:
            if e["ph"] != "X":
                continue
            track = (e["pid"], e["tid"])
            self.assertGreaterEqual(e["ts"], ends.get(track, 0) - 0.002, e)
            ends[track] = e["ts"] + e["dur"]
            if e["cat"] == "copy":
                copies[e["pid"]].append(e["args"]["step"])
        self.assertGreater(len(copies[2]), 4)
        self.assertEqual(sorted(copies[1]), sorted(copies[2]))
        last = max(end for (process, _), end in ends.items() if process == 2)
        self.assertAlmostEqual(last, 1e3 * trace["otherData"]["measured_ms"], delta=1)
        # Plans without a machine have nothing to predict.
        self.train("--chrome-trace", "t.json")
        self.assertEqual({e["pid"] for e in self.read_json("t.json")["traceEvents"]}, {2})

    def test_a_network_that_does_not_fit_a_memory_limit(self):
        run = ["train", "resnet20", "--batch", 256, "--steps", 1, "--threads", 1, "--test-images", 256, "--seed", 3]
        limit = ["--memory-limit", "256MiB"]
        self.refused(*run, "--policy", "none", *limit, "--json", "none.json", code=1,
                     says=["resnet20", "bytes", "--budget"])
        self.done(*run, "--policy", "none", "--json", "none.json")
        self.done(*run, *limit, "--machine", "cpu", "--budget", "96MiB", "--swap-folder", ".", "--json", "swap.json")
        plain, swapped = self.read_json("none.json"), self.read_json("swap.json")
        for same in ["losses", "final_weights_sha256"]:
            self.assertEqual(swapped[same], plain[same])
        self.assertGreater(plain["measured_peak_bytes_total"], 256 << 20)
        self.assertLessEqual(swapped["measured_peak_bytes_total"], 96 << 20)

    def test_refuses_what_cannot_be(self):
        self.refused("train", "lenet", *SHORT, "--memory-limit", "much", says=["--memory-limit", "much"])
        self.refused("train", "vgg_small", *SHORT, *self.SWAP, "--swap-folder", "missing", says="missing")
        self.write("file", "")
        for folder in ["missing", "file"]:  # also where nothing would be moved there
            self.refused("train", "lenet", *SHORT, "--swap-folder", folder, says=["--swap-folder: ", folder])
        self.refused("train", "lenet", *SHORT, "--chrome-trace", "missing/t.json", says="missing")


class TrainOnFiles(Data):
    def test_data_from_option_and_environment(self):
        for options in [{"arguments": ["--data", self.data]}, {"arguments": [], "data": self.data}]:
            out = self.done("train", "lenet", *SHORT, *options.pop("arguments"), **options)
            self.assertIn("40 training and 20 test images of 28x28x1", out)

    def test_a_batch_may_be_all_the_data_but_not_more(self):
        self.done("train", "lenet", "--data", "data", "--batch", 40, "--steps", 2)
        self.refused("train", "lenet", "--data", "data", "--batch", 41, "--steps", 1, says=["--batch", "40", "41"])

    def test_refuses_damaged_data(self):
        run = ["train", "lenet", "--data", "data", "--batch", 8, "--steps", 1, "--json", "record.json"]
        images = self.data / "train-images-idx3-ubyte"
        whole = images.read_bytes()
        for broken in [b"", whole[:3], whole[:16], whole[:-1], b"\xff" * 64, whole[:4] + b"\xff" * 4 + whole[8:]]:
            images.write_bytes(broken)
            self.refused(*run, says="train-images-idx3-ubyte")
        images.unlink()
        self.refused(*run, says="data")
        images.mkdir()
        self.refused(*run)
        images.rmdir()
        images.write_bytes(whole)
        labels = self.data / "train-labels-idx1-ubyte.gz"
        packed = labels.read_bytes()
        labels.write_bytes(packed[:-9])
        self.refused(*run, says="train-labels-idx1-ubyte.gz")

    def test_refuses_truncated_cifar(self):
        folder = self.folder / "cifar"
        folder.mkdir()
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            (folder / name).write_bytes(bytes(3073 * 4))
        self.done("train", "resnet20", "--data", folder, "--batch", 4, "--steps", 1)
        (folder / "data_batch_3.bin").write_bytes(bytes(3073 * 4 - 1))
        self.refused("train", "resnet20", "--data", folder, "--batch", 4, "--steps", 1, says="data_batch_3.bin")


class Compare(CommandTest):
    def test_table_picture_and_record(self):
        out = self.done("compare", "lenet", *SHORT, "--svg", "memory.svg", "--json", "runs.json")
        runs = self.read_json("runs.json")
        self.assertEqual([run["policy"] for run in runs], POLICIES)
        table = out[out.index("policy "):].splitlines()[1:5]
        self.assertEqual([row.split()[0] for row in table], POLICIES)
        for run, row in zip(runs, table):
            self.assertIn(str(run["planned_peak_bytes"]), row.split())
            self.assertEqual(row.split()[-1], "yes" if run["bit_identical"] else "no")
        self.assertEqual([run["bit_identical"] for run in runs[:2]], [True, True])
        self.assertIn("memory.svg", out)

        picture = xml.parse(self.folder / "memory.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(picture.tag, space + "svg")
        curves = picture.findall(space + "path")
        self.assertEqual(len(curves), 4)
        self.assertEqual(len({curve.get("stroke") for curve in curves}), 4)
        texts = [text.text for text in picture.findall(space + "text")]
        for label in ["before", "lossless", "fp16", "fp8"]:
            self.assertTrue(any(text.startswith(label + ": peak ") for text in texts), label)
        width, height = float(picture.get("width")), float(picture.get("height"))
        for curve in curves:
            for point in curve.get("d")[1:].split(" L"):
                x, y = map(float, point.split(","))
                self.assertTrue(0 <= x <= width and 0 <= y <= height, point)

    def test_refuses(self):
        for option, value in [("--svg", "missing/memory.svg"), ("--json", "missing/runs.json"), ("--svg", "."),
                              ("--policy", "fp8"), ("--batch", "0"), ("--batch", "100000")]:
            self.refused("compare", "lenet", option, value)
        self.refused("compare", "vgg16", says="vgg16")
        self.refused("compare", "nope", says="nope")

    def test_an_interrupt_leaves_nothing(self):
        process = self.start("compare", "lenet", "--steps", 100000, "--svg", "memory.svg", "--json", "runs.json")
        process.stdout.readline()
        process.stdout.readline()
        interrupt(process)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
