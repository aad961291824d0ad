# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest
import torch

from stash_torch import observe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))


def pytest_addoption(parser):
    parser.addoption("--functions", action="store_true", help="see nodes as under torch 2.13 and older")


def pytest_configure(config):
    if config.getoption("--functions"):
        observe.HOOK = None
    config.addinivalue_line("markers", "slow: left out by scripts/test, run with --all")


@pytest.fixture(autouse=True)
def one_thread_and_seed():
    """Sums in one order: a plain step must repeat its own bits."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
