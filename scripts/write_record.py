# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a command took, as JSON, with the machine and the commit."""

import argparse
import json
import os
from pathlib import Path

from provenance import commit, processor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=commit(), help="that was run (default: that of this folder)")
    parser.add_argument("--note", help="what the times depend on")
    parser.add_argument("file", type=Path)
    parser.add_argument("command")
    parser.add_argument("parts", nargs="*", help="name, result and seconds of each")
    arguments = parser.parse_args()
    words = arguments.parts
    parts = [{"name": name, "result": result, "seconds": int(seconds)}
             for name, result, seconds in zip(words[::3], words[1::3], words[2::3])]
    record = {"command": arguments.command, "commit": arguments.commit, "processor": processor(), "processors": os.cpu_count(),
              "seconds": sum(part["seconds"] for part in parts), "parts": parts}
    if arguments.note:
        record["note"] = arguments.note
    arguments.file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
