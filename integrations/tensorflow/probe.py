# SPDX-License-Identifier: Apache-2.0
"""Prints what a build against the installed TensorFlow needs, as one JSON object."""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tensorflow.python.framework import versions
from tensorflow.python.platform import sysconfig


def main() -> int:
    flags = sysconfig.get_compile_flags()
    facts = {
        "version": versions.VERSION,
        "include": sysconfig.get_include(),
        "lib": sysconfig.get_lib(),
        "defines": [flag[2:] for flag in flags if flag.startswith("-D")],
        "standard": next((flag.split("++")[1] for flag in flags if flag.startswith("--std=c++")), "17"),
        "libraries": [flag for flag in sysconfig.get_link_flags() if flag.startswith("-l")],
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
