# SPDX-License-Identifier: Apache-2.0
"""write_record.py FILE COMMAND {NAME RESULT SECONDS}...: how long the parts of a command took, as JSON, with the machine and
the commit."""

import json
import os
import sys
from pathlib import Path

from provenance import commit, processor


def main():
    file, command, *words = sys.argv[1:]
    parts = [{"name": name, "result": result, "seconds": int(seconds)}
             for name, result, seconds in zip(words[::3], words[1::3], words[2::3])]
    record = {"command": command, "commit": commit(), "processor": processor(), "processors": os.cpu_count(),
              "seconds": sum(part["seconds"] for part in parts), "parts": parts}
    Path(file).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
