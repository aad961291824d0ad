# SPDX-License-Identifier: Apache-2.0
"""What the viewers of a plan's files demand of them, each rule written once, apart from what writes the files."""

import csv
from html.parser import HTMLParser

TRACKS = {"compute": 1, "copy out (device to host)": 2, "copy in (host to device)": 3}
TRACK_OF = {"copy_out": 2, "copy_in": 3}


class Broken(AssertionError):
    pass


def demand(holds, *what):
    if not holds:
        raise Broken(" ".join(map(str, what)))


def live_bytes(plan, host=False):
    """Sum of the buffers alive at each step."""
    live = [0] * len(plan["steps"])
    for b in plan["buffers"]:
        if (b["form"] == "host") == host:
            for i in range(b["first_step"], b["last_step"] + 1):
                live[i] += b["bytes"]
    return live


def static_bytes(plan):
    return plan["sizes"]["parameter_bytes"] + plan["sizes"]["workspace_bytes"]


def ns(us):
    return round(us * 1000)


def check_chrome_trace(trace, plan):
    """Perfetto's reading of the JSON format: complete events that do not overlap on a track, counters whose times do
    not go back, flows that begin and end inside of slices. Returns the number of flows."""
    events = trace["traceEvents"]
    named = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    demand(named == TRACKS, "tracks", named)
    demand({e["ph"] for e in events} <= set("MXCsf"), "phases")
    demand(all(isinstance(e["name"], str) and e["pid"] == 1 for e in events), "name and pid")

    slices, by_step = {1: [], 2: [], 3: []}, {}
    for e in events:
        if e["ph"] != "X":
            continue
        begin, end = ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])
        track = slices[e["tid"]]
        demand(begin >= 0 and end >= begin, "slice", e)
        demand(not track or begin >= track[-1][1], "slices overlap or go back", e)
        track.append((begin, end, e))
        if "step" in e.get("args", {}):
            demand(e["args"]["step"] not in by_step, "step twice", e)
            by_step[e["args"]["step"]] = e
    for i, (step, time) in enumerate(zip(plan["steps"], plan["timeline"], strict=True)):
        wait = step["kind"].startswith("wait")
        if i not in by_step:
            demand(wait and ns(1e3 * time["begin_ms"]) == ns(1e3 * time["end_ms"]), "step is missing", i)
            continue
        e = by_step[i]
        demand(e["tid"] == TRACK_OF.get(step["kind"], 1), "track of step", i)
        demand(abs(ns(e["ts"]) - time["begin_ms"] * 1e6) <= 1, "begin of step", i)
        demand(abs(ns(e["ts"]) + ns(e["dur"]) - time["end_ms"] * 1e6) <= 1, "end of step", i)
    last = max(end for track in slices.values() for _, end, _ in track)
    demand(abs(last - plan["times"]["simulated_ms"] * 1e6) <= 1, "the trace ends at", last)

    check_counters(events, plan)

    flows = {}
    for e in events:
        if e["ph"] in "sf":
            demand(e["ph"] not in flows.setdefault(e["id"], {}), "end of a flow twice", e)
            demand(e["ph"] == "s" or e["bp"] == "e", "binding of a flow", e)
            at = [x for begin, end, x in slices[e["tid"]] if begin <= ns(e["ts"]) <= end]
            flows[e["id"]][e["ph"]] = (ns(e["ts"]), at)
    for number, ends in flows.items():
        demand(set(ends) == {"s", "f"}, "half a flow", number)
        demand(ends["s"][0] <= ends["f"][0], "flow goes back", number)
        pairs = [(a["cat"], b["cat"]) for a in ends["s"][1] for b in ends["f"][1]
                 if a.get("args", {}).get("tensor") == b.get("args", {}).get("tensor") is not None]
        demand({("encode", "decode"), ("encode", "recompute"), ("copy", "copy")} & set(pairs), "flow of", pairs)
    kinds = [s["kind"] for s in plan["steps"]]
    demand(sum(e["name"] == "on the host" and e["ph"] == "s" for e in events) == kinds.count("copy_in"), "flows of copies")
    return len(flows)


