# SPDX-License-Identifier: Apache-2.0
"""stash bench: that it runs, and what it writes. Nothing here depends on how fast anything is."""

import os
import unittest
import xml.etree.ElementTree as xml

from command import CommandTest

ONE = "^encode/bitmap/iid_0.5/64KiB$"


class Bench(CommandTest):
    def bench(self, *arguments):
        out = self.done("bench", "--seconds", 0.01, *arguments, "--json", "bench.json", "--svg", "bench.svg")
        return self.read_json("bench.json"), xml.parse(self.folder / "bench.svg").getroot(), out

    def test_the_selection_runs_and_every_output_has_every_line(self):
        record, svg, out = self.bench()
        for field in ["stash", "commit", "compiler", "processor", "cpu_target"]:
            self.assertTrue(record[field], field)
        self.assertEqual((record["format"], record["threads"]), ("stash.bench", 1))
        names = [line["name"] for line in record["lines"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({"encode/bitmap/clustered_0.5/1MiB", "decode/fp8/iid_0.5/64MiB",
                              "relu_max_pool_forward/relu_pool/iid_0.5/64MiB"}, set(names))
        for line in record["lines"]:
            for field in ["seconds", "bytes_per_second", "copy_share"]:
                self.assertGreater(line[field], 0, line)
            self.assertGreaterEqual(line["rounds"], 3)
            self.assertGreaterEqual(line.get("ratio", 1), 1)
            self.assertEqual("one_call_speedup" in line, "_batch_of_32/" in line["name"])
        rows = [row.split()[:2] for row in out.splitlines()]
        self.assertLessEqual({name.rsplit("/", 1)[0] for name in names}, {row[0] for row in rows if row})
        texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLessEqual(set(names), set(texts))

    def test_encoded_ratios_are_those_of_the_format(self):
        record, _, out = self.bench("--all", "--filter", "^encode/(sign_mask|fp16|raw)/iid_0.5/64KiB$")
        self.assertEqual({line["name"].split("/")[1]: line["ratio"] for line in record["lines"]},
                         {"sign_mask": 32, "fp16": 2, "raw": 1})
        self.assertRegex(out, r"encode/sign_mask/iid_0.5 +64KiB +\d+\.\d\d +\d+ % +\d+-\d+ % +32\.00( +busy)?\n")
        self.assertRegex(self.done("bench", "--seconds", 0, "--all", "--filter", "^relu_forward/no_stash/iid_0.5/64"),
                         r" % +-( +busy)?\n")

    def test_rows_say_how_much_their_rounds_differ(self):
        record, _, out = self.bench("--filter", "^(encode|decode)/bitmap/iid_0.5/")
        busy = [line["name"] for line in record["lines"] if line["copy_variation"] > 0.1]
        for line in record["lines"]:
            low, high = line["copy_share_quartiles"]
            self.assertLessEqual(low, line["copy_share"], line)
            self.assertLessEqual(line["copy_share"], high, line)
            self.assertGreaterEqual(line["copy_variation"], 0, line)
        marked = [row for row in out.splitlines() if row.endswith("busy")]
        self.assertEqual(len(marked), len(busy))
        self.assertEqual(f"busy: {len(busy)} of {len(record['lines'])} lines" in out, bool(busy))

    def test_threads(self):
        record, svg, out = self.bench("--threads", 2, "--filter", "^(encode/bitmap/iid_0.5/1MiB|encode_batch_of_32/csr)")
        self.assertEqual((record["threads"], len(record["lines"])), (2, 2))
        self.assertRegex(record["command"], r"\Astash bench --threads 2 --seconds 0.01 --filter '\^\(encode/")
        self.assertIn("2 threads", out)
        self.assertIn("2 threads", xml.tostring(svg, encoding="unicode"))

    def test_refuses_wrong_arguments(self):
        for option, values in {"--seconds": ["-1", "x", "nan", "", "1e9"], "--threads": ["0", "-1", "x", "9999"],
                               "--filter": ["", "(", "zip"], "--json": ["", ".", "missing/bench.json"],
                               "--svg": ["", ".", "missing/bench.svg"]}.items():
            for value in values:
                self.refused("bench", option, value)
        self.refused("bench", "--filter", "zip", says=["--filter", "zip", "encode/bitmap"])
        self.refused("bench", "--filter", "(", says=["--filter: expected a regular expression", "'('"])
        self.refused("bench", "bitmap", says="bitmap")
        self.refused("bench", "--filter", ONE, "--seconds", 0, "--json", "x", "--svg", "./x", says=["--svg ./x", "--json x"])

    @unittest.skipIf(os.environ.get("STASH_ENABLE_CUDA", "OFF") != "OFF", "this build may find a device")
    def test_a_build_without_cuda_says_how_to_configure_one(self):
        self.refused("bench", "--device", "cuda", "--json", "bench.json", "--svg", "bench.svg",
                     says=["--device cuda: expected a build with CUDA, its driver and a GPU, got none",
                           "configure it with -DSTASH_ENABLE_CUDA=ON"])

    def test_a_full_disk_is_noticed(self):
        self.refused("bench", "--seconds", 0, "--filter", ONE, "--json", "/dev/full", code=1, says="/dev/full")


if __name__ == "__main__":
    unittest.main()
