# SPDX-License-Identifier: Apache-2.0
"""Peak of the memory that torch's allocators have handed out: of the CPU's from its own events."""

import torch

WARM_UP = 6  # steps after which a session has fitted its plan to the memory of a step


def peak_of(step, device="cpu"):
    """(bytes at the peak, result): of what `step()` allocates beyond what is allocated when it begins."""
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
    events = [(event.start_ns(), event.nbytes()) for event in profile.profiler.kineto_results.events()
              if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU]
    live = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        live += size
        peak = max(peak, live)
    return peak, result
