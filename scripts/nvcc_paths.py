# SPDX-License-Identifier: Apache-2.0
"""Where the scripts look for nvcc."""

import os
import shutil


def nvcc_paths(known=None):
    """Names of programs, the first of which that is there is nvcc: the one that CUDACXX names, as CMake would take it, or
    `known`; else those of PATH, CUDA_HOME and /usr/local/cuda."""
    named = os.environ.get("CUDACXX") or known
    homes = filter(None, [os.environ.get("CUDA_HOME"), "/usr/local/cuda"])
    return [named] if named else ["nvcc", *(os.path.join(home, "bin", "nvcc") for home in homes)]


def find_nvcc(program, chosen=None):
    """The first that is there, or `chosen`; None if there is none. One that the environment names has to be there."""
    paths = nvcc_paths() if chosen is None else [chosen]
    found = next(filter(None, map(shutil.which, paths)), None)
    if not found and chosen is None and os.environ.get("CUDACXX"):
        raise SystemExit(f"{program}: CUDACXX names '{paths[0]}', which is no program")
    return found
