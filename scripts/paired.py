# SPDX-License-Identifier: Apache-2.0
"""Differences of pairs that were trained from the same seed: their mean, its interval, and what that says."""

import math
import statistics

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
              2.120, 2.110, 2.101, 2.093, 2.086)
MOST_PAIRS = len(STUDENT_95) + 1


def summary(differences, margin):
    """For a record. "not_worse": the lower end of the 95 % interval of the mean lies above minus the margin (points)."""
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    half_width = STUDENT_95[len(differences) - 2] * deviation / math.sqrt(len(differences))
    lower, upper = mean - half_width, mean + half_width
    not_worse = lower > -margin
    return {"mean_difference": mean, "standard_deviation": deviation, "interval_95": [lower, upper], "not_worse": not_worse,
            "verdict": f"{'not' if not_worse else 'not shown to be not'} worse by more than {margin} points"}


def text(found):
    lower, upper = found["interval_95"]
    mean = found["mean_difference"]
    return (f"difference: mean {mean:+.3f}, standard deviation {found['standard_deviation']:.3f}, 95 % interval {lower:+.3f} to "
            f"{upper:+.3f}\nverdict: {found['verdict']} (mean {mean:+.3f}, lower end {lower:+.3f})")
