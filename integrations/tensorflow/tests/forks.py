# SPDX-License-Identifier: Apache-2.0
"""Runs Python scripts in processes that begin with TensorFlow imported: copies of one that has done nothing else.

Importing TensorFlow takes seconds; a copy takes milliseconds. What TensorFlow settles while it is imported is settled
by the environment, so there is a process to copy for every environment that was asked for, but for what is only read
later (LATE). No thread of TensorFlow runs before it is used, so a copy misses nothing."""

import contextlib
import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading

# Read when the first device, cluster or temporary file is made, by Stash, or by what the tests run.
LATE = ("TMPDIR", "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
        "TF_CONFIG", "PYTEST_CURRENT_TEST", "ACTIVATION", "INTER", "NAMES", "POLICY", "ROWS", "TESTS")
LARGEST_REQUEST = 1 << 20  # bytes
_starting = threading.Lock()


def is_late(name):
    return name in LATE or name.startswith("STASH_")


def run(script, *arguments, environment=None, timeout):
    """As subprocess.run() of the script with that environment and captured text: a CompletedProcess or TimeoutExpired."""
    environment = dict(os.environ if environment is None else environment)
    words = [str(script), *map(str, arguments)]
    request = json.dumps({"words": words, "environment": environment, "folder": os.getcwd()}).encode()
    settled = tuple(sorted((name, value) for name, value in environment.items() if not is_late(name)))
    with _starting:
        original = _original(settled)
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        status = _copy(original, request, stdout, stderr, words, timeout)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(words, status, *texts)


def run_anew(script, *arguments, environment=None, timeout):
    """The same with a process that imports TensorFlow itself."""
    words = [str(script), *map(str, arguments)]
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=timeout,
                          check=False)


@functools.cache
def _original(settled):
    """The socket of the process to copy for this environment. It ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_REQUEST)
    with theirs:
        subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], env=dict(settled), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours


def _copy(original, request, stdout, stderr, words, timeout):
    """The status of a copy that runs the request, negative for a signal."""
    answers, theirs = socket.socketpair()
    with answers, theirs:
        socket.send_fds(original, [request], [file.fileno() for file in (stdout, stderr, theirs)])
        theirs.close()
        answers.settimeout(timeout)
        process = None
        with answers.makefile() as lines:
            try:
                process = int(lines.readline())
                return int(lines.readline())
            except TimeoutError:
                if process:
                    os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout) from None
            except ValueError:
                raise RuntimeError("the process that imports TensorFlow for others has ended") from None


def _next_copy(channel):
    """(request, files) in each copy, None in the original when nobody can ask any more.

    Between the original and the copy there is a process that waits for the copy and tells its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(channel, LARGEST_REQUEST, 3)
        if not request:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            process = os.fork()
            if process == 0:
                channel.close()
                return json.loads(request), files
            os.write(files[2], b"%d\n" % process)
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # nobody waited so long
                os.write(files[2], b"%d\n" % status)
            os._exit(0)
        for file in files:
            os.close(file)


def _main():
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    gc.freeze()  # or copies would write to all of it when they collect garbage
    found = _next_copy(socket.socket(fileno=int(sys.argv[1])))
    if found is None:
        return
    request, files = found
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = request["words"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
