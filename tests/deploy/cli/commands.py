"""All commands of `farshore`, as its own tree has them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import click

from deploy.cli.root import COMMANDS, cli


def command_of(name: str) -> click.Command:
    """One of the root's."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@cache
def leaves() -> dict[tuple[str, ...], click.Command]:
    """What can be run, by its words: ("topic", "create")."""
    return {words: leaf for name in COMMANDS for words, leaf in _leaves_of((name,), command_of(name))}


def _leaves_of(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for verb, each in command.commands.items():
        yield from _leaves_of((*words, verb), each)
