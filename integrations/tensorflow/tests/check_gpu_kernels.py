#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library that was built with the CUDA kernels loads, also where there is no GPU; every op has a kernel for GPUs, and
the ops still run on the CPU. Expects that library's package on PYTHONPATH."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

import stash_tf

OPS = (
    "StashEncode",
    "StashDecode",
    "StashDims",
    "StashReluGrad",
    "StashRelu6Grad",
    "StashLeakyReluGrad",
    "StashMaxPool",
    "StashMaxPoolGrad",
    "StashDropout",
    "StashDropoutGrad",
    "StashSwapOut",
    "StashSwapIn",
    "StashBatch",
    "StashSum",
)


def main():
    ops = stash_tf.library.load().ops
    for op in OPS:
        devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}
        assert {"CPU", "GPU"} <= devices, f"{op}: expected kernels for CPU and GPU, got {sorted(devices)}"
    x = tf.constant(np.maximum(np.random.default_rng(0).standard_normal(5000), 0).astype("float32"))
    stored, dims = ops.stash_encode(x=x, encoding="bitmap")
    y = ops.stash_decode(stored=stored, dims=dims, encoding="bitmap", T=tf.float32)
    assert np.array_equal(x.numpy().view("u4"), y.numpy().view("u4"))
    print(f"kernels for CPU and GPU of {len(OPS)} ops; run on the CPU only: {len(tf.config.list_physical_devices('GPU'))} GPUs")


if __name__ == "__main__":
    main()
