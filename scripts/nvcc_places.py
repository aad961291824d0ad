# SPDX-License-Identifier: Apache-2.0
"""Where the scripts look for nvcc."""

import os
import shutil


def nvcc_places(known=None):
    """Names of programs, the first of which that is there is nvcc: the one that CUDACXX names, as CMake would take it, or
    `known`; else those of PATH, CUDA_HOME and /usr/local/cuda."""
    named = os.environ.get("CUDACXX") or known
    homes = filter(None, [os.environ.get("CUDA_HOME"), "/usr/local/cuda"])
    return [named] if named else ["nvcc", *(os.path.join(home, "bin", "nvcc") for home in homes)]


def find_nvcc(program, given=None):
    """The first that is there, or `given`; None if there is none. One that the environment names has to be there."""
    places = nvcc_places() if given is None else [given]
    found = next(filter(None, map(shutil.which, places)), None)
    if not found and given is None and os.environ.get("CUDACXX"):
        raise SystemExit(f"{program}: CUDACXX names '{places[0]}', which is no program")
    return found
