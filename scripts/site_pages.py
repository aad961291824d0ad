# SPDX-License-Identifier: Apache-2.0
"""Copies the pages of the repository into one folder for mkdocs, as scripts/docs wants them: README becomes the front page,
ARCHITECTURE and its like lie next to docs/, READMEs of modules below modules/, and links lead to the copies. Links to
sources become plain text, because the site has none."""

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")
TOP = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md",
       "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "docs/README.md": "all_pages.md"}
PYTHON = "# Python reference\n\nThe package `stash_tf`. What it is for: [tensorflow.md](tensorflow.md).\n\n::: stash_tf\n"
SETTINGS = """site_name: Stash
docs_dir: pages
use_directory_urls: false
theme:
  name: material
  palette:
    - {media: "(prefers-color-scheme: light)", scheme: default}
    - {media: "(prefers-color-scheme: dark)", scheme: slate}
  features: [navigation.sections, navigation.top, content.code.copy]
plugins:
  - search
  - mkdocstrings:
      handlers:
        python:
          paths: [PACKAGE]
          options: {show_source: false, show_root_heading: true, members_order: source}
markdown_extensions: [tables, attr_list, fenced_code, {toc: {permalink: true}}]
validation: {nav: {omitted_files: warn}, links: {anchors: warn, unrecognized_links: warn}}
nav:
  - Stash: index.md
  - Use:
      - tensorflow.md
      - pytorch.md
      - command_line.md
      - reports.md
      - traces.md
      - policies.md
      - machines.md
      - models.md
      - results.md
      - benchmarks.md
  - Integrate:
      - custom_layers.md
      - swap.md
      - abi.md
      - format.md
      - graph.md
      - plan.md
      - layout.md
      - gpu_runs.md
      - python.md
      - Python reference: python_reference.md
  - Change:
      - architecture.md
      - contributing.md
      - glossary.md
      - add_an_encoding.md
      - add_an_op.md
      - fix_a_planner_bug.md
      - needs.md
      - planning.md
      - engine.md
      - kernels.md
      - proofs.md
      - footprints.md
      - security.md
      - changelog.md
      - all_pages.md
      - Modules: [MODULES]
"""


def pages():
    """{path in the repository: path in the site}."""
    found = {source: name for source, name in TOP.items() if (ROOT / source).is_file()}
    for path in sorted((ROOT / "docs").glob("*.*")):
        source = f"docs/{path.name}"
        if path.suffix in (".md", ".svg") and source not in found:
            found[source] = path.name
    for folder in ("src", "kernels", "emulator", "integrations", "bench", "tools"):
        for path in sorted((ROOT / folder).rglob("README.md")):
            source = path.relative_to(ROOT).as_posix()
            found[source] = "modules/" + source.removesuffix("/README.md").replace("/", "_") + ".md"
    return found


def with_links(text, source, known):
    """Links of one page, led to the copies."""
    here = PurePosixPath(source).parent

    def lead(match):
        picture, words, target, anchor = match.group(1), match.group(2), match.group(3), match.group(4) or ""
        if not target or re.match(r"[a-z]+:", target):
            return match.group(0)
        to = os.path.normpath(here / target)
        if f"{to}/README.md" in known:
            to = f"{to}/README.md"
        if to not in known:
            return words
        path = os.path.relpath(known[to], PurePosixPath(known[source]).parent)
        return f"{picture}[{words}]({path}{anchor})"

    return LINK.sub(lead, text)


def main():
    to = Path(sys.argv[1])
    known = pages()
    for source, name in known.items():
        target = to / "pages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(with_links(text, source, known), encoding="utf-8")
        else:
            shutil.copy(ROOT / source, target)
    (to / "pages/python_reference.md").write_text(PYTHON, encoding="utf-8")
    modules = ", ".join(name for name in known.values() if name.startswith("modules/"))
    package = (ROOT / "integrations/tensorflow/python").as_posix()
    settings = SETTINGS.replace("MODULES", modules).replace("PACKAGE", package)
    (to / "mkdocs.yml").write_text(settings, encoding="utf-8")


if __name__ == "__main__":
    main()
