# SPDX-License-Identifier: Apache-2.0
"""Processes that begin with TensorFlow imported are like others to those who ask for one."""

import os
import subprocess

import pytest

import forks


def environment(**more):
    """That of most other tests, so that one import serves them all: TensorFlow's import changes it here, too."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow", **more}


@pytest.fixture
def script(tmp_path):
    def written(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return written


def test_environment_arguments_and_texts(script):
    path = script("import os, sys\nprint(__name__, sys.argv[1:], sys.path[0], os.environ['STASH_ONE'], os.getcwd())\n"
                  "print('error', file=sys.stderr)\nos.environ['STASH_ONE'] = 'changed'")
    for value in ("first", "second"):
        finished = forks.run(path, "a", 1, environment=environment(STASH_ONE=value), timeout=60)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout == f"__main__ ['a', '1'] {path.parent} {value} {os.getcwd()}\n"
        assert finished.stderr == "error\n"


@pytest.mark.parametrize(("end", "status"), (("sys.exit(3)", 3), ("raise ValueError('wrong')", 1), ("os.abort()", -6),
                                             ("subprocess.run(['false'])", 0)))
def test_status(script, end, status):
    finished = forks.run(script(f"import os, subprocess, sys\n{end}"), environment=environment(), timeout=60)
    assert finished.returncode == status
    assert ("ValueError: wrong" in finished.stderr) == (status == 1)


def test_what_is_settled_while_importing(script):
    """Another environment is another process to copy; TensorFlow is imported, and not used, before the copy begins."""
    path = script("import sys\nimported = 'tensorflow' in sys.modules\nimport tensorflow as tf\n"
                  "print(imported, tf.sysconfig.get_build_info() is not None)\n"
                  "tf.config.threading.set_inter_op_parallelism_threads(1)  # refused once it has begun\n"
                  "from tensorflow.python.util import _pywrap_util_port as port\nprint(port.IsMklEnabled())")
    for onednn in ("0", "1"):
        finished = forks.run(path, environment=environment(TF_ENABLE_ONEDNN_OPTS=onednn), timeout=60)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.splitlines() == ["True True", str(onednn == "1")]


def test_time_is_limited(script, tmp_path):
    forks.run(script(""), environment=environment(), timeout=60)  # what is copied is there then
    path = script(f"import os, time\nopen({str(tmp_path / 'process')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run(path, environment=environment(), timeout=2)
    with pytest.raises(ProcessLookupError):
        for _ in range(1000):  # killed; gone once it has been waited for
            os.kill(int((tmp_path / "process").read_text()), 0)
            subprocess.run(["sleep", "0.01"], check=True)


def test_an_import_that_fails(script, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('not today')")
    with pytest.raises(RuntimeError, match="has ended"):
        forks.run(script(""), environment=environment(PYTHONPATH=str(tmp_path)), timeout=60)


def test_a_new_process_imports_by_itself(script):
    path = script("import sys\nprint('tensorflow' in sys.modules)")
    assert forks.run_anew(path, environment=environment(), timeout=60).stdout == "False\n"
