# SPDX-License-Identifier: Apache-2.0
"""Arguments and the library of the package stash_tf."""

import json
import shutil
from pathlib import Path

import pytest

import stash_tf
from stash_tf import settings

BUILT = stash_tf.library.find()
NO_PRELUDE = {"prelude": "import json, os, sys\ndef out(v): print('RESULT ' + json.dumps(v))\n"}
LOAD = """
import stash_tf
try:
    stash_tf.enable()
    out("loaded")
except stash_tf.StashError as error:
    out(str(error))
"""



# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "int8"}, "policy: expected one of none, lossless, fp16, fp10, fp8, auto, got 'int8'"),
        ({"policy": None}, "policy: expected one of none, lossless, fp16, fp10, fp8, auto, got None"),
        ({"budget": -1}, 'budget: expected a whole number of bytes, or a text as "400 MiB", got -1'),
        ({"budget": 0}, "budget: expected 1 byte or more, or None for no budget, got 0"),
        ({"budget": "0.0000001 B"}, "budget: expected 1 byte or more, or None for no budget, got '0.0000001 B'"),
        ({"keep": ["conv1", "\udcff"]}, r"keep: expected a list of layer names in Unicode, got ['conv1', '\udcff']"),
        ({"budget": 1.5}, 'budget: expected a whole number of bytes, or a text as "400 MiB", got 1.5'),
        ({"budget": True}, 'budget: expected a whole number of bytes, or a text as "400 MiB", got True'),
        ({"budget": "much"}, """budget: expected bytes, as a whole number or as in "400 MiB", got 'much'"""),
        ({"budget": "4 TiB"}, """budget: expected bytes, as a whole number or as in "400 MiB", got '4 TiB'"""),
        ({"batch": -2}, "batch: expected a whole number of samples"),
        ({"keep": "conv1"}, "keep: expected a list of layer names, got 'conv1'"),
        ({"keep": [1]}, "keep: expected a list of layer names, got [1]"),
        ({"keep": 7}, "keep: expected a list of layer names, got 7"),
        ({"keep": [""]}, "keep: expected a list of layer names, got ['']"),
        ({"values": ["fp16", "int4"]}, "values: expected formats of fp16, fp8, bf16, fp10, fp8_e5m2"),
        ({"values": "fp16"}, "values: expected a list of formats, got 'fp16'"),
        ({"swap": 1}, "swap: expected True or False, got 1"),
        ({"recompute": "cheap"}, "recompute: expected True, False or 'all', got 'cheap'"),
        ({"strict": "yes"}, "strict: expected True or False, got 'yes'"),
        ({"hook": "back"}, "hook: expected one of config, plugin, got 'back'"),
        ({"min_bytes": -5}, "min_bytes: expected a whole number of bytes"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(stash_tf.StashError) as caught:
        stash_tf.enable(**arguments)
    assert str(caught.value).startswith("enable: " + message)
    assert "\n" not in str(caught.value)
    assert not stash_tf.is_enabled()


@pytest.mark.parametrize(
    ("text", "count"),
    [("400 MiB", 400 << 20), ("1.5GiB", 3 << 29), ("2 kB", 2000), ("123", 123), (" 7 B ", 7), (None, 0)],
)
def test_budgets_as_text(text, count):
    assert settings.checked("fp8", text, None, (), False, 4096).budget_bytes == count


def test_settings_as_the_contract_names_them():
    wishes = settings.checked("auto", 10, 4, ["b", "a"], True, 1, ["fp16"])
    assert json.loads(wishes.measured(4, {"t:0": 0.5}).to_json(3)) == {
        "accepted": False,
        "policy": "auto",
        "budget_bytes": 10,
        "batch": 4,
        "batches": {},
        "keep": ["b", "a"],
        "swap": True,
        "recompute": "cheap",
        "min_bytes": 1,
        "densities": {"t:0": 0.5},
        "needs": {},
        "values": ["fp16"],
        "device_bytes": 0,
        "generation": 3,
    }


# ---- the library


def library_at(folder: Path, version: str | None = None) -> str:
    """A copy of the library, said to be built for this TensorFlow, or for another."""
    folder.mkdir()
    shutil.copy(BUILT, folder)
    note = BUILT.with_name("built_for.txt").read_text() if version is None else version
    (folder / "built_for.txt").write_text(note)
    return str(folder / BUILT.name)


def test_missing_library(python, tmp_path):
    text = python(LOAD, **NO_PRELUDE, STASH_TF_LIBRARY=str(tmp_path / "none.so"))
    assert "STASH_TF_LIBRARY names no file" in text
    assert "--target stash_tf" in text
    shutil.copytree(
        Path(stash_tf.__file__).parent, tmp_path / "stash_tf", ignore=shutil.ignore_patterns("*.so")
    )
    text = python(LOAD, **NO_PRELUDE, STASH_TF_LIBRARY="", PYTHONPATH=str(tmp_path))
    assert "the shared library is not there" in text and str(tmp_path) in text


@pytest.mark.slow
def test_library_for_another_tensorflow(python, tmp_path):
    path = library_at(tmp_path / "old", "2.3.0\n")
    code = LOAD + "assert not any('old/libstash' in line for line in open('/proc/self/maps'))"
    text = python(code, **NO_PRELUDE, STASH_TF_LIBRARY=path)
    assert "built for TensorFlow 2.3.0, but this is TensorFlow 2." in text
    (tmp_path / "old/built_for.txt").unlink()
    assert "it is unknown which TensorFlow" in python(LOAD, **NO_PRELUDE, STASH_TF_LIBRARY=path)


@pytest.mark.slow
def test_second_copy_of_the_library(python, tmp_path):
    path = library_at(tmp_path / "copy")
    first = f"import tensorflow as tf\ntf.load_op_library({str(BUILT)!r})\n"
    text = python(first, LOAD, **NO_PRELUDE, STASH_TF_LIBRARY=path)
    assert "another copy is already loaded" in text and str(BUILT.resolve()) in text
    assert python(first, LOAD, **NO_PRELUDE, STASH_TF_LIBRARY=str(BUILT)) == "loaded"


@pytest.mark.slow
def test_a_file_that_is_no_library(python, tmp_path):
    path = library_at(tmp_path / "broken")
    Path(path).write_text("nothing")
    assert "cannot be loaded" in python(LOAD, **NO_PRELUDE, STASH_TF_LIBRARY=path)
