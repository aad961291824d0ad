# SPDX-License-Identifier: Apache-2.0
"""scripts/kernel_counts with a program that is built already. kernel_counts_test.py SCRIPT GPU_BENCH_PTX"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*words):
    return subprocess.run([sys.executable, "-B", *words], capture_output=True, text=True)


def main():
    script, program = sys.argv[1:]
    where = re.search(r'^PROGRAM = "(.+)"', Path(script).read_text(), re.MULTILINE)
    assert program.endswith("/" + where[1]), (program, where[1])  # where the script looks for what it has built
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        done = run(script, "--program", program, "--filter", "^(en|de)code/sign_mask/|^encode/bitmap/|relu_forward/sign_mask",
                   "--size", "64KiB", "--json", path)
        assert done.returncode == 0, done
        record = json.loads(path.read_text())
    rows = {row["name"]: row for row in record["rows"]}
    # One name ends another one here.
    layers = {"encode/sign_mask", "encode/bitmap", "relu_forward/sign_mask", "leaky_relu_forward/sign_mask"}
    assert set(rows) == {f"{layer}/{kind}/iid_0.5/64KiB" for layer in layers for kind in ("f32", "f16")}, rows.keys()
    for name, row in rows.items():
        assert name in done.stdout, name
        assert 1 < row["instructions"] < row["budget"], row
        assert 0.5 < row["lanes"] <= 1, row
        # Each byte is touched once, but for tables and the like.
        assert 0.97 < row["read"] + row["written"] < 1.15, row
    masks, bitmaps = rows["encode/sign_mask/f32/iid_0.5/64KiB"], rows["encode/bitmap/f32/iid_0.5/64KiB"]
    assert masks["kernels"] == ["each_group"] and masks["passes"] == 0, masks
    assert bitmaps["kernels"] == ["encode_tiles"] and bitmaps["passes"] > 1, bitmaps
    assert abs(masks["read"] - 32 / 33) < 0.01, masks

    none = run(script, "--program", program, "--filter", "^no_such_row$")
    assert none.returncode == 1 and "no row of that name" in none.stderr, none


main()
