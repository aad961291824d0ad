# SPDX-License-Identifier: Apache-2.0
"""How the settings reach TensorFlow's graph optimizers.

The config hook. Each call of a tf.function from Python hands TensorFlow a ConfigProto, which
Context.call_function takes from `FunctionCallOptions.as_attrs`. That method is replaced by one that adds our
optimizer to the ConfigProto on its way. So every function in every thread is reached, also those that were
called before: TensorFlow keys its instances by these attributes and makes another one, without retracing. What
is built inside of a trace gets the plain ConfigProto, so no saved model and no PartitionedCall ever holds our
settings; nested functions are inlined into the outermost one before graph optimizers run, and only that one's
ConfigProto counts.

The plugin hook is a registration in C++: no private Python, but functions that ran before are not affected, and
it cannot be closed; settings with the policy "none" make it idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from .errors import StashError
from .library import Library

OPTIMIZER = "stash"
Hook = Callable[[bytes], bytes]

_hook: Hook | None = None
_original: Callable[[Any], dict[str, Any]] | None = None


def open_config(hook: Hook) -> None:
    """From now on each call of a function has hook(config) for its serialized ConfigProto."""
    global _hook, _original
    options = _call_options()
    _hook = hook
    if options.as_attrs is not _as_attrs:
        _original = options.as_attrs
        options.as_attrs = _as_attrs


def close_config() -> None:
    """Functions get the ConfigProto that they had before open_config()."""
    global _hook
    _hook = None
    options = _call_options()
    if options.as_attrs is _as_attrs:
        options.as_attrs = _original


def merged(config: bytes, settings: str) -> bytes:
    """The ConfigProto with our optimizer added; all that the user set stays."""
    proto = config_pb2.ConfigProto.FromString(config)
    rewriter = proto.graph_options.rewrite_options
    others = [optimizer for optimizer in rewriter.custom_optimizers if optimizer.name != OPTIMIZER]
    del rewriter.custom_optimizers[:]
    rewriter.custom_optimizers.extend(others)
    ours = rewriter.custom_optimizers.add(name=OPTIMIZER)
    ours.parameter_map["settings"].s = settings.encode()
    if rewriter.meta_optimizer_iterations == rewriter_config_pb2.RewriterConfig.ONE:
        ours.parameter_map["looks"].i = 1
    return proto.SerializeToString(deterministic=True)


def open_plugin(library: Library, settings: str) -> None:
    """Registers the optimizer for the device types of this process, with these settings."""
    library.configure(settings)
    kinds = {device.device_type for device in tf.config.list_physical_devices()}
    for kind in sorted(kinds & {"CPU", "GPU"}):
        library.register_plugin(kind)


def _as_attrs(options: Any) -> dict[str, Any]:
    assert _original is not None
    attributes = _original(options)
    hook = _hook
    if hook is not None and tf.executing_eagerly():
        config = attributes["config_proto"]
        attributes["config_proto"] = hook(config.encode() if isinstance(config, str) else config)
    return attributes


def _call_options() -> Any:
    try:
        from tensorflow.python.eager.context import FunctionCallOptions
    except ImportError:
        FunctionCallOptions = None
    if not hasattr(FunctionCallOptions, "as_attrs"):
        raise StashError(
            f'TensorFlow {tf.__version__} has no FunctionCallOptions.as_attrs, which the hook "config" needs; '
            'use enable(hook="plugin")'
        )
    return FunctionCallOptions
