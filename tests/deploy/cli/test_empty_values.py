"""An empty value is no value: a script whose variable is empty means something else than the default."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from deploy.cli.root import cli
from tests.deploy.cli.commands import leaves

TAKEN = [
    (*words, max(option.opts, key=len))
    for words, command in leaves().items()
    for option in command.params
    if isinstance(option, click.Option) and not (option.is_flag or option.count)
]
ARGUMENTS = [
    words
    for words, command in leaves().items()
    if any(isinstance(argument, click.Argument) for argument in command.params)
]


@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
def test_no_option_takes_an_empty_value(words: tuple[str, ...]) -> None:
    """`failback --export-to ''` saved to the folder that the command was typed in, `drill --link ''` took all links."""
    *command, option = words  # with --help nothing is run that is let through
    for given in ([*command, option, "", "--help"], [*command, f"{option}=", "--help"]):
        ended = CliRunner().invoke(cli, given)
        assert ended.exit_code == 2, given
        assert f"{option} is empty" in ended.output


@pytest.mark.parametrize("words", ARGUMENTS, ids=" ".join)
def test_no_argument_is_empty(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(cli, [*words, "", "--help"])
    assert (ended.exit_code, "an argument is empty" in ended.output) == (2, True)


def test_what_is_not_empty_goes_on() -> None:
    for given in (["failback", "--help"], ["operation", "show", "--help"], ["topic", "create", "--config", "a=", "-h"]):
        assert CliRunner().invoke(cli, given).exit_code == 0
