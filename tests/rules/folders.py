# SPDX-License-Identifier: Apache-2.0
"""The folders of the sources: what each holds, and what it may include. ARCHITECTURE.md shows this table."""

from typing import NamedTuple


class Folder(NamedTuple):
    holds: str
    includes: tuple = ()  # folders, without those below them; "FOLDER/**": with them; or single files


API = "include/stash"
MESSAGE = "src/encoders/message.hpp"  # how messages show names
CHECKS = ("src/encoders/detail.hpp", "src/encoders/overlap_check.hpp", "src/encoders/encoding_checks.hpp",
          "src/encoders/public_call.hpp", MESSAGE)
PUBLIC_CALL = "src/encoders/public_call.hpp"  # public functions treat modes and errors alike
PLAN = "src/planner/plan.hpp"
OPTIMIZER = "integrations/tensorflow/cc/optimizer"
EXTENSION = ("include/stash/c_api.h", "integrations/tensorflow/cc/extension_api.hpp")

FOLDERS = {
    "include/stash": Folder("public API: C++20 in `*.hpp`, C11 in `c_api.h`"),
    "src/encoders": Folder("entry points: validate, size, dispatch to the CPU or a device",
                           (API, "src/encoders/format", "src/encoders/device")),
    "src/encoders/format": Folder("the format on the CPU: conversions, value codec, tile container, plain loops",
                                  (API, *CHECKS, "src/encoders/simd/simd_loops.hpp")),
    "src/encoders/forms": Folder("one file per form: raw, masks, casts, bitmap, csr",
                                 (API, *CHECKS, "src/encoders/format", "src/encoders/device")),
    "src/encoders/layers": Folder("ReLU and its kind, dropout",
                                  (API, *CHECKS, "src/encoders/format", "src/encoders/device")),
    "src/encoders/pooling": Folder("max pooling, with and without ReLU",
                                   (API, *CHECKS, "src/encoders/format", "src/encoders/device", "src/encoders/layers")),
    "src/encoders/simd": Folder("the same loops in Highway, once per instruction set", (API, *CHECKS, "src/encoders/format")),
    "src/encoders/device": Folder("what a device back end implements, and a null one", (API, *CHECKS)),
    "src/planner": Folder("`plan.hpp`, and what joins the layers below: plan, sweep, explain",
                          (API, PUBLIC_CALL, MESSAGE, "src/planner/**")),
    "src/planner/graph": Folder("graph of a training step, needs, machines and costs", (API, MESSAGE, PLAN)),
    "src/planner/json": Folder("graphs, plans and machines as JSON", (API, MESSAGE, PLAN, "src/planner/graph")),
    "src/planner/trace": Folder("recordings of PyTorch to graphs", (API, MESSAGE, "src/planner/graph", "src/planner/json")),
    "src/planner/layout": Folder("blocks with lifetimes to offsets; knows nothing of graphs",
                                 (API, MESSAGE, "src/planner/json/text_kind.hpp")),
    "src/planner/memory": Folder("smallest peak, or a budget: options, schedule, search, bound",
                                 (API, MESSAGE, PLAN, "src/planner/graph", "src/planner/layout")),
    "src/planner/time": Folder("fastest within a budget: simulator, relaxation, search, timeline",
                               (API, PLAN, "src/planner/graph", "src/planner/memory")),
    "src/planner/baselines": Folder("published policies, for comparison",
                                    (API, PLAN, "src/planner/graph", "src/planner/memory", "src/planner/time")),
    "src/planner/verify": Folder("checks a plan; shares no code with what made it", (API, MESSAGE, PLAN, "src/planner/graph")),
    "src/models": Folder("networks of the literature; a tape that derives graphs", (API, MESSAGE, "src/planner/graph")),
    "src/runtime": Folder("stashed tensors, SHA-256",
                          (API, "src/encoders", "src/encoders/device", "src/runtime/memory")),
    "src/runtime/memory": Folder("memory resources, arena, host blocks", (API, "src/encoders", "src/encoders/device")),
    "src/runtime/swap": Folder("swapper, and the swap engine that plans run on",
                               (API, "src/encoders", "src/encoders/device", "src/runtime/memory")),
    "src/c_api": Folder("C API: each function converts, calls C++ and turns exceptions into errors", (API,)),
    "src/data": Folder("IDX and CIFAR files, generated images", (API, MESSAGE, "src/runtime/**")),
    "src/executor": Folder("planned steps on the CPU, trainer, measured ops",
                           (API, "src/encoders", "src/planner/**", "src/runtime/**", "src/executor/kernels")),
    "src/executor/kernels": Folder("ops of the executor: oneDNN and loops of our own",
                                   (API, "src/encoders", "src/encoders/format", "src/planner/**", "src/runtime/**")),
    "kernels": Folder("memory and facts of a CUDA device", (API, "kernels/common", "src/encoders/device")),
    "kernels/common": Folder("skeletons of kernels, tuning, conversions; one source for nvcc and the emulator",
                             (API, "src/encoders/format", "emulator/simt")),
    "kernels/elementwise": Folder("raw, masks, casts, ReLU, dropout",
                                  (API, "kernels", "kernels/common", "kernels/tiles", "src/encoders/format",
                                   "src/encoders/device")),
    "kernels/tiles": Folder("bitmap and csr",
                            (API, "kernels", "kernels/common", "kernels/elementwise", "src/encoders/device")),
    "kernels/pool": Folder("which pooling kernel takes what, and the general ones",
                           (API, "kernels", "kernels/common", "kernels/tiles", "kernels/pool/nchw", "kernels/pool/nhwc",
                            "src/encoders/device")),
    "kernels/pool/nchw": Folder("pooling where channels come first", ("kernels/common", "kernels/pool")),
    "kernels/pool/nhwc": Folder("pooling where channels come last", ("kernels/common", "kernels/pool", "kernels/pool/nchw")),
    "emulator/simt": Folder("runs kernels as ordinary C++ on the CPU", (API, "src/encoders/device")),
    "emulator/ptx/machine": Folder("interprets PTX on the CPU"),
    "emulator/ptx/runtime": Folder("a CUDA runtime in front of that machine", ("emulator/ptx/machine",)),
    "bench": Folder("benchmark programs", (API, "src/**", "bench/cases")),
    "bench/cases": Folder("what is measured on the CPU, without a benchmark framework", (API, "src/**")),
    "bench/gpu": Folder("the same on a device", (API, "src/**", "bench/cases", "bench/gpu/baselines")),
    "bench/gpu/baselines": Folder("what libraries of NVIDIA take for the same work",
                                  (API, "src/**", "bench/cases", "bench/gpu")),
    "tools": Folder("the `stash` command", (API, MESSAGE, "src/planner", "tools/commands")),
    "tools/commands": Folder("one file per subcommand",
                             (API, "src/**", "bench/cases", "bench/gpu", "tools", "tools/files", "tools/report",
                              "tools/reproduce")),
    "tools/files": Folder("files that commands read and write", (API, "src/**", "tools")),
    "tools/report": Folder("pages, charts and trace files of a plan", (API, "src/**", "tools/files")),
    "tools/reproduce": Folder("tables of the papers", (API, "src/**", "tools")),
    "integrations/tensorflow/cc": Folder("how the TensorFlow extension reaches the library", ("include/stash/c_api.h",)),
    "integrations/tensorflow/cc/ops": Folder("ops: names, attributes, shapes",
                                             (*EXTENSION, "integrations/tensorflow/cc/kernels/pooling")),
    "integrations/tensorflow/cc/kernels": Folder("kernels of these ops", EXTENSION),
    "integrations/tensorflow/cc/kernels/pooling": Folder("those of pooling",
                                                         (*EXTENSION, "integrations/tensorflow/cc/kernels")),
    OPTIMIZER: Folder("graph optimizer: its stages, and the search for a budget", (*EXTENSION, f"{OPTIMIZER}/**")),
    f"{OPTIMIZER}/driver": Folder("settings in, log out", EXTENSION),
    f"{OPTIMIZER}/graph": Folder("a TensorFlow graph by numbers: sizes, loops, views, needs"),
    f"{OPTIMIZER}/analyse": Folder("which tensors the backward pass reads, and what for",
                                   (f"{OPTIMIZER}/driver", f"{OPTIMIZER}/graph", f"{OPTIMIZER}/simulate/folding.hpp")),
    f"{OPTIMIZER}/plan": Folder("the step as a graph for the planner, and its choices",
                                (*EXTENSION, f"{OPTIMIZER}/driver", f"{OPTIMIZER}/graph", f"{OPTIMIZER}/analyse")),
    f"{OPTIMIZER}/rewrite": Folder("the graph with encoders, decoders and control edges",
                                   (f"{OPTIMIZER}/graph", f"{OPTIMIZER}/analyse", f"{OPTIMIZER}/plan")),
    f"{OPTIMIZER}/simulate": Folder("TensorFlow's executor, simulated for peaks",
                                    (f"{OPTIMIZER}/graph", f"{OPTIMIZER}/analyse", f"{OPTIMIZER}/plan", f"{OPTIMIZER}/rewrite")),
    "examples": Folder("layers to start from", (API,)),
}
