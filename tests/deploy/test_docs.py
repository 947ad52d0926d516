"""README and docs name only paths and commands that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PATH = re.compile(r"`((?:broker|mirror|failover|monitoring|chaos|deploy|tests|docs|\.ci)/[\w./-]*)`")
MAKE_TARGET = re.compile(r"^make ([\w-]+)", re.MULTILINE)


def named_paths() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for match in PATH.finditer(document.read_text()):
            yield document.name, match.group(1)


@pytest.mark.parametrize(("document", "path"), sorted(set(named_paths())))
def test_a_path_that_a_document_names_exists(document: str, path: str) -> None:
    assert (ROOT / path).exists(), f"{document} names {path}"


def test_a_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in MAKE_TARGET.findall(document.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names make {target}"
