"""README and docs name only paths, pages, settings and commands that exist, and commands that tests run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from deploy.cli.root import cli, config_option_first
from deploy.config import parse
from tests.deploy.cli.commands import leaves
from tests.deploy.test_readme import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PATH = re.compile(r"`((?:broker|mirror|failover|monitoring|chaos|deploy|tests|docs|\.ci)/[\w./-]*)`")
MAKE_TARGET = re.compile(r"^make ([\w-]+)|`make ([\w-]+)[`\s]", re.MULTILINE)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)")
TYPED = {"README.md", "tutorial-cluster.md"}
"""Whose console blocks are typed by tests, line after line."""
SITE_COMMANDS = {("site", verb) for verb in ("role", "freeze", "standby", "thaw")}
OPERATION_COMMANDS = {("operation", verb) for verb in ("list", "show", "wait", "resume", "abort")} | {("apply",)}
FLEET_COMMANDS = {("fleet", verb) for verb in ("status", "drain", "rebalance")}
WAY_BACK = {("failback",), *(("stranded", verb) for verb in ("export", "leave", "replay"))}
PAUSES = {("topic", "pause"), ("topic", "resume")}
CUTS = {("link", "cut"), ("link", "rights")}
OF_ACLS = {("acls", verb) for verb in ("plan", "apply", "users")}
OF_MOVES = SITE_COMMANDS | OPERATION_COMMANDS | WAY_BACK
OF_AUDITS = {("audit", verb) for verb in ("list", "show", "diff", "watch", "freeze", "digest", "compare", "repair")}
OF_LINKS = PAUSES | CUTS
RUN_ELSEWHERE = {("broker", "user"), ("cluster", "start"), ("demo",), *FLEET_COMMANDS, *OF_MOVES, *OF_AUDITS, *OF_LINKS}
RUN_ELSEWHERE |= OF_ACLS
"""By the command's own tests; by the fleet's, which have an etcd; by the tutorial's; by those of the demo, roles,
moves, the way back, pauses, cuts, rights, and ACLs."""


def named_paths() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for match in PATH.finditer(document.read_text()):
            yield document.name, match.group(1)


def named_commands() -> Iterator[tuple[str, str]]:
    """What stands in backticks, and what is to be typed."""
    for document in DOCUMENTS:
        text = document.read_text()
        typed = [line for form, block in FENCED.findall(text) if form != "text" for line in block.splitlines()]
        inline = re.findall(r"`([^`]+)`", FENCED.sub("", text).replace("\n", " "))
        for words in (*inline, *(line.removeprefix("$ ") for line in typed)):
            if words.startswith("farshore "):
                yield document.name, words


def leaf_of(words: str) -> tuple[tuple[str, ...], list[str]]:
    """The command that the words name, () where they name a group or the root alone, and their options."""
    spoken = [word for word in re.split(r"\s+[;&|>]|;", words)[0].split("  #")[0].split() if word]
    arguments = config_option_first(shlex.split(" ".join(spoken))[1:])
    if arguments[:1] == ["--config"]:
        arguments = arguments[2:]
    options = [argument.split("=")[0] for argument in arguments if argument.startswith("-")]
    for length in (1, 2, 3):
        if (leaf := tuple(arguments[:length])) in leaves():
            return leaf, options
    return (), options


@pytest.mark.parametrize(("document", "path"), sorted(set(named_paths())))
def test_a_path_that_a_document_names_exists(document: str, path: str) -> None:
    assert (ROOT / path).exists(), f"{document} names {path}"


@pytest.mark.parametrize(("document", "words"), sorted(set(named_commands())))
def test_a_command_that_a_document_names_exists_with_its_options_and_is_run_by_a_test(
    document: str, words: str
) -> None:
    leaf, options = leaf_of(words)
    if not leaf:
        group = words.split()[1]
        known = cli.list_commands(click.Context(cli))
        assert group in known or group in ("COMMAND", "--help"), f"{document} names {words}"
        assert len(words.split()) == 2 or group == "COMMAND", f"{document} names {words}"
        return
    known_options = {name for param in leaves()[leaf].params for name in param.opts} | {"--help", "--config"}
    assert set(options) <= known_options, f"{document} names {words}"
    assert leaf in RUN_ELSEWHERE | {leaf_of(command)[0] for command in COMMANDS}, f"no test runs {words}"


def test_what_is_to_be_typed_stands_where_a_test_types_it() -> None:
    asked = {document.name for document in DOCUMENTS if re.search(r"^\$ ", document.read_text(), re.MULTILINE)}
    assert asked == TYPED


def test_a_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for alone, amid in MAKE_TARGET.findall(document.read_text()):
            target = alone or amid
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names make {target}"


def test_a_page_that_a_document_links_to_is_there_with_its_heading() -> None:
    for document in DOCUMENTS:
        for page, heading in LINK.findall(document.read_text()):
            if page.startswith("http"):
                continue
            target = document.parent / page if page else document
            assert target.exists(), f"{document.name} links to {page}"
            lines = target.read_text().splitlines() if heading else []
            slugs = {
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in lines if line[:1] == "#"
            }
            assert not heading or heading in slugs, f"{document.name} links to {page}#{heading}"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


def test_what_a_document_shows_of_the_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """With the properties that it shows beside it."""
    for document in DOCUMENTS:
        shown = ""
        blocks = FENCED.findall(document.read_text())
        for form, block in blocks:
            if form == "properties":
                (tmp_path / "client.properties").write_text(block)
        for form, block in blocks:
            if form == "toml":
                shown = block if "[sites." in block else shown + block
                parse(shown, tmp_path / "farshore.toml")


def test_the_manners_name_each_command_that_asks_and_each_change_that_does_not() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    asks, silent = (
        {tuple(words.split()) for words in re.findall(r"`([a-z ]+)`", part)}
        for part in re.findall(r"^- What (?:can lose|loses nothing)(.*?)(?=^- )", text, re.MULTILINE | re.DOTALL)
    )
    options = {leaf: {name for param in command.params for name in param.opts} for leaf, command in leaves().items()}
    assert asks == {leaf for leaf, names in options.items() if "--yes" in names}
    assert {leaf for leaf in asks if "--dry-run" not in options[leaf]} == set()
    assert silent - asks == {
        ("topic", "create"),
        ("topic", "pause"),
        ("topic", "resume"),
        ("link", "pause"),
        ("link", "restart"),
        ("canary", "run"),
        ("chaos", "run"),
    }
