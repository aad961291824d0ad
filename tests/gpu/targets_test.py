# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_targets.py with rows that are made up. targets_test.py SCRIPTS GPU_BENCH, whose rows the targets name."""

import subprocess
import sys
import unittest

GPU_BENCH = sys.argv.pop()
sys.path.insert(0, sys.argv.pop())
import gpu_targets  # noqa: E402

MIB = 1 << 20


def row(name, share=0.99, seconds=1e-4, size=256 * MIB):
    return {"name": name, "dense_bytes": size, "seconds": {"median": seconds}, "copy_share": share}


def all_rows():
    """Every target is met: baselines are ten times slower."""
    rows = {}
    for target in gpu_targets.TARGETS:
        for form in target.forms:
            name = f"{form}/256MiB"
            rows[name] = row(name)
            case = form.rsplit("/", 2)[0]
            for against in target.against.get(case, ()):
                baseline = against + name[len(case):]
                rows[baseline] = row(baseline, seconds=1e-3)
    return rows


class Targets(unittest.TestCase):
    def hold(self, rows, device="NVIDIA H200", why_not=""):
        entries = gpu_targets.hold(list(rows.values()), device, why_not)
        self.assertEqual(len(entries), len(gpu_targets.TARGETS))
        return {entry["name"]: entry for entry in entries}

    def results(self, entries, but):
        """All targets are met but one, whose entry is returned."""
        self.assertEqual({entry["result"] for name, entry in entries.items() if name != but}, {"met"})
        return entries[but]

    def test_the_program_has_such_rows(self):
        listed = subprocess.run([GPU_BENCH, "--list"], capture_output=True, text=True, check=True).stdout.split()
        named = {f"{form}/256MiB" for target in gpu_targets.TARGETS for form in target.forms if not target.own_size}
        self.assertLessEqual(named, set(listed))
        # The emulator has no baselines at all.
        baselines = {name.rsplit("/", 3)[0] for name in listed if name.startswith("baseline/")}
        needed = {name for target in gpu_targets.TARGETS for names in target.against.values() for name in names}
        if baselines:
            self.assertLessEqual(needed, baselines)

    def test_every_case_of_a_target_has_its_baselines(self):
        for target in gpu_targets.TARGETS:
            if target.against:
                self.assertEqual(set(target.against), {form.rsplit("/", 2)[0] for form in target.forms}, target.name)

    def test_all_met(self):
        entries = self.hold(all_rows())
        self.assertEqual({entry["result"] for entry in entries.values()}, {"met"})
        entry = entries["sign mask, encode"]
        self.assertEqual(entry["rows"], [f"encode/sign_mask/{kind}/iid_0.5/256MiB" for kind in ("f32", "f16", "bf16")])
        self.assertEqual((entry["least"], entry["most"], entry["limit"]), (0.99, 0.99, {"at_least": 0.95}))
        entry = entries["bitmap, encode, against CUB"]
        self.assertLessEqual({f"baseline/cub_select/f16/iid_{share}/256MiB" for share in (0.2, 0.5, 0.6)}, set(entry["rows"]))
        self.assertAlmostEqual(entry["least"], 10)

    def test_a_share_is_missed(self):
        rows = all_rows()
        rows["relu_backward/sign_mask/f16/iid_0.5/256MiB"]["copy_share"] = 0.91
        entry = self.results(self.hold(rows), "ReLU with its mask, forward and backward")
        self.assertEqual((entry["result"], entry["least"], entry["most"]), ("missed", 0.91, 0.99))
        self.assertEqual(entry["missed_by"], ["relu_backward/sign_mask/f16/iid_0.5/256MiB"])

    def test_a_baseline_that_is_too_fast(self):
        # The faster one of the same windows and layout counts, whichever it is.
        for ways in ("", "_nondeterministic"):
            for windows in ("", "_3x3"):
                for channels in ("", "_channels_first"):
                    rows = all_rows()
                    own = f"max_pool_backward/window_index{windows}{channels}/f32/iid_0.5/256MiB"
                    baseline = f"baseline/cudnn_max_pool_backward{windows}{channels}{ways}/f32/iid_0.5/256MiB"
                    rows[baseline]["seconds"]["median"] = 1.5e-4
                    entry = self.results(self.hold(rows), "pooling backward, against cuDNN")
                    self.assertEqual((entry["result"], entry["least_copy_share"]), ("missed", 0.99))
                    self.assertEqual(entry["missed_by"], [own])
                    self.assertAlmostEqual(entry["least"], 1.5)
                    lines = gpu_targets.table(gpu_targets.hold(list(rows.values()), "NVIDIA H100 80GB HBM3"))
                    self.assertIn(f"missed: {own} (with 99.0 % of a copy's speed or more)", "\n".join(lines))

    def test_a_slower_baseline_changes_nothing(self):
        rows = all_rows()
        rows["baseline/cudnn_max_pool_backward/f32/iid_0.5/256MiB"]["seconds"]["median"] = 1
        entry = self.hold(rows)["pooling backward, against cuDNN"]
        self.assertEqual(entry["result"], "met")
        self.assertAlmostEqual(entry["least"], 10)
        self.assertAlmostEqual(entry["most"], 10)

    def test_every_baseline_has_to_be_measured(self):
        for way in ("", "_nondeterministic"):
            rows = all_rows()
            missing = f"baseline/cudnn_max_pool_backward_3x3{way}/f16/iid_0.5/256MiB"
            rows[missing] = {"name": missing, "result": "not run", "why": "library not found"}
            entry = self.results(self.hold(rows), "pooling backward, against cuDNN")
            self.assertEqual((entry["result"], entry["missing"]), ("not run", [missing]))
            self.assertIn("max_pool_backward/window_index_3x3/f16/iid_0.5/256MiB", entry["rows"])

    def test_baselines_are_needed_at_one_size(self):
        rows = all_rows()
        form = "/f32/iid_0.5/1GiB"
        own, target = "max_pool_backward/window_index" + form, "pooling backward, against cuDNN"
        rows[own] = row(own, share=0.97, size=1024 * MIB)
        for way in ("", "_nondeterministic"):
            entry = self.results(self.hold(rows), target)
            self.assertEqual(entry["result"], "met")
            self.assertNotIn(own, entry["rows"])
            baseline = f"baseline/cudnn_max_pool_backward{way}{form}"
            rows[baseline] = row(baseline, seconds=1e-3, size=1024 * MIB)
        self.assertIn(own, self.results(self.hold(rows), target)["rows"])

    def test_pooling_is_held_by_how_windows_lie(self):
        for name, way, form in (("pooling with its map, windows of stride 2", "forward", "window_index_3x3_channels_first"),
                                ("pooling with its map, windows of stride 1", "backward", "window_index_3x3_stride_1"),
                                ("pooling with its map, windows of stride 1", "forward",
                                 "window_index_3x3_stride_1_channels_first"),
                                ("pooling with its map, rows of any length", "backward", "window_index_14x14_channels_first"),
                                ("pooling with its map, rows of any length", "forward",
                                 "window_index_3x3_55x55_channels_first"),
                                ("pooling with its map, rows of any length", "backward",
                                 "window_index_3x3_stride_1_35x35_channels_first")):
            for kind in ("f32", "f16", "bf16"):
                rows = all_rows()
                missed = f"max_pool_{way}/{form}/{kind}/iid_0.5/256MiB"
                rows[missed]["copy_share"] = 0.84
                entry = self.results(self.hold(rows), name)
                self.assertEqual((entry["result"], entry["missed_by"]), ("missed", [missed]))
                self.assertEqual(entry["limit"], {"at_least": 0.85})

    def test_an_upper_limit(self):
        name = "sequence/resnet50_b32/f16/iid_0.5/256MiB"
        for share, result in ((1 / 1.14, "met"), (1 / 1.16, "missed")):
            rows = all_rows()
            rows[name]["copy_share"] = share
            entry = self.results(self.hold(rows), "all maps of a step of ResNet-50")
            self.assertEqual((entry["result"], entry["limit"]), (result, {"at_most": 1.15}))

    def test_a_size_of_its_own(self):
        form = "sequence/resnet50_b32/f32/iid_0.5"
        for size, why in (("1300MiB", "out of memory"), ("", "there is no such row")):
            rows = all_rows()
            del rows[f"{form}/256MiB"]
            name = f"{form}/{size}" if size else form
            if size:
                rows[name] = {"name": name, "result": "not run", "why": why}
            entry = self.results(self.hold(rows), "all maps of a step of ResNet-50")
            self.assertEqual((entry["result"], entry["why"]), ("not run", f"{name}: {why}"))

    def test_16_bits_have_their_own_limit(self):
        rows = all_rows()
        for kind in ("f32", "bf16"):
            rows[f"encode/bitmap/{kind}/iid_0.2/256MiB"]["copy_share"] = 0.75
        self.assertEqual(self.results(self.hold(rows), "bitmap of f32, encode")["result"], "missed")

    def test_a_missing_row(self):
        rows = all_rows()
        missing = "encode/sign_mask/bf16/iid_0.5/256MiB"
        del rows[missing]
        entry = self.results(self.hold(rows), "sign mask, encode")
        self.assertEqual((entry["result"], entry["missing"]), ("not run", [missing]))
        self.assertEqual(entry["why"], f"{missing}: there is no such row")
        self.assertEqual(entry["least"], 0.99)

    def test_rows_that_were_not_run(self):
        rows = all_rows()
        for kind in ("f32", "f16"):
            name = f"baseline/cusparse_dense_to_csr/{kind}/iid_0.5/256MiB"
            rows[name] = {"name": name, "result": "not run", "why": "library not found"}
        entry = self.results(self.hold(rows), "csr, encode, against cuSPARSE")
        self.assertEqual(entry["result"], "not run")
        self.assertEqual(entry["why"], "baseline/cusparse_dense_to_csr/f32/iid_0.5/256MiB: library not found, and 1 more")

    def test_an_interrupted_row(self):
        rows = all_rows()
        name = "encode/sign_mask/f32/iid_0.5/256MiB"
        rows[name] = {"name": name, "result": "interrupted"}
        self.assertEqual(self.results(self.hold(rows), "sign mask, encode")["why"], f"{name}: interrupted")

    def test_sizes(self):
        rows = all_rows()
        form = "encode/sign_mask/f32/iid_0.5/"
        rows["small"] = row(form + "32MiB", share=0.1, size=32 * MIB)
        rows["large"] = row(form + "1GiB", share=0.97, size=1024 * MIB)
        rows["out of time"] = {"name": "encode/sign_mask/f16/iid_0.5/1GiB", "result": "not run", "why": "time"}
        entry = self.hold(rows)["sign mask, encode"]
        self.assertEqual((entry["result"], entry["least"]), ("met", 0.97))
        self.assertIn(form + "1GiB", entry["rows"])
        self.assertNotIn(form + "32MiB", entry["rows"])

    def test_without_a_device_or_on_another(self):
        for device, why_not, expected in (("", "no device", "no device"),
                                          ("NVIDIA A100", "", "for H100 and H200, and this is NVIDIA A100")):
            entries = self.hold({}, device, why_not)
            self.assertEqual({(entry["result"], entry["why"]) for entry in entries.values()}, {("not run", expected)})

    def test_a_table_has_a_line_for_each(self):
        rows = all_rows()
        rows["encode/fp10/f32/iid_0.5/256MiB"]["copy_share"] = 0.5
        lines = gpu_targets.table(gpu_targets.hold(list(rows.values()), "NVIDIA H100 80GB HBM3"))
        self.assertEqual(len(lines), 1 + len(gpu_targets.TARGETS))
        self.assertRegex("\n".join(lines), r"fp10, encode and decode +>= 88.0 % +50.0 % +99.0 %  missed: encode/fp10/f32")
        self.assertRegex("\n".join(lines), r"all maps of a step of ResNet-50 +<= 1.15x +1.01x +1.01x  met")


unittest.main()
