# SPDX-License-Identifier: Apache-2.0
"""The images of Fashion-MNIST, from its four files."""

import gzip
import struct

import torch


def read_idx(path):
    with gzip.open(path, "rb") as file:
        _, rank = struct.unpack(">HxB", file.read(4))
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


def images(folder, part="train"):
    """(images in -1 to 1, labels) of "train" or "t10k"."""
    return (read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:, None].float() / 127.5 - 1,
            read_idx(folder / f"{part}-labels-idx1-ubyte.gz").long())
