# SPDX-License-Identifier: Apache-2.0
"""Tensors that go to the host and come back, with CPUs counting as a device (run_model.count_as_a_device)."""

import os

import pytest

from conftest import slow_but
from run_pool import HERE, Pool, at_once

LONG = os.environ.get("STASH_TF_LONG") == "1"

OFF = {"TF_ENABLE_ONEDNN_OPTS": "0"}
SMALLEST = 1  # bytes of a device on which the smallest peak is looked for


def case(model, loop="fit", mixed=None, **options):
    return {"model": model, "loop": loop, "mixed": mixed, "steps": 6, **options}


QUICK = [
    case("small_flat", "while", batch=2),
    case("unet2d", "accumulate"),
    case("resnet_bn", mixed="mixed_float16", batch=32),
    case("unet2d"),
    case("transformer"),
]
ALL = QUICK + [
    case("small_flat", "custom", batch=2),
    case("resnet_bn"),
    case("resnet_bn", "spe3"),
    case("resnet_bn", mixed="mixed_bfloat16", batch=32),
    case("transformer", "while"),
    case("lstm_unrolled", batch=256),
]
CASES = ALL if LONG else QUICK
CORE = [case("transformer")]


def name(one):
    return "-".join(str(value) for value in one.values() if value)


@pytest.fixture(scope="module")
def pool(request):
    pool = Pool()
    for one in at_once(request, "one"):
        both(pool, one)
    yield pool
    pool.close()


def both(pool, one):
    return [pool.start(onednn=False, **options, **one)
            for options in ({}, {"policy": "lossless", "device_bytes": SMALLEST})]


@pytest.mark.parametrize("one", slow_but(CASES, CORE), ids=name)
def test_lossless_training_with_moves_is_identical(pool, one):
    plain, moved = (future.result() for future in both(pool, one))
    facts = moved["stash"]
    assert plain["trained"]
    for key in ("losses", "weights", "optimizers"):
        assert moved[key] == plain[key]
    assert facts["executions"]["StashSwapOut"] == facts["executions"]["StashSwapIn"] > 0
    assert facts["total_host_bytes"] > 0 and facts["predicted_host_bytes"] > 0
    assert facts["predicted_peak_bytes"] < facts["predicted_plain_bytes"]


DEVICE = f"""
sys.path.insert(0, {str(HERE)!r})
import re
from run_model import count_as_a_device

def deep(activation=tf.nn.softplus, channels=8):
    "With softplus dense values only: nothing but moving them helps."
    shape = (3, 3, channels, channels)
    weights = [tf.Variable((np.random.default_rng(k).standard_normal(shape) * 0.1).astype("float32"))
               for k in range(6)]
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = activation(tf.nn.conv2d(y, w, 1, "SAME"))
            loss = tf.reduce_mean(y * y)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(g)
        return loss
    step.weights = weights
    return step

def attempt(step, x, **options):
    # What runs again needs no moves.
    with stash_tf.enabled("lossless", recompute=False, **options):
        try:
            loss, said = step(x).numpy().item(), ""
        except tf.errors.ResourceExhaustedError as error:
            loss, said = None, error.message
        report = stash_tf.report()
    return loss, said, report
"""


