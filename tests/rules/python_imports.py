# SPDX-License-Identifier: Apache-2.0
"""The modules of a Python package are layers: who imports whom makes no circle, and no import hides in a function."""

import ast
import graphlib
from pathlib import PurePosixPath


def imported(node, package, modules):
    """Modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name.removeprefix(f"{package}.") for alias in node.names if alias.name.startswith(f"{package}.")]
    elif isinstance(node, ast.ImportFrom) and (node.level == 1 or node.module == package):
        inner = node.module if node.level == 1 else None
        names = [inner] if inner else [alias.name for alias in node.names]
    else:
        names = []
    return [name for name in names if name in modules]


def hidden_imports(tree, name_of):
    """Lines of functions that import a module of the package."""
    return [node.lineno for function in ast.walk(tree) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
            for node in ast.walk(function) if name_of(node)]


def package_violations(package, paths, trees):
    """Of one package: the paths and the syntax trees of its modules, by their names."""
    def name_of(node):
        return imported(node, package, trees)

    edges = {name: sorted({other for node in ast.walk(tree) for other in name_of(node)}) for name, tree in trees.items()}
    found = [f"{paths[name]}:{line}: imports a module of the package in a function"
             for name, tree in trees.items() for line in hidden_imports(tree, name_of)]
    if sum(map(len, edges.values())) < len(trees) // 2:  # or none of them was recognised
        found.append(f"{paths['__init__']}:1: fewer imports than half its modules: were they recognised?")
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        found.append(f"{paths['__init__']}:1: modules import each other in a circle: {' <- '.join(error.args[1])}")
    return found


def python_imports(tree):
    """Modules of each package are layers, and import each other where a reader looks for it."""
    found = []
    for folder in [PurePosixPath(path).parent for path in tree.paths if path.endswith("/__init__.py")]:
        paths = {PurePosixPath(path).stem: path for path in tree.paths
                 if path.endswith(".py") and PurePosixPath(path).parent == folder}
        trees = {name: ast.parse(tree.text(path)) for name, path in paths.items()}
        found += package_violations(folder.name, paths, trees)
    return found
