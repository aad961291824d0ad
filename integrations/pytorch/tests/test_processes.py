# SPDX-License-Identifier: Apache-2.0
"""Several ranks, threads, compiled parts, and what is left after a long run."""

import contextlib
import faulthandler
import gc
import os

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models
import stash_torch
import two_threads
from training import assert_same, classify


def distributed(count):
    return DistributedDataParallel(models.UNet())


def sharded(count):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network, mesh = models.Transformer(dropout=0), init_device_mesh("cpu", (count,))
    for part in [*network.blocks, network]:
        fully_shard(part, mesh=mesh)
    return network


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def ranks(rank, count, file, build, results):
    faulthandler.enable()  # a rank that is aborted says where: the parent only tells the signal
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=count)
    found = []
    for compressed in (False, True):
        torch.manual_seed(3)
        network = build(count)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        session = stash_torch.compress(network)
        if compressed:
            session.__enter__()
        for step in range(4):
            x, target = models.batch(2, 32, 10 * step + rank)
            optimizer.zero_grad()
            classify(network, x, target).backward()
            optimizer.step()
        if compressed:
            session.close()
            assert session.counts["steps"] == 3 and session.plans[0].after < session.plans[0].before
        found.append([whole(each) for each in network.state_dict().values()])
        del network, optimizer, session
    assert all(torch.equal(a, b) for a, b in zip(*found))
    results.put((rank, sum(each.double().sum().item() for each in found[1][:4])))
    # No rank takes its sockets down while another is still in a collective, and none ends with works that threads of gloo hold.
    gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("build", [distributed, pytest.param(sharded, marks=pytest.mark.slow)])
def test_two_ranks(build, tmp_path):
    """DistributedDataParallel, and weights that FSDP shards."""
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    torch.multiprocessing.spawn(ranks, (2, str(tmp_path / "ranks"), build, results), nprocs=2)
    assert len({value for _, value in (results.get(), results.get())}) == 1


def test_a_compiled_part_keeps_its_own():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = models.UNet()
            self.first = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.net(torch.compile(torch.sin, backend="aot_eager")(self.first(x)))

    torch._dynamo.reset()
    session = assert_same(Network(), [models.batch(2, 32, seed) for seed in range(4)])
    assert session.counts["steps"] >= 2


@pytest.mark.parametrize("way", ["trace", "script", "export", "whole"])
def test_other_ways_to_read_a_model(way):
    """torch.jit, torch.export and a whole compiled graph within a session give what they give without."""
    def used(network, x):
        if way == "whole":
            whole = torch.compile(network, backend="aot_eager", fullgraph=True)
            return [whole(x).square().mean().backward() for _ in range(2)] and network[0].weight.grad
        network.eval()
        if way == "export":
            return torch.export.export(network, (x,)).module()(x)
        return torch.jit.trace(network, x)(x) if way == "trace" else torch.jit.script(network)(x)

    x, found = torch.randn(2, 3, 16, 16), []
    for compressed in (False, True):
        torch.manual_seed(0)
        torch._dynamo.reset()
        network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3))
        with stash_torch.compress(network) if compressed else contextlib.nullcontext():
            found.append(used(network, x))
    assert torch.equal(*found)


@pytest.mark.parametrize("what", [two_threads.own_sessions, two_threads.one_session])
def test_two_threads(what):
    what()


@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_memory_does_not_grow(steps):
    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    network = models.SmallVgg()
    data = [models.batch(4, 32, seed) for seed in range(4)]
    with stash_torch.compress(network, "fp8") as session:
        sizes = []
        for step in range(steps):
            network.zero_grad()
            classify(network, *data[step % 4]).backward()
            if step in (steps // 2, steps - 1):
                gc.collect()
                sizes.append((resident(), len(gc.get_objects())))
    assert session.counts["steps"] == steps - 1
    assert sizes[1][0] - sizes[0][0] < 8 * 2**20
    assert sizes[1][1] - sizes[0][1] < 200
