# SPDX-License-Identifier: Apache-2.0
"""What reports say, of steps that ran and of those that did not."""

import json

import pytest

from session_records import counter, graph, tensor
from stash_tf import reporting


def test_totals_are_those_of_the_largest_step():
    """fit() and train_on_batch() of one model are two functions, of which one runs at a time."""
    small = graph(id="g", predicted_plain_bytes=1024, tensors=[tensor("b:0", dense=200, stored=50)])
    large = graph(predicted_plain_bytes=4096, tensors=[tensor("a:0", dense=400, stored=100)])
    kept = [counter("b:0", dense=400, stored=100), counter(), counter("by_hand", stored=200)]
    for graphs in ([small, large], [large, small]):
        report = reporting.build(graphs, kept)
        assert sorted(row.tensor for row in report.rows) == ["a:0", "b:0", "by_hand"]
        assert (report.total_dense_bytes, report.total_stored_bytes) == (3200 + 3200, 800 + 100)


def test_report_shows_what_ran_and_what_did_not():
    graphs = [
        graph(reason="first of two", rewritten=False),
        graph(
            batch=8,
            predicted_plain_bytes=4096,
            predicted_peak_bytes=1024,
            tensors=[tensor(), tensor("b:0"), tensor("c:0", "raw"), tensor("d:0", "not needed", stored=0)],
        ),
        graph(id="inference", rewritten=False, reason="no backward pass"),
    ]
    counters = [counter(), counter("a:0", "StashDecode"), counter("e", "StashEncode", 4, dense=400, stored=40)]
    report = reporting.build(graphs, counters, "fp8")
    rows = {row.tensor: row for row in report.rows}
    assert {name: row.state for name, row in rows.items()} == {
        "a:0": "ran",
        "b:0": "planned, not run",
        "c:0": "stays as it is",
        "d:0": "not needed any more",
        "e": "ran",
    }
    assert (rows["a:0"].dense_bytes, rows["a:0"].stored_bytes, rows["a:0"].executions) == (3200, 800, 2)
    assert (report.total_dense_bytes, report.total_stored_bytes) == (3300, 810)
    assert report.rewritten
    assert (report.predicted_plain_bytes, report.predicted_peak_bytes, report.batch) == (4096, 1024, 8)
    text = str(report)
    assert "planned, not run" in text and "1 other tensors stay as they are" in text
    assert "3.2 KiB -> 810 B (4.1 times less)" in text
    assert "predicted: 4.0 KiB -> 1.0 KiB" in text
    json.dumps(report.as_dict())


def test_the_newest_plan_counts():
    """With the batch that was measured, the step is left alone; a graph of the same plan is not rewritten twice."""
    unknown = graph(predicted_plain_bytes=64, predicted_peak_bytes=32)
    known = graph(batch=8, predicted_plain_bytes=4096, predicted_peak_bytes=2048)
    left = graph(batch=8, predicted_plain_bytes=4096, predicted_peak_bytes=4096, rewritten=False, reason="not lower")
    for graphs, batch, peak in (([unknown, left], 8, 4096), ([known, left], 8, 2048), ([left, known], 8, 2048),
                                ([left, unknown], 0, 32)):
        report = reporting.build(graphs, [counter()])
        assert (report.batch, report.predicted_peak_bytes) == (batch, peak)


def test_report_adds_what_several_encoders_store_of_a_tensor():
    both = [counter(dense=800, stored=80), counter(op="StashMaxPool", dense=800, stored=20)]
    row = reporting.build([graph(tensors=[tensor()])], both).rows[0]
    assert (row.dense_bytes, row.stored_bytes, row.executions) == (400, 50, 2)


def test_report_of_nothing():
    report = reporting.build([], [])
    assert not report.rewritten and report.rows == () and report.total_dense_bytes == 0
    assert str(report) == "Stash"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.00 GiB")],
)
def test_sizes(count, text):
    assert reporting.size(count) == text


