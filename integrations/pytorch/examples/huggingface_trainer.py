#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, unmodified: a small GPT-2 learns to continue counting.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/examples/huggingface_trainer.py --policy lossless

Needs transformers and accelerate. The last line tells the losses, so that policies can be compared.
"""

import argparse
import contextlib
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import stash_torch


class Counting(torch.utils.data.Dataset):
    def __init__(self, count, length, words):
        self.starts, self.length, self.words = torch.arange(count), length, words

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        tokens = (self.starts[index] + torch.arange(self.length)) % self.words
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="lossless", help="a policy of stash_torch, or none")
    parser.add_argument("--budget", help='for the peak of a step, as "200 MiB"')
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    words = 128
    model = GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=64, n_embd=64, n_layer=3, n_head=4))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model, train_dataset=Counting(8 * arguments.steps, 64, words),
            args=TrainingArguments(folder, per_device_train_batch_size=8, max_steps=arguments.steps, logging_steps=1,
                                   learning_rate=1e-3, report_to=[], save_strategy="no", disable_tqdm=True, seed=0))
        session = None if arguments.policy == "none" else stash_torch.compress(model, arguments.policy, arguments.budget)
        with session or contextlib.nullcontext():
            trainer.train()
    if session is not None:
        print(session.report())
    print("losses:", *(each["loss"] for each in trainer.state.log_history if "loss" in each))


if __name__ == "__main__":
    main()
