"""Where the scripts look for nvcc."""

import os


def nvcc_places(known=None):
    """Names of programs, the first of which that is there is nvcc: the one that CUDACXX names, as CMake would take it, or
    `known`; else those of PATH, CUDA_HOME and /usr/local/cuda."""
    named = os.environ.get("CUDACXX") or known
    homes = filter(None, [os.environ.get("CUDA_HOME"), "/usr/local/cuda"])
    return [named] if named else ["nvcc", *(os.path.join(home, "bin", "nvcc") for home in homes)]