def check_counters(events, plan):
    counters = {}
    for e in events:
        if e["ph"] == "C":
            series = counters.setdefault(e["name"], [])
            demand(not series or ns(e["ts"]) >= series[-1][0], "counter goes back", e)
            demand(list(e["args"]) == ["bytes"] and isinstance(e["args"]["bytes"], int), "value of a counter", e)
            series.append((ns(e["ts"]), e["args"]["bytes"]))
    demand(set(counters) == {"device memory", "host memory"} | ({"budget"} if plan["budget_bytes"] else set()),
           "counters", set(counters))
    for name, live, added in [("device memory", live_bytes(plan), static_bytes(plan)),
                              ("host memory", live_bytes(plan, True), 0)]:
        expected = []
        for bytes in [*live, 0]:
            if not expected or expected[-1] != bytes + added:
                expected.append(bytes + added)
        got = [value for _, value in counters[name]]
        if len(got) > 1 and got[-1] == got[-2]:
            got.pop()  # the last value is repeated at the end of the step
        demand(got == expected, name, "differ from the live bytes")
        demand(abs(counters[name][-1][0] - plan["times"]["simulated_ms"] * 1e6) <= 1, name, "ends early")
    if plan["budget_bytes"]:
        demand({v for _, v in counters["budget"]} == {plan["budget_bytes"]}, "budget")


def check_memory_viz(snapshot, plan):
    """What the viewer of PyTorch computes from a snapshot, forwards (the timeline of active memory) and backwards (the
    history of the allocator's state)."""
    demand("category" not in keys_of(snapshot), "a category, which the viewer cannot read")
    check_fields(snapshot)
    host = plan["sizes"].get("host_bytes", 0)
    demand(len(snapshot["device_traces"]) == (2 if host else 1), "devices")
    for device, trace in enumerate(snapshot["device_traces"]):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        demand(len(segments) == 1, "segments of device", device)
        segment = segments[0]
        begin, end = segment["address"], segment["address"] + segment["total_size"]
        demand(0 < begin < end < 2**53, "address", begin)
        demand(segment["total_size"] == (host if device else plan["sizes"]["planned_peak_total"]), "size of a segment")
        demand(isinstance(segment["stream"], int) and len(segment["segment_pool_id"]) == 2, "segment")
        at, kept = begin, {}
        for block in segment["blocks"]:
            demand(block["state"] in ("active_allocated", "inactive"), "state", block)
            demand(0 < block["requested_size"] <= block["size"], "size of a block", block)
            if block["state"] == "active_allocated":
                kept[at] = block["size"]
            demand(block["address"] == at, "address of a block", block)
            at += block["size"]
        demand(at == end, "blocks do not fill their segment")
        demand(segment["allocated_size"] == segment["active_size"] == sum(kept.values()), "sums of a segment")

        live, most, mapped = {}, 0, False
        for i, e in enumerate(trace):
            demand(e["frames"], "frames", e)
            demand(isinstance(e["user_metadata"], str) and e["user_metadata"], "metadata", e)
            address, size = e["addr"], e["size"]
            if e["action"] == "segment_alloc":
                demand(i == 0 and (address, size) == (begin, end - begin), "segment", e)
                mapped = True
            elif e["action"] == "alloc":
                demand(mapped and begin <= address and address + size <= end and size > 0, "alloc", e)
                demand(all(address + size <= a or a + s <= address for a, s in live.items()), "blocks overlap", e)
                live[address] = size
                most = max(most, sum(live.values()))
            elif e["action"] == "free_requested":
                demand(i + 1 < len(trace), "freed only half", e)
                follower = trace[i + 1]
                demand((follower["action"], follower["addr"]) == ("free_completed", address), "not freed at once", e)
            else:
                demand(e["action"] == "free_completed" and live.pop(address, None) == size, "free", e)
        demand(live == kept, "blocks at the end")
        expected = max(live_bytes(plan, device == 1)) + (0 if device else static_bytes(plan))
        demand(most == expected, "most bytes in use", most, "expected", expected)
        state = dict(kept)
        for e in reversed(trace):
            if e["action"] == "free_completed":
                demand(e["addr"] not in state, "freed while another lives there", e)
                state[e["addr"]] = e["size"]
            elif e["action"] == "alloc":
                demand(state.pop(e["addr"], None) == e["size"], "alloc of what does not live", e)
        demand(not state, "live before the first event")
        allocs = [e for e in trace if e["action"] == "alloc"]
        buffers = [b for b in plan["buffers"] if (b["form"] == "host") == (device == 1) and b["bytes"]]
        demand(len(allocs) == len(buffers) + len(kept), "number of allocs")


