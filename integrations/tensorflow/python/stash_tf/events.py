# SPDX-License-Identifier: Apache-2.0
"""Memory events out of what TensorFlow's profiler writes."""

from __future__ import annotations

from typing import Any, NamedTuple

_KINDS = {"MemoryAllocation": True, "MemoryDeallocation": False}


class Event(NamedTuple):
    """An allocation or a release; op and shape are known of allocations only."""

    time: float  # seconds
    allocated: bool
    allocator: str
    address: int
    bytes: int
    op: str
    shape: str
    kind: str  # "output", "temp", "persist"


def parse(xspace: bytes) -> list[Event]:
    """The memory events of a serialized XSpace; where a GPU's allocator is among them, only those of GPUs."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    events = []
    for plane in xplane_pb2.XSpace.FromString(xspace).planes:
        kinds = {key: _KINDS[m.name] for key, m in plane.event_metadata.items() if m.name in _KINDS}
        names = {key: m.name for key, m in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in kinds:
                    time = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                    events.append(_event(time, kinds[event.metadata_id], _stats(event, names)))
    devices = [event for event in events if event.allocator.startswith("GPU_")]
    return devices or events


def _stats(event: Any, names: dict[int, str]) -> dict[str, Any]:
    found = {}
    for stat in event.stats:
        field = stat.WhichOneof("value")
        if field is not None:
            value = getattr(stat, field)
            found[names.get(stat.metadata_id, "")] = names.get(value, "") if field == "ref_value" else value
    return found


def _event(time: float, allocated: bool, stats: dict[str, Any]) -> Event:
    return Event(
        time=time,
        allocated=allocated,
        allocator=str(stats.get("allocator_name", "")),
        address=int(stats.get("addr", 0)),
        bytes=int(stats.get("requested_bytes", 0)),
        op=str(stats.get("tf_op", "")),
        shape=str(stats.get("shape", "")),
        kind=str(stats.get("region_type", "")),
    )