def test_reports_explain_why_nothing_happened(python):
    code = """
    found = {}
    def why(name):
        found[name] = [str(line) for line in stash_tf.report().explanations]
    why("off")
    stash_tf.enable("none")
    x, step = images(), training()
    step(x)
    why("none")
    stash_tf.enable("fp8")
    why("nothing ran")
    tf.function(lambda x: x + 1)(x)
    why("no training")
    stash_tf.enable("fp8")
    compiled = training(jit=True)
    compiled(x)
    why("xla")
    del compiled
    tf.config.run_functions_eagerly(True)
    stash_tf.enable("fp8")
    training()(x)
    why("eager")
    tf.config.run_functions_eagerly(False)
    stash_tf.enable("fp8", min_bytes="1 GiB")
    training()(x)
    why("too small")
    stash_tf.enable("fp8")
    training()(x)
    why("fine")
    out(found)
    """
    found = python(code)
    assert found["fine"] == [] == found.pop("fine")
    assert all(len(lines) == 1 for name, lines in found.items() if name not in ("xla", "too small"))
    first = {name: lines[0] for name, lines in found.items()}
    assert "Stash is off" in first["off"]
    assert 'policy is "none"' in first["none"]
    assert "No tf.function has run" in first["nothing ran"]
    assert "no backward pass" in first["no training"]
    assert "XLA compiles step" in first["xla"]
    assert "run_functions_eagerly" in first["eager"]
    assert any("large" in line for line in found["too small"])


def test_a_budget_that_is_kept_anyway(python):
    code = """
    stash_tf.enable("fp8", budget="1 GiB", strict=True)
    x, step = images(), training()
    for _ in range(8):
        step(x)
    stash_tf.check()
    report = stash_tf.report()
    out([report.rewritten, report.explanations])
    """
    rewritten, explanations = python(code)
    assert not rewritten
    assert explanations == ["The step keeps its budget: no tensor had to be stored in another form."]


def test_a_budget_that_cannot_be_kept(python):
    code = """
    stash_tf.enable("fp8", budget="10 kB")
    x, step = images(), training()
    try:
        step(x)
    except tf.errors.ResourceExhaustedError as error:
        out([error.message, stash_tf.report().rewritten, stash_tf.report().explanations])
    """
    message, rewritten, explanations = python(code)
    assert "Stash: the budget of 10000 bytes is too small" in message
    assert not rewritten
    assert explanations[0].startswith("A training step was refused: the budget of 10000 bytes is too small")


def test_switched_off_graph_optimizers_are_named(python):
    code = """
    stash_tf.enable("fp8")
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    training()(images())
    out(list(stash_tf.report().explanations))
    """
    assert any("disable_meta_optimizer" in line for line in python(code))


def test_strict(python):
    code = """
    x, found = images(), []
    stash_tf.enable("fp8", strict=True)
    step = training()
    for _ in range(20):
        step(x)
    found.append(refused(stash_tf.check))
    stash_tf.enable("fp8", strict=True, min_bytes="1 GiB")
    calls = 0
    try:
        for calls in range(1, 20):
            step(x)
    except stash_tf.StashError as error:
        found.append(str(error))
    found.append(calls)
    found.append(refused(stash_tf.check))
    def nothing():
        with stash_tf.enabled("fp8", strict=True):
            pass
    found.append(refused(nothing))
    out(found)
    """
    fine, raised, calls, checked, block = python(code)
    assert fine is None
    assert "strict=True" in raised and calls == 5
    assert checked and "No tf.function has run" in block


def test_report_of_a_step(python):
    code = """
    stash_tf.enable("fp8")
    x, step = images(), training()
    for _ in range(3):
        step(x)
    report = stash_tf.report()
    json.dumps(report.as_dict())
    out([report.rewritten, report.total_dense_bytes, report.total_stored_bytes,
         sorted({row.executions for row in report.rows if row.state == "ran"}), str(report),
         report.predicted_peak_bytes < report.predicted_plain_bytes])
    """
    rewritten, dense, stored, runs, text, less = python(code)
    assert rewritten and less
    assert 0 < stored * 2 < dense
    assert runs == [3]
    assert "Relu" in text and "times less" in text