# As PyTorch's documentation of snapshots names them ("Snapshot API Reference").
FIELDS = {"segment": {"address": int, "total_size": int, "stream": int, "segment_type": ["small", "large"],
                      "allocated_size": int, "active_size": int, "blocks": list, "device": int},
          "block": {"address": int, "size": int, "requested_size": int, "frames": list,
                    "state": ["active_allocated", "active_awaiting_free", "inactive"]},
          "event": {"action": ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"],
                    "addr": int, "frames": list, "size": int, "stream": int},
          "frame": {"filename": str, "line": int, "name": str}}


def check_fields(snapshot):
    def check(kind, record):
        for name, expected in FIELDS[kind].items():
            value = record[name]
            demand(value in expected if isinstance(expected, list) else type(value) is expected, kind, name, record)
        for frame in record.get("frames", []):
            check("frame", frame)

    for segment in snapshot["segments"]:
        check("segment", segment)
        for block in segment["blocks"]:
            check("block", block)
    for trace in snapshot["device_traces"]:
        for event in trace:
            check("event", event)


def keys_of(j):
    if isinstance(j, dict):
        return set(j).union(*map(keys_of, j.values()))
    return set().union(*map(keys_of, j)) if isinstance(j, list) else set()


def check_layout(path, plan):
    """MiniMalloc's columns: half-open ranges, no two live blocks on one byte, nothing above the peak."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    demand(rows and list(rows[0]) == ["id", "lower", "upper", "size", "offset"], "columns")
    blocks = [tuple(int(r[c]) for c in ("lower", "upper", "size", "offset")) for r in rows]
    buffers = [(b["first_step"], b["last_step"] + 1, b["bytes"], b["offset"]) for b in plan["buffers"]
               if b["form"] != "host" and b["bytes"]]
    demand(blocks == buffers, "blocks")
    demand(len({r["id"] for r in rows}) == len(rows), "ids")
    demand(max(offset + size for *_, size, offset in blocks) == plan["sizes"]["planned_peak"], "height")


class Page(HTMLParser):
    """A page as a tree's worth of facts; raises Broken for what a browser would have to repair or to load."""

    VOID = {"meta", "br", "hr", "input", "link", "img"}
    LINKS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "background"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.references, self.tags, self.texts, self.attributes = [], [], [], [], {}, []
        demand(text.startswith("<!DOCTYPE html>\n"), "doctype")
        for outside in ("://", "url(", "@import", "import(", "fetch("):
            demand(outside not in text, "reaches outside:", outside)
        self.feed(text)
        self.close()
        demand(not self.open, "never closed:", self.open)
        demand(len(set(self.ids)) == len(self.ids), "ids twice")
        demand(set(self.references) <= set(self.ids), "references to nothing")
        for tag, most in [("title", None), ("script", 1), ("style", 1), ("h1", 1), ("main", 1), ("html", 1)]:
            demand(tag in self.tags and (most is None or self.tags.count(tag) == most), "tag", tag)
        demand(self.tags.count("table") == self.tags.count("caption"), "tables without captions")
        demand("nan" not in " ".join(v for _, k, v in self.attributes if k in ("d", "x", "y", "width", "height")), "nan")

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        demand(len(values) == len(attributes), "attribute twice", tag, attributes)
        demand(not self.LINKS & set(values), "link", tag, attributes)
        demand(not any(name.startswith("on") for name in values), "handler", tag, attributes)
        self.attributes += [(tag, k, v) for k, v in attributes]
        if "id" in values:
            self.ids.append(values["id"])
        self.references += (values.get("aria-labelledby") or "").split()
        if tag == "html":
            demand(values.get("lang"), "language")
        if tag == "svg":
            demand(values.get("role") == "img" and len(values["aria-labelledby"].split()) == 2, "picture without words")
        if tag == "th":
            demand(values.get("scope") in ("col", "row"), "header without scope")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        demand(self.open and self.open.pop() == tag, "closes another:", tag)

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def text(self, tag):
        return "\n".join(self.texts.get(tag, []))
