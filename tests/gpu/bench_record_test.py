# SPDX-License-Identifier: Apache-2.0
"""What gpu_bench writes besides its rows, with a device or without. bench_record_test.py GPU_BENCH"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

NO_DEVICE = 77


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        done = subprocess.run([sys.argv[1], "--lines", "smoke", "--filter", "encode/sign_mask/f32", "--json", path],
                              stdout=subprocess.DEVNULL)
        record = json.loads(path.read_text())
    assert done.returncode in (0, NO_DEVICE), done
    properties, why = record["cudnn_device_properties"], record.get("why_no_cudnn_device_properties")
    if properties is None:
        assert why, record
    else:
        assert why is None and properties["deviceName"] == record["device"]["name"], record
    device = record.get("device", {}).get("name")
    if device == "emulator":
        assert why == "the emulator has no cuDNN", why
    if done.returncode == NO_DEVICE:
        assert device is None and why == record["rows"][0]["why"], record


main()
