"""All commands of `farshore`, as its own tree has them."""

from __future__ import annotations

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
    found: dict[tuple[str, ...], click.Command] = {}
    for name in COMMANDS:
        command = command_of(name)
        if isinstance(command, click.Group):
            found |= {(name, verb): each for verb, each in command.commands.items()}
        else:
            found[name,] = command
    return found
