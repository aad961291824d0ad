#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer.fit, unmodified: a small convolutional network on generated images.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/examples/lightning_fit.py --policy lossless

Needs lightning. The last line tells the losses, so that policies can be compared.
"""

import argparse
import contextlib
import warnings

import lightning
import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
            nn.SiLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        self.losses = []

    def training_step(self, batch, _):
        loss = functional.cross_entropy(self.network(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="lossless", help="a policy of stash_torch, or none")
    parser.add_argument("--budget", help='for the peak of a step, as "200 MiB"')
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightning")
    lightning.seed_everything(0, verbose=False)
    labels = torch.arange(16 * arguments.steps) % 10
    images = torch.randn(len(labels), 1, 28, 28) + functional.one_hot(labels, 28).float()[:, None, None, :] * 3
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=16)
    model = Classifier()
    trainer = lightning.Trainer(max_epochs=1, accelerator="auto", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    session = None if arguments.policy == "none" else stash_torch.compress(model, arguments.policy, arguments.budget)
    with session or contextlib.nullcontext():
        trainer.fit(model, loader)
    if session is not None:
        print(session.report())
    print("losses:", *(f"{loss:.6f}" for loss in model.losses))


if __name__ == "__main__":
    main()