def test_budgets_that_only_moves_keep(python):
    code = """
    count_as_a_device(1 << 40)
    x = images(16)
    reference = deep()
    plain = [reference(x).numpy().item() for _ in range(2)]
    _, _, free = attempt(deep(), x, swap=True)
    budget = free.predicted_plain_bytes * 6 // 10
    _, refused, _ = attempt(deep(), x, budget=budget)
    step = deep()
    first, said, report = attempt(step, x, budget=budget, swap=True)
    second, _, again = attempt(step, x, budget=budget, swap=True)
    impossible = deep()
    before = [w.numpy() for w in impossible.weights]
    _, too_small, _ = attempt(impossible, x, budget=1, swap=True)
    least = int(re.search(r"(\\d+) would do", too_small)[1])
    _, enough, kept = attempt(impossible, x, budget=least, swap=True)
    out({"plain": plain, "losses": [first, second], "budget": budget, "said": said, "refused": refused,
         "free": [free.predicted_peak_bytes, free.predicted_plain_bytes, list(free.explanations)],
         "report": report.as_dict(), "text": str(report), "graphs": len(again.graphs),
         "least": least, "enough": enough, "kept": kept.predicted_peak_bytes})
    """
    found = python(DEVICE, code, **OFF)
    # With neither budget nor need nothing moves.
    assert found["free"][0] == found["free"][1]
    assert "no budget asks for it" in found["free"][2][-1]
    assert "would do under policy lossless" in found["refused"]
    assert found["losses"] == found["plain"] and found["said"] == ""
    report = found["report"]
    assert report["predicted_peak_bytes"] <= found["budget"]
    moved = [row for row in report["rows"] if row["host_bytes"]]
    assert moved and all(row["choice"] == "swap" and row["state"] == "ran" for row in moved)
    assert all(row["host_bytes"] == row["stored_bytes"] == row["dense_bytes"] for row in moved)
    assert report["total_host_bytes"] == sum(row["host_bytes"] for row in moved)
    assert 0 < report["predicted_host_bytes"] <= report["total_host_bytes"]
    assert f"Swap: {len(moved)} tensors go to the host and come back." in report["explanations"]
    for text in ("on host", "Of that to the host and back, measured"):
        assert text in found["text"]
    # What was rewritten is not rewritten again.
    assert found["graphs"] == 1
    # The smallest budget that a refusal names is kept, and is smaller than what encodings can do.
    assert found["enough"] == "" and found["kept"] <= found["least"] < found["budget"]


def test_a_device_that_is_too_small_needs_no_budget(python):
    code = """
    x = images(16)
    count_as_a_device(1 << 40)
    plain = attempt(deep(), x)[2].predicted_plain_bytes
    count_as_a_device(plain * 7 // 10)
    report = attempt(deep(), x, swap=True)[2]
    out([plain, report.predicted_peak_bytes, report.total_host_bytes])
    """
    plain, peak, host = python(DEVICE, code, **OFF)
    assert peak <= plain * 7 // 10 and host > 0


