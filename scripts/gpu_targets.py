# SPDX-License-Identifier: Apache-2.0
"""What kernels have to reach on an H100 or H200, and the rows of gpu_bench held against it. docs/gpu_runs.md has the same
list for readers."""

from dataclasses import dataclass, field

DEVICES = ("H100", "H200")
# Smaller maps measure launches and caches, not kernels. Larger ones count as well, where they were measured.
LEAST_BYTES, SIZE = 256 << 20, "256MiB"
F32, SIXTEEN = ("f32",), ("f16", "bf16")
FLOATS = F32 + SIXTEEN
HALF_ZERO = ("iid_0.5",)
# Shares of non-zeros: the densities of maps after a ReLU.
DENSITIES = ("iid_0.2", "iid_0.5", "iid_0.6")
CASTS = ("fp8", "fp8_e5m2", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1")
CASTS_OF_F32 = ("fp16", "bf16")


@dataclass(frozen=True)
class Target:
    """`forms` are names of rows without their size; each is needed. What is measured is the share of the time of a copy
    that moves as many bytes; with `against`, how much faster it is than the fastest of its case's baselines, each of which
    is needed as well; with `at_most`, how many times the copy's time it takes. Rows of `own_size` are of the size that
    their case has."""

    name: str
    forms: tuple
    at_least: float | None = None
    at_most: float | None = None
    against: dict = field(default_factory=dict)
    own_size: bool = False

    def limit(self):
        return {"at_least": self.at_least} if self.at_most is None else {"at_most": self.at_most}

    def keeps(self, value):
        return value >= self.at_least if self.at_most is None else value <= self.at_most

    def text(self, value):
        return f"{value:.2f}x" if self.against or self.at_most else f"{100 * value:.1f} %"

    def limit_text(self):
        bound, value = next(iter(self.limit().items()))
        return f"{'>=' if bound == 'at_least' else '<='} {self.text(value)}"


def forms(cases, types=FLOATS, zeros=HALF_ZERO):
    return tuple(f"{case}/{kind}/{where}" for case in cases for kind in types for where in zeros)


def both_ways(names):
    return [f"{way}/{name}" for name in names for way in ("encode", "decode")]


def pooling(windows, layers=(("max_pool", "window_index"),), layouts=("", "_channels_first")):
    return [f"{layer}_{way}/{kept}{window}{channels}" for way in ("forward", "backward") for layer, kept in layers
            for window in windows for channels in layouts]


# cuDNN has two calls for each pooling and does not say which is faster.
CUDNN_POOLING = {f"max_pool_backward/window_index{kind}": tuple(f"baseline/cudnn_max_pool_backward{kind}{way}"
                                                                for way in ("", "_nondeterministic"))
                 for kind in ("", "_channels_first", "_3x3", "_3x3_channels_first")}
POOLING_STRIDE_2 = pooling(("", "_3x3"), (("max_pool", "window_index"), ("relu_max_pool", "relu_pool")))
POOLING_ANY_LENGTH = pooling(("_14x14", "_3x3_55x55", "_3x3_stride_1_35x35"), layouts=("_channels_first",))

TARGETS = (
    Target("sign mask, encode", forms(["encode/sign_mask"]), at_least=0.95),
    Target("ReLU with its mask, forward and backward", forms(["relu_forward/sign_mask", "relu_backward/sign_mask"]),
           at_least=0.92),
    Target("pooling with its map, windows of stride 2", forms(POOLING_STRIDE_2), at_least=0.85),
    Target("pooling with its map, windows of stride 1", forms(pooling(("_3x3_stride_1",))), at_least=0.85),
    Target("pooling with its map, rows of any length", forms(POOLING_ANY_LENGTH), at_least=0.85),
    Target("pooling backward, against cuDNN", forms(CUDNN_POOLING), at_least=1.6, against=CUDNN_POOLING),
    Target("bitmap of f32, encode", forms(["encode/bitmap"], F32, DENSITIES), at_least=0.80),
    Target("bitmap of 16 bits, encode", forms(["encode/bitmap"], SIXTEEN, DENSITIES), at_least=0.70),
    Target("bitmap, encode, against CUB", forms(["encode/bitmap"], FLOATS, DENSITIES), at_least=1.6,
           against={"encode/bitmap": ("baseline/cub_select",)}),
    Target("bitmap, decode", forms(["decode/bitmap"], FLOATS, DENSITIES), at_least=0.85),
    Target("csr, encode and decode", forms(both_ways(["csr"]), FLOATS, DENSITIES), at_least=0.75),
    Target("csr, encode, against cuSPARSE", forms(["encode/csr"], FLOATS, DENSITIES), at_least=5,
           against={"encode/csr": ("baseline/cusparse_dense_to_csr",)}),
    Target("casts, encode and decode", forms(both_ways(CASTS)) + forms(both_ways(CASTS_OF_F32), F32), at_least=0.92),
    Target("fp10, encode and decode", forms(both_ways(["fp10"])), at_least=0.88),
    Target("all maps of a step of ResNet-50", forms(["sequence/resnet50_b32"]), at_most=1.15, own_size=True),
)


class Rows:
    """The rows of a record by name; those that were asked for and have no figures are in `missing`, each with why."""

    def __init__(self, rows):
        self.rows = {row["name"]: row for row in rows}
        self.missing = {}

    def measured(self, name, field):
        row = self.rows.get(name)
        if row and row.get(field):
            return row
        self.missing[name] = row.get("why", row.get("result", f"has no {field}")) if row else "there is no such row"
        return None

    def names(self, form, own_size):
        """Of the form at every size that counts."""
        found = [row for name, row in self.rows.items() if name == form or name.startswith(form + "/")]
        names = [row["name"] for row in found if row.get("dense_bytes", 0) >= LEAST_BYTES or
                 "seconds" not in row and (own_size or row["name"].endswith(SIZE))]
        return names or [form if own_size else f"{form}/{SIZE}"]


def values(target, rows):
    """Of each row that it has, by name."""
    found, used = {}, []
    for form in target.forms:
        for name in rows.names(form, target.own_size):
            case = form.rsplit("/", 2)[0]
            baselines = [baseline + name[len(case):] for baseline in target.against.get(case, ())]
            if not name.endswith(SIZE) and any(baseline not in rows.rows for baseline in baselines):
                continue  # baselines are only asked for at the one size
            used += [name, *baselines]
            if baselines:
                own, *others = [rows.measured(needed, "seconds") for needed in (name, *baselines)]
                if own and all(others):
                    found[name] = min(other["seconds"]["median"] for other in others) / own["seconds"]["median"]
            elif row := rows.measured(name, "copy_share"):
                found[name] = row["copy_share"] if target.at_most is None else 1 / row["copy_share"]
    return found, used


def held(target, rows, why_not):
    rows = Rows(rows)
    found, used = values(target, rows)
    entry = {"name": target.name, "limit": target.limit(), "rows": used}
    if found:
        entry |= {"least": min(found.values()), "most": max(found.values())}
    if why_not:
        return entry | {"result": "not run", "why": why_not}
    if rows.missing:
        name, why = next(iter(rows.missing.items()))
        more = f", and {len(rows.missing) - 1} more" if len(rows.missing) > 1 else ""
        return entry | {"result": "not run", "why": f"{name}: {why}{more}", "missing": list(rows.missing)}
    outside = sorted(name for name, value in found.items() if not target.keeps(value))
    if not outside:
        return entry | {"result": "met"}
    entry |= {"result": "missed", "missed_by": outside}
    # Nothing is faster than a copy: then the baseline is, too, for what it moves.
    shares = [rows.rows[name]["copy_share"] for name in outside if rows.rows[name].get("copy_share")]
    return entry | ({"least_copy_share": min(shares)} if target.against and shares else {})


def hold(rows, device, why_not=""):
    """One entry for each target. `device` is its name; `why_not` says why there is none."""
    if not why_not and not any(name in device for name in DEVICES):
        why_not = f"for {' and '.join(DEVICES)}, and this is {device}"
    return [held(target, rows, why_not) for target in TARGETS]


def table(entries):
    """Lines for a reader."""
    lines = [f"{'target':<44} {'limit':>10} {'least':>9} {'most':>9}  result"]
    for target, entry in zip(TARGETS, entries):
        least, most = (target.text(entry[end]) if end in entry else "-" for end in ("least", "most"))
        more = entry.get("why") or ", ".join(entry.get("missed_by", []))
        if "least_copy_share" in entry:
            more += f" (with {100 * entry['least_copy_share']:.1f} % of a copy's speed or more)"
        lines.append(f"{target.name:<44} {target.limit_text():>10} {least:>9} {most:>9}  {entry['result']}"
                     f"{': ' + more if more else ''}")
    return lines
