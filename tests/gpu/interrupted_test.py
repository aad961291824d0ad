# SPDX-License-Identifier: Apache-2.0
"""What a program that is killed leaves. interrupted_test.py PROGRAM LIST ARGUMENTS...

Starts the program with --json, kills it as soon as the record has a result, and looks at the record."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM, LIST, *ARGUMENTS = sys.argv[1:]
LIMIT = 60  # seconds until the first result


def read(path):
    """The record is whole at every moment; it need not be there yet."""
    return json.loads(path.read_text()) if path.exists() else {}


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        running = subprocess.Popen([PROGRAM, *ARGUMENTS, "--json", str(path)], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + LIMIT
            while not read(path).get(LIST) and running.poll() is None and time.monotonic() < end:
                time.sleep(0.001)
        finally:
            running.kill()
            running.wait()
        record = read(path)
        assert record["complete"] is False, record
        assert len(record[LIST]) >= 1, record
        assert record["running"] not in [result["name"] for result in record[LIST]], record
        assert record["device"]["name"] == "emulator", record
        assert "commit" in record and "command" in record, record


main()
