# SPDX-License-Identifier: Apache-2.0
"""What a program said, remembered in the user's cache folder, for every clone, under a digest of all that it depends on."""

import hashlib
import os
import tempfile
import time
from pathlib import Path

from provenance import ROOT

FORGET_AFTER_DAYS = 90


class Digests:
    """Of files, each read once."""

    def __init__(self):
        self.known = {}

    def of(self, path):
        path = Path(os.path.normpath(path))
        if path not in self.known:
            self.known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path} {self.known[path]}"


def key_of(*parts):
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class KnownResults:
    """Texts by key. Several processes may use the folder at a time."""

    def __init__(self, name):
        self.folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name
        self.folder.mkdir(parents=True, exist_ok=True)
        limit = time.time() - FORGET_AFTER_DAYS * 86400
        for path in self.folder.iterdir():
            if path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)

    def get(self, key):
        """The text, None if it is not known."""
        try:
            text = (self.folder / key).read_text()
            os.utime(self.folder / key)
            return text
        except FileNotFoundError:
            return None

    def put(self, key, text):
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
            file.write(text)
        os.replace(file.name, self.folder / key)