def test_bits_move_without_their_values(python):
    code = """
    x = tf.constant(np.random.default_rng(1).random((16, 64, 64, 16)).astype("float32"))
    count_as_a_device(1)
    def losses(**options):
        with stash_tf.enabled("fp8", **options):
            step = deep(tf.nn.relu6, 16)
            return [step(x).numpy().item() for _ in range(3)], stash_tf.report().as_dict()["rows"]
    out([losses()[0], *losses(swap=True)])
    """
    stay, move, rows = python(DEVICE, code, **OFF)
    assert move == stay
    moved = [row for row in rows if row["tensor"].endswith(":bits") and row["host_bytes"]]
    assert moved and all(row["choice"] == "range_mask+swap" and row["state"] == "ran" for row in moved)
    assert all(row["host_bytes"] == row["stored_bytes"] == 16 * 64 * 64 * 16 // 8 for row in moved)


# Traced for a batch that is not known, a step that has nothing to encode shows it all the same.
UNKNOWN_BATCH = """
def unknown(step):
    signature = [tf.TensorSpec((None, *images(1).shape[1:]), tf.float32)]
    made = tf.function(step.python_function, input_signature=signature)
    made.weights = step.weights
    return made

def bits(step, x, steps=6):
    losses = [step(x).numpy().item() for _ in range(steps)]
    return losses, [w.numpy().tobytes().hex() for w in step.weights]
"""


def test_moves_with_a_batch_that_is_not_known_at_first(python):
    code = """
    x = images(16)
    count_as_a_device(1 << 40)
    plain = attempt(deep(), x)[2].predicted_plain_bytes
    reference = bits(unknown(deep()), x)
    count_as_a_device(plain * 7 // 10)
    with stash_tf.enabled("lossless", swap=True, recompute=False):
        step = unknown(deep())
        step(x)
        first = stash_tf.report()
        step = unknown(deep())
        same = bits(step, x) == reference
        report = stash_tf.report()
    ops = {counter["op"] for counter in report.counters}
    ops_at_first = sorted({counter["op"] for counter in first.counters})
    out([first.batch, ops_at_first, same, report.batch, report.total_host_bytes, sorted(ops)])
    """
    batch_at_first, ops_at_first, same, batch, host, ops = python(DEVICE + UNKNOWN_BATCH, code, **OFF)
    assert batch_at_first == 0 and ops_at_first == ["StashBatch"]
    assert same and batch == 16 and host > 0
    assert ops == ["StashBatch", "StashSwapIn", "StashSwapOut"]  # a later batch may be larger


def test_a_budget_with_a_batch_that_is_not_known_at_first(python):
    """What encodings cannot keep is refused as soon as the batch has been seen, and not ignored."""
    code = """
    x = images(16)
    plain = attempt(deep(), x)[2].predicted_plain_bytes
    found = []
    for budget in (plain * 6 // 10, plain * 12 // 10):
        said = ""
        with stash_tf.enabled("lossless", budget=budget):
            try:
                bits(unknown(deep()), x)
            except tf.errors.ResourceExhaustedError as error:
                said = error.message
        found.append(said)
    out(found)
    """
    refused, kept = python(DEVICE + UNKNOWN_BATCH, code, **OFF)
    assert "is too small for this step" in refused and kept == ""


def test_what_is_allocated_outside_the_host_is_the_predicted_peak(python):
    code = """
    # The prediction is of one op at a time: with two, a map may die later or sooner than the plan says.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    weights = [tf.Variable((np.random.default_rng(k).standard_normal((64, 64)) * 0.1).astype("float32"))
               for k in range(8)]
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = tf.nn.softplus(y @ w)
            loss = tf.reduce_mean(y * y)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(g)
        return loss
    def peak_outside_the_host(x):
        step(x)
        with stash_tf.memory._profile() as events:
            step(x).numpy()
        on_host, moved, live, most = set(), 0, 0, 0
        for event in events:
            location = (event.allocator, event.address)
            if event.allocated and "stash_swap_out" in event.op:
                on_host.add(location)
                moved += event.bytes
            elif not event.allocated and location in on_host:
                on_host.remove(location)
            else:
                live += event.bytes if event.allocated else -event.bytes
                most = max(most, live)
        return most, moved
    x = tf.random.normal((8192, 64))
    plain = peak_outside_the_host(x)
    count_as_a_device(1)
    with stash_tf.enabled("lossless", swap=True, recompute=False):
        moved = peak_outside_the_host(x)
        report = stash_tf.report()
    out([plain, moved, report.predicted_plain_bytes, report.predicted_peak_bytes, report.total_host_bytes])
    """
    plain, moved, predicted_plain, predicted, host = python(DEVICE, code, TF_CPU_ALLOCATOR_USE_BFC="true", **OFF)
    assert moved[1] == host > 0 and plain[1] == 0
    assert predicted < 0.6 * predicted_plain
    assert abs(plain[0] - predicted_plain) < 0.1 * predicted_plain
    assert moved[0] < 1.05 * predicted, (moved, predicted)
    # Copies are foretold to end as late as they can. Where one ends sooner, a map less lies in memory at the peak.
    assert moved[0] + 4 * 8192 * 64 > 0.95 * predicted, (moved, predicted)


def test_encoded_forms_move(python):
    code = """
    count_as_a_device(1)
    x = images(64)
    step, reference = training(), training()
    plain = reference(x).numpy().item()
    loss, _, report = attempt(step, x, swap=True)
    out([plain, loss, [row for row in report.as_dict()["rows"] if row["host_bytes"]]])
    """
    plain, loss, moved = python(DEVICE, code, **OFF)
    assert plain == loss
    assert any(row["choice"] == "bitmap+swap" and row["host_bytes"] == row["stored_bytes"] < row["dense_bytes"]
               for row in moved), moved


def test_on_a_cpu_nothing_moves(python):
    code = """
    step, x = training(), images()
    loss, said, report = attempt(step, x, swap=True, budget="1 GiB")
    refused = attempt(training(), x, swap=True, budget=1)
    out([said, list(report.explanations), report.as_dict()["counters"], refused[1]])
    """
    said, explanations, counters, refused = python(DEVICE, code, **OFF)
    assert said == "" and "would do under policy lossless" in refused and "swap" not in refused
    assert explanations[-1] == (
        "Swap: nothing moves to the host: the tensors of this step lie in its memory already."
    )
    assert not [counter for counter in counters if "Swap" in counter["op"]]


# A graph whose nodes were placed on a GPU, which this machine need not have. Sizes come from the ops alone: what is
# fed has none for an optimizer.
GPU = """
import json
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import cluster, tf_optimizer

DEVICE = "/job:localhost/replica:0/task:0/device:GPU:0"

def placed(activation):
    @tf.function
    def step():
        y = tf.random.uniform((16, 64, 64, 8))
        weights = [tf.random.uniform((3, 3, 8, 8)) for _ in range(6)]
        for w in weights:
            y = activation(tf.nn.conv2d(y, w, 1, "SAME"))
        return tf.gradients(tf.reduce_mean(y * y), weights)
    graph = step.get_concrete_function()
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph.graph.as_graph_def())
    for node in meta.graph_def.node:
        node.device = DEVICE
    meta.collection_def["train_op"].node_list.value.extend(output.op.name for output in graph.outputs)
    return meta

def optimized(meta, memory=1 << 30, model="", **settings):
    "What the optimizer logs, and (op, name, device, inputs) of the nodes that it returns."
    config = config_pb2.ConfigProto()
    rewriter = config.graph_options.rewrite_options
    rewriter.min_graph_nodes = -1
    rewriter.meta_optimizer_iterations = 1
    rewriter.optimizers.append("pruning")
    ours = rewriter.custom_optimizers.add(name="stash")
    ours.parameter_map["looks"].i = 1
    ours.parameter_map["settings"].s = json.dumps({"any_device": True, **settings}).encode()
    device = device_properties_pb2.NamedDevice(
        name=DEVICE, properties=device_properties_pb2.DeviceProperties(type="GPU", model=model, memory_size=memory))
    library = stash_tf.library.load()
    library.reset_graphs()
    graph = tf_optimizer.OptimizeGraph(config, meta, cluster=cluster.Cluster(devices=[device]))
    return library.graphs()[-1], [(n.op, n.name, n.device, list(n.input)) for n in graph.node]
"""


def test_without_cuda_a_graph_on_a_gpu_stays(python):
    """Its kernels there could only say that the library has no CUDA."""
    code = """
    meta = placed(tf.nn.relu)
    log, nodes = optimized(meta, policy="lossless", any_device=False)
    out([log["rewritten"], log["reason"], [op for op, *_ in nodes if op.startswith("Stash")]])
    """
    rewritten, reason, ours = python(GPU, code, **OFF)
    assert not rewritten and "built without CUDA" in reason and not ours


def test_a_step_whose_planning_fails_keeps_no_budget(python):
    """It is refused as any other that cannot keep one; without a budget it stays as it is."""
    code = """
    meta = placed(tf.nn.softplus)
    found = []
    for budget in (0, 1 << 20):
        log, nodes = optimized(meta, memory=1 << 20, policy="lossless", swap=True, machine="pdp11", budget_bytes=budget)
        found.append([log["rewritten"], log["reason"], [op for op, *_ in nodes if op.startswith("Stash")]])
    out(found)
    """
    (left, why, none), (refused, reason, ours) = python(GPU, code, **OFF)
    assert not left and "pdp11" in why and not none
    assert refused and ours == ["StashRefuse"]
    assert "no plan keeps the budget of 1048576 bytes, because planning failed" in reason and "pdp11" in reason


def test_a_graph_on_a_gpu(python):
    code = """
    meta = placed(tf.nn.softplus)
    plain, _ = optimized(meta, policy="lossless", swap=True)
    budget = plain["predicted_plain_bytes"] * 6 // 10
    out([DEVICE, budget, optimized(meta, policy="lossless", swap=True, budget_bytes=budget),
         optimized(meta, policy="lossless", swap=True, memory=budget)])
    """
    device, budget, by_budget, by_memory = python(GPU, code, **OFF)
    for log, nodes in (by_budget, by_memory):
        assert log["rewritten"] and log["predicted_peak_bytes"] <= budget and log["predicted_host_bytes"] > 0
        names = [node[1] for node in nodes]
        moved = {tensor["tensor"] for tensor in log["tensors"] if tensor["choice"] == "swap"}
        out = {node[1]: node for node in nodes if node[0] == "StashSwapOut"}
        back = {node[1]: node for node in nodes if node[0] == "StashSwapIn"}
        assert len(out) == len(back) == len(moved) > 4
        gradients = [node for node in nodes if node[1].startswith("gradients/")]
        for _, called, found, _ in (*out.values(), *back.values()):
            assert found == device, called
        for _, called, _, (tensor,) in out.values():
            assert tensor in moved
            # The forward pass does not run away from the copies, and no gradient reads the tensor itself.
            assert any(f"^{called}" in inputs for _, _, _, inputs in nodes), called
            assert not any(tensor in inputs for op, _, _, inputs in gradients if op != "ShapeN"), tensor
        for _, called, _, (host, begin) in back.values():
            assert host in out and begin.startswith("^gradients/") and begin[1:] in names
            assert any(called in inputs for _, _, _, inputs in gradients)


def test_moves_are_planned_for_the_device(python):
    code = """
    meta = placed(tf.nn.softplus)
    budget = optimized(meta, policy="lossless")[0]["predicted_plain_bytes"] * 6 // 10
    models = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 3090", "another", "")
    logs = [optimized(meta, model=model, policy="lossless", swap=True, budget_bytes=budget)[0] for model in models]
    logs.append(optimized(meta, policy="lossless", swap=True, budget_bytes=budget, machine="k40_12gb")[0])
    logs.append(optimized(meta, policy="lossless")[0])
    out([[log["machine"], log["predicted_host_bytes"] > 0] for log in logs])
    """
    machines, moved = zip(*python(GPU, code, **OFF))
    assert machines == ("h200", "a100", "rtx", "a100", "a100", "k40_12gb", "")
    assert moved == (True,) * 6 + (False,)


def test_sparse_forms_on_a_gpu(python):
    """They are counted before they are allocated there too, so the plan takes their sizes and measured densities."""
    code = """
    meta = placed(tf.nn.relu)
    first, _ = optimized(meta, policy="lossless")
    densities = {tensor["tensor"]: 1.0 for tensor in first["tensors"]}
    again, _ = optimized(meta, policy="lossless", densities=densities)
    out([[tensor["choice"] for tensor in log["tensors"] if tensor["op"] == "Relu"] for log in (first, again)])
    """
    sparse, dense = python(GPU, code, **OFF)
    assert len(sparse) == len(dense) == 6
    assert {"bitmap", "csr"} & set(sparse) and not {"bitmap", "csr"} & set(dense)


def test_kernels_copy(python):
    code = """
    ops = stash_tf.library.load().ops
    x = tf.random.normal((300, 7))
    host = ops.stash_swap_out(x=x)
    back = ops.stash_swap_in(host=host)
    memory = [np.asarray(memoryview(tensor)) for tensor in (x, host, back)]
    out([np.shares_memory(memory[0], memory[1]), np.shares_memory(memory[1], memory[2]),
         bool(np.all(memory[0] == memory[2]))])
    """
    assert python(code, **OFF) == [False, False, True]
