#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CUDA's autograd saves of known networks, and what stash_torch would keep of it, without a GPU: by fake tensors, which have
shapes and no values.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/bench/census.py [--json FILE] [NETWORK...]

Forms and recomputations are chosen by the tables of stash_torch. What needs values is not tried: a recomputation counts if its
shapes and strides are right, so a GPU may refuse one that is counted here. Sizes of sparse forms are not known, so those
tensors stay raw; "half" takes the share of zeros in results of a ReLU to be one half. Needs torch 2.14 or newer, torchvision
and, for language models, transformers. Bytes are those that autograd's slots hold, without parameters and inputs.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import stash_torch
from stash_torch import checks, choose, forms, library
from stash_torch.choose import Chooser
from stash_torch.compose import Composer
from stash_torch.levels import FORMATS, formats_of, raw
from stash_torch.plan import Choice, Plan
from stash_torch.step import Recorder, held_tensor
from stash_torch.trials import Trials

sys.path.insert(0, str(Path(__file__).resolve().parent))
import record  # noqa: E402

POLICIES = ("lossless", "fp16", "fp8")
IMAGES = ("resnet18", "resnet50", "vgg16", "vgg16_bn", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0",
          "convnext_tiny", "vit_b_16", "swin_t", "googlenet")
TOKENS = {"bert": 512, "gpt2": 1024, "llama": 2048}
aten = torch.ops.aten


# ---- networks: (module, inputs, loss), on CUDA


def images(name, batch):
    import torchvision.models

    network = torchvision.models.get_model(name, weights=None, **({"init_weights": False} if name == "googlenet" else {}))
    x, target = torch.empty(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)

    def loss():
        y = network(x)
        outputs = [y] if isinstance(y, torch.Tensor) else [each for each in y if each is not None]
        return sum(functional.cross_entropy(each, target) for each in outputs)

    return network, [x, target], loss


def language(name, batch):
    import transformers

    configurations = {
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig()),
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(
            hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
            vocab_size=128256))}
    make, configuration = configurations[name]
    configuration._attn_implementation = "sdpa"
    network = make(configuration)
    tokens = torch.zeros(batch, TOKENS[name], dtype=torch.long)
    return network, [tokens], lambda: network(input_ids=tokens, labels=tokens, use_cache=False).loss if name != "bert" else \
        network(input_ids=tokens, labels=tokens).loss


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The memory-efficient kernel, which torch takes for float32 on a GPU."""
    if enable_gqa:
        key, value = (each.repeat_interleave(query.size(1) // each.size(1), 1) for each in (key, value))
    mask = attn_mask.expand(*query.shape[:3], key.size(2)) if attn_mask is not None else None
    return aten._scaled_dot_product_efficient_attention(query, key, value, mask, True, dropout_p, is_causal, scale=scale)[0]


# ---- plans of fake steps


class FakeRecorder(Recorder):
    TENSORS = (*Recorder.TENSORS, FakeTensor)


class FakeComposer(Composer):
    def held(self, each):
        """A number that was a factor has no fake tensor that can be detached."""
        tensor = held_tensor(self.nodes[each.node].handle, each.edge, each.slot)
        return tensor if tensor.dim() else torch.empty((), dtype=tensor.dtype, device="cpu")


class FakeChooser(Chooser):
    """By the sizes of forms alone, and without what values say."""

    def __init__(self, *arguments, half):
        super().__init__(*arguments)
        self.half = half
        self.composer = FakeComposer(self.nodes, self.grouping, self.composer.recompute)

    def plan(self):
        self.choose_recipes()
        for group in self.groups.values():
            if group.recipe is None:
                self.choose_form(group)
        return Plan(self.nodes, self.groups, self.policy, self.disabled, self.grouping.saved_bytes(), self.protected,
                    self.formats)

    def choice_of(self, group, those):
        for form in those:
            size = self.size_of(form, group)
            if size is not None and size < group.bytes:
                return Choice(form, kept_bytes=size)
        return raw(group, "")

    def size_of(self, form, group):
        elements = group.bytes // group.dtype.itemsize
        if isinstance(form, forms.Sparse):
            of_relu = any(self.nodes[slot.node].name == "ReluBackward0" for slot in group.slots)
            return elements // 8 + group.bytes // 2 if self.half and of_relu else None
        dtype = {torch.bool: torch.uint8, torch.int64: torch.float32}.get(group.dtype, group.dtype)
        return library.bound_bytes(form.how, dtype, elements)

    def run(self, node, inputs, settings):
        try:
            return super().run(node, inputs, settings)
        except ValueError as error:  # a RuntimeError where there are values
            raise RuntimeError(str(error)) from error


def plan_of(build, name, batch, policy, half=False):
    disabled = checks.disabled()
    with FakeTensorMode(allow_non_fake_inputs=True), without_values(), torch.device("cuda"):
        network, inputs, loss_of = build(name, batch)
        network.train()
        recorder = FakeRecorder(Trials(lambda entry: None))
        with torch.autograd.graph.node_creation_hook(lambda node: add(recorder, node)):
            loss = loss_of()
        recorder.attach(loss.grad_fn)
        protected = {each.untyped_storage()._cdata for each in [*network.parameters(), *network.buffers(), *inputs]}
        with torch.no_grad():
            chooser = FakeChooser(recorder, protected, policy, formats_of(policy, FORMATS), disabled, half=half)
            return chooser.plan()


def add(recorder, node):
    if type(node).__name__ != "AccumulateGrad":
        recorder.add(node)


@contextlib.contextmanager
def without_values():
    """What depends on a device, on values or on addresses is decided here."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
                (functional, "scaled_dot_product_attention", attention),
                (torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor),
                (FakeTensor, "data_ptr", lambda self: 0), (forms, "same_bits", lambda computed, saved: True),
                (choose, "_now", lambda device: 0.0)):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def rows_of(name, batch):
    build, rows = language if name in TOKENS else images, []
    for policy, half in [*((each, False) for each in POLICIES), ("lossless", True)]:
        plan = plan_of(build, name, batch, policy, half)
        computed = sum(group.recipe is not None for group in plan.groups.values())
        rows.append({"network": name, "batch": batch, "policy": policy, "half_of_relu_zero": half,
                     "saved_bytes": plan.before, "kept_bytes": plan.after, "times_less": round(plan.before / plan.after, 3),
                     "computed_again": computed, "tensors": len(plan.groups)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[*IMAGES, *TOKENS])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    rows = [row for name in arguments.networks for row in rows_of(name, arguments.batch)]
    if arguments.json:
        record.write(arguments.json, rows, stash_torch=stash_torch.__version__)


if __name__ == "__main__":
    main()
