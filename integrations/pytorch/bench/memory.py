# SPDX-License-Identifier: Apache-2.0
"""Peak of the memory that torch's allocators have handed out: of the CPU's from its own events."""

import torch

WARM_UP = 6  # steps after which a session has fitted its plan to the memory of a step


def peak_of(step, device="cpu"):
    """(bytes at the peak, result): of what `step()` allocates. On a CPU, a block that was there before and goes in the step,
    as when Python's collector finds a cycle, lowers no peak."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, result
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        result = step()
    live = peak = 0
    made = {}  # bytes of the blocks that live, by address
    for _, pointer, size in sorted(_allocations(profile.profiler.kineto_results.experimental_event_tree())):
        if size > 0:
            made[pointer] = size
            live += size
            peak = max(peak, live)
        else:
            live -= made.pop(pointer, 0)
    return peak, result


def _allocations(events):
    """(time, address, bytes) of the CPU's; bytes are below 0 where a block goes."""
    stack = list(events)
    while stack:
        event = stack.pop()
        if event.name == "[memory]" and event.extra_fields.device.type == "cpu":
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size
        stack.extend(event.children)
