# SPDX-License-Identifier: Apache-2.0
"""Control edges that make a step hold fewer tensors at a time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def encode_early(stored: Any, dense: Any) -> None:
    """Readers of `dense` wait until `stored` is there, in the graph that is being traced.

    Without it TensorFlow may run the encoder at any time, even in the backward pass, and the dense tensor has
    to live until then. To be called while the backward pass is traced: a forward pass without one stays as it
    is, and the encoder is pruned from it.
    """
    if tf.executing_eagerly() or stored.op.graph is not tf.compat.v1.get_default_graph():
        return
    encoder = stored.op
    for reader in list(dense.consumers()):
        if reader is not encoder and encoder not in reader.control_inputs:
            reader._add_control_input(encoder)


def decode_late(gradient: Any) -> Any:
    """A context in which decoders wait for `gradient`: an encoded tensor alone would be decoded at once."""
    return tf.control_dependencies([gradient])
