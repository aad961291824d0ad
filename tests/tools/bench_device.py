# SPDX-License-Identifier: Apache-2.0
"""stash bench --device cuda on the emulated device: that it runs, and what it writes. Figures mean nothing here."""

import unittest
import xml.etree.ElementTree as xml

from command import CommandTest


class DeviceBench(CommandTest):
    def bench(self, *arguments):
        out = self.done("bench", "--device", "cuda", "--seconds", 0.01, *arguments, "--json", "bench.json", "--svg",
                        "bench.svg")
        return self.read_json("bench.json"), xml.parse(self.folder / "bench.svg").getroot(), out

    def test_the_selection_runs_and_every_output_has_every_line(self):
        record, svg, out = self.bench()
        self.assertEqual(record["format"], "stash.bench")
        self.assertEqual(record["device"]["name"], "emulator")
        self.assertRegex(record["command"], r"\Astash bench --device cuda --seconds 0.01\Z")
        self.assertNotIn("not_run", record)
        names = [line["name"] for line in record["lines"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({"encode/bitmap/f32/iid_0.5/64KiB", "decode/csr/f16/iid_0.5/64KiB",
                              "relu_backward/bitmap/f32/iid_0.5/64KiB",
                              "max_pool_forward/window_index/f16/iid_0.5/64KiB"}, set(names))
        self.assertLess(len(names), 50, "more than can be read")
        for line in record["lines"]:
            for field in ["seconds", "bytes_per_second", "copy_share"]:
                self.assertGreater(line[field], 0, line)
            self.assertGreaterEqual(line["rounds"], 3)
        self.assertLessEqual({name.rsplit("/", 1)[0] for name in names},
                             {row.split()[0] for row in out.splitlines() if row.split()})
        texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLessEqual(set(names), set(texts))
        self.assertTrue(any("(emulator)" in text for text in texts))

    def test_filters(self):
        record, _, out = self.bench("--filter", "^encode/sign_mask/f32")
        self.assertEqual([(line["name"], line["ratio"]) for line in record["lines"]],
                         [("encode/sign_mask/f32/iid_0.5/64KiB", 32)])
        self.assertRegex(out, r"encode/sign_mask/f32/iid_0.5 +64KiB +\d+\.\d\d +\d+ % +- +32\.00\n")
        record, _, _ = self.bench("--all", "--filter", "^encode/fp10/bf16/(clustered|dead_channels)_0.5/64KiB$")
        self.assertEqual(len(record["lines"]), 2)

    def test_refuses_wrong_arguments(self):
        self.refused("bench", "--device", "cuda", "--threads", 2, says="--threads: expected 1 with --device cuda")
        self.refused("bench", "--device", "cuda", "--filter", "zip",
                     says=["--filter", "zip", "encode/bitmap/f32/iid_0.5/256MiB"])
        self.refused("bench", "--device", "tpu", says=["--device", "tpu"])
        self.refused("bench", "--device", "cuda", "--json", "missing/bench.json", says="missing")


if __name__ == "__main__":
    unittest.main()
