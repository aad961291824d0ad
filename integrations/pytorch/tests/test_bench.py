# SPDX-License-Identifier: Apache-2.0
"""Programs that write records."""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).resolve().parents[1] / "bench"


def run(program, *arguments, **environment):
    done = subprocess.run([sys.executable, "-B", BENCH / program, *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment})
    return done.returncode, done.stdout, done.stderr


def write_idx(path, tensor):
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">HBB{tensor.dim()}I", 0, 8, tensor.dim(), *tensor.shape) + bytes(tensor.reshape(-1).tolist()))


@pytest.fixture
def images(tmp_path):
    """Files as those of Fashion-MNIST, of a few images."""
    torch.manual_seed(0)
    for part, count in (("train", 200), ("t10k", 100)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", torch.randint(0, 10, (count,), dtype=torch.uint8))
    return tmp_path


def test_accuracy_in_pairs(images):
    record = images / "record.json"
    status, out, error = run("accuracy.py", "--seeds", 2, "--steps", 6, "--margin", 100, "--json", record,
                             STASH_DATA=str(images))
    assert status == 0, error
    found = json.loads(record.read_text())
    assert [row["seed"] for row in found["rows"]] == [1, 2] and found["policy"] == "fp8" and found["steps"] == 6
    for row in found["rows"]:
        assert row["difference"] == row["fp8"] - row["plain"] and row["saved_bytes_ratio"] > 3
        assert row["final_loss_fp8"] != row["final_loss_plain"]  # it did round
    assert found["interval_95"][0] <= found["mean_difference"] <= found["interval_95"][1]
    assert found["not_worse"] and "not worse by more than 100.0 points" in out


@pytest.mark.parametrize("arguments, data, text", [
    ((), "", "STASH_DATA: expected the folder of the four Fashion-MNIST files"),
    (("--seeds", 1), "x", "--seeds: expected 2 to"),
])
def test_wrong_arguments(arguments, data, text):
    status, _, error = run("accuracy.py", *arguments, STASH_DATA=data)
    assert status == 2 and text in error


HAS_CUDA = torch.version.cuda is not None and hasattr(torch.autograd.graph, "node_creation_hook")


@pytest.mark.skipif(not HAS_CUDA, reason="torch without CUDA's kernels, or before 2.14")
def test_census(tmp_path):
    pytest.importorskip("torchvision")
    record = tmp_path / "record.json"
    status, _, error = run("census.py", "resnet18", "--batch", 2, "--json", record)
    assert status == 0, error
    rows = {(row["policy"], row["half_of_relu_zero"]): row for row in json.loads(record.read_text())["rows"]}
    lossless, half = rows["lossless", False], rows["lossless", True]
    assert abs(lossless["saved_bytes"] / 2 - 20.6 * 2**20) < 0.01 * 20.6 * 2**20  # a known number
    assert lossless["computed_again"] >= 13  # norms and ReLUs after convolutions of cuDNN
    assert half["kept_bytes"] < lossless["kept_bytes"] < 0.55 * lossless["saved_bytes"]
    assert rows["fp8", False]["kept_bytes"] < 0.6 * rows["fp16", False]["kept_bytes"] < 0.4 * lossless["kept_bytes"]


@pytest.mark.slow
def test_rivals(tmp_path):
    pytest.importorskip("torchvision")
    record = tmp_path / "record.json"
    status, _, error = run("rivals.py", "resnet18", "--rivals", "checkpoint", "--batch", 2, "--repeats", 1, "--json", record)
    assert status == 0, error
    rows = {row["way"]: row for row in json.loads(record.read_text())["rows"]}
    assert rows["plain"]["times_less"] == 1
    assert {"Stash lossless", "Stash lossless all", "Stash fp16", "Stash fp8", "checkpoint"} <= rows.keys()
    assert any(way.endswith("at the peak of checkpoint") for way in rows)
    assert rows["Stash fp8"]["peak_bytes"] < rows["plain"]["peak_bytes"]
