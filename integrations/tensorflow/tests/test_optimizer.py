"""The graph optimizer on steps of many shapes (steps.py): lossless training is plain training bit by bit, and where
something can be stored in another form, it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LONG = os.environ.get("STASH_TF_LONG") == "1"
HERE = Path(__file__).resolve().parent
SECONDS = 3600
ONEDNN_OFF = {"TF_ENABLE_ONEDNN_OPTS": "0"}

# One process each: TensorFlow takes long to start.
QUICK = (
    "middle_grouped", "middle_maximum", "middle_max_pool_same", "middle_cond_on_data", "middle_recomputed_conv",
    "names_lie", "applied_every_second_step", "adversarial", "gradient_penalty_relu", "saliency_and_training",
    "functions_in_functions", "half_adam_scaled", "batch_unknown", "empty_batch", "tiny", "lstm_loop",
)


def records(names=(), *options, environment=()):
    """What steps.py prints, by step."""
    command = [sys.executable, str(HERE / "steps.py"), *names, *options]
    finished = subprocess.run(command, env={**os.environ, **ONEDNN_OFF, **dict(environment)}, capture_output=True,
                              text=True, timeout=SECONDS, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    found = (json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{"))
    return {record["step"]: record for record in found}


@pytest.fixture(scope="module")
def of_step():
    return records(() if LONG else QUICK)


def names():
    listed = subprocess.run([sys.executable, str(HERE / "steps.py"), "--list"], capture_output=True, text=True,
                            timeout=SECONDS, check=True)
    return listed.stdout.split()


@pytest.mark.parametrize("name", names() if LONG else QUICK)
def test_lossless_is_identical(of_step, name):
    record = of_step[name]
    assert "broken" not in record and "failed" not in record, record
    assert record["trained"] or record["forward"], "the weights did not change: nothing is compared"
    assert record["same_losses"] and record["same_weights"], record
    assert not record["stderr"], record["stderr"]
    if record["nothing_to_do"]:
        assert not record["rewritten"] and not record["executions"] and record["reasons"], record
    else:
        assert record["rewritten"] and record["executions"] > 0, record
