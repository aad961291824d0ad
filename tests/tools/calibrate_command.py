# SPDX-License-Identifier: Apache-2.0
"""stash calibrate: what it writes, and that plans can be made with it. Nothing here depends on how fast anything is."""

import unittest

from command import CommandTest


class Calibrate(CommandTest):
    def test_a_plan_can_be_made_for_the_machine_it_measures(self):
        out = self.done("calibrate", "--seconds", 0, "--threads", 1, "--name", "mine", "-o", "machine.json")
        machine = self.read_json("machine.json")
        self.assertEqual((machine["format"], machine["name"]), ("stash.machine", "mine"))
        for rate in ["flops_per_second", "memory_bytes_per_second", "out_bytes_per_second", "in_bytes_per_second"]:
            self.assertGreater(machine[rate], 1e6, rate)
        for share in ["mask_share", "sparse_share", "cast_share", "elementwise_share"]:
            self.assertGreater(machine[share], 0, share)
        self.assertGreater(machine["memory_bytes"], 2**28)
        self.assertRegex(out, r"convolution +[\d.]+ GFLOP/s\nmemory +[\d.]+ GB/s")
        self.done("sweep", "lenet", "--batch", 8, "--machine", "machine.json", "--budgets", "0.8", "--json", "s.json")
        self.assertEqual(self.read_json("s.json")["machine"], "mine")

    def test_the_ops_of_a_network(self):
        out = self.done("calibrate", "--seconds", 0, "--threads", 1, "--network", "lenet", "--batch", 4, "-o", "machine.json",
                        "--graph", "lenet.json")
        self.assertRegex(out, r"lenet +[\d.]+ ms forward, [\d.]+ ms backward, [\d.]+ ms update")
        ops = self.read_json("lenet.json")["ops"]
        self.assertTrue(all(op["seconds"] > 0 for op in ops))
        self.done("plan", "lenet.json", "--machine", "machine.json", "--threads", 1, "-o", "plan.json")
        unplanned = self.read_json("plan.json")["times"]["unplanned_ms"]
        self.assertAlmostEqual(unplanned, 1e3 * sum(op["seconds"] for op in ops), places=6)
        self.refused("calibrate", "--network", "vgg16", "--seconds", 0, says="vgg16")
        self.refused("calibrate", "--batch", 8)

    def test_refuses_wrong_arguments(self):
        for option, values in {"--seconds": ["-1", "x", "nan", "1e9"], "--threads": ["0", "-1", "x"],
                               "--output": ["", ".", "missing/machine.json"], "--name": [""]}.items():
            for value in values:
                self.refused("calibrate", option, value)
        self.refused("calibrate", "lenet", says="lenet")
        self.refused("calibrate", "--network", "lenet", "--batch", 4, "-o", "m.json", "--graph", "./m.json", "--seconds", 0,
                     says=["--graph ./m.json", "-o m.json"])


if __name__ == "__main__":
    unittest.main()
