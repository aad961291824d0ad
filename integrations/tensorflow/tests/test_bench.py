# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks compute besides what they measure."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import executed_nodes  # noqa: E402
import seq2seq_batch  # noqa: E402


def line(batch):
    return 1000 + 90 * batch


def stairs(batch):
    """Allocations that grow in steps."""
    return 1000 + 90 * (batch // 7 * 7 + 3)


@pytest.mark.parametrize("peak_of", (line, stairs))
@pytest.mark.parametrize("first", (1, 16, 500))
@pytest.mark.parametrize("limit", (1089, 1090, 1181, 4000, 20000))
def test_the_largest_batch_is_the_last_within_the_limit(peak_of, first, limit):
    batch, peak, measured = seq2seq_batch.largest_batch(peak_of, limit, first)
    expected = max((each for each in range(1, 1000) if peak_of(each) <= limit), default=0)
    assert batch == expected
    assert peak == (peak_of(batch) if batch else 0)
    assert batch + 1 in measured and measured[batch + 1] > limit


@pytest.mark.parametrize("multiple", (2, 16))
@pytest.mark.parametrize("limit", (1089, 4000, 20000))
def test_the_largest_multiple_is_the_last_within_the_limit(multiple, limit):
    batch, peak, measured = seq2seq_batch.largest_batch(line, limit, 40, multiple)
    assert batch == max((each for each in range(multiple, 1000, multiple) if line(each) <= limit), default=0)
    assert peak == (line(batch) if batch else 0)
    assert all(each % multiple == 0 for each in measured)


def test_few_batches_are_measured_where_the_peak_is_a_line():
    _, _, measured = seq2seq_batch.largest_batch(line, 20000, 16)
    assert len(measured) <= 5


def test_wrong_numbers_are_refused(capsys):
    with pytest.raises(SystemExit):
        seq2seq_batch.parse_arguments(["--peak", "0"])
    assert "--peak: expected 1 or more, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_loops_run_fewer_nodes_where_lists_stay_empty():
    """Constants are made once, and variables of lists that nothing reads leave the loop."""
    plain, kept = (executed_nodes.executed("lstm_stack", policy, steps=2) for policy in ("none", "lossless"))
    assert 0 < sum(kept.values()) < sum(plain.values())
    assert kept["Merge"] < plain["Merge"]
