# SPDX-License-Identifier: Apache-2.0
"""Checks one group of rules, or all of them, on a checkout: check_rules.py GROUP|all ROOT. With --folders instead of a
group: writes the table of folders into ARCHITECTURE.md."""

import os
import sys

import rules

SKIPPED = 77


def write_folders(root):
    page = os.path.join(root, "ARCHITECTURE.md")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with open(page, "w", encoding="utf-8") as file:
        file.write(rules.TABLE.sub(lambda _: f"<!-- folders -->\n{rules.folder_table()}<!-- /folders -->", text))
    return 0


def main():
    group, root = sys.argv[1], os.path.realpath(sys.argv[2])
    tree = rules.checkout(root)
    if tree is None:
        print(f"skipped: {root} is not a git checkout, so which files belong to the project is not known")
        return SKIPPED
    if not tree.paths:
        print(f"{root}: git lists no file")
        return 1
    if group == "--folders":
        return write_folders(root)
    groups = rules.RULES if group == "all" else (group,)
    violations = [violation for name in groups for rule in rules.RULES[name] for violation in rule(tree)]
    print("\n".join(violations) if violations else f"{group}: {len(tree.paths)} files, no violation")
    return 1 if violations else 0


sys.exit(main())
