# SPDX-License-Identifier: Apache-2.0
"""The modules of the package are layers: who imports whom makes no circle, and no import hides in a function."""

import ast
import graphlib
from pathlib import Path

import stash_torch

MODULES = {path.stem: ast.parse(path.read_text(encoding="utf-8"))
           for path in sorted(Path(stash_torch.__file__).parent.glob("*.py"))}


def imported(node):
    """Modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name.removeprefix("stash_torch.") for alias in node.names if alias.name.startswith("stash_torch.")]
    elif isinstance(node, ast.ImportFrom) and (node.level == 1 or node.module == "stash_torch"):
        inner = node.module if node.level == 1 else None
        names = [inner] if inner else [alias.name for alias in node.names]
    else:
        names = []
    return [name for name in names if name in MODULES]


def imports(tree):
    return sorted({name for node in ast.walk(tree) for name in imported(node)})


def test_imports_make_no_circle():
    edges = {name: imports(tree) for name, tree in MODULES.items()}
    assert sum(map(len, edges.values())) >= len(MODULES) // 2  # or none of them was recognised
    graphlib.TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_no_import_of_the_package_in_a_function():
    hidden = [f"{name}:{node.lineno}" for name, tree in MODULES.items() for function in ast.walk(tree)
              if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
              for node in ast.walk(function) if imported(node)]
    assert not hidden
