"""The `farshore` command: finds each command in its folder when it is called, and hands it the configuration file.

Nothing heavy is imported before the command is known, so that `farshore --help` answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click


class CommandPlace(NamedTuple):
    """Where a command lives, and its line in `farshore --help`."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, CommandPlace] = {
    "demo": CommandPlace("deploy.cli.demo", "demo", "Show everything on two local sites with real data."),
    "config": CommandPlace("deploy.cli.config", "config_group", "Validate the configuration file; show all of it."),
    "broker": CommandPlace("deploy.cli.broker", "broker", "Run a broker; the passwords of a user."),
    "mirror": CommandPlace("deploy.cli.mirror", "mirror_group", "Run the mirror."),
    "fleet": CommandPlace("deploy.cli.fleet", "fleet_group", "Status, plan, drain, undrain and rebalance of workers."),
    "status": CommandPlace("deploy.cli.status", "status", "Show links, lag and what needs a decision."),
    "cluster": CommandPlace(
        "deploy.cli.cluster",
        "cluster_group",
        "Start a local cluster; describe and verify a site's brokers.",
    ),
    "site": CommandPlace("deploy.cli.site_roles", "site_group", "Role, freeze, thaw and standby: who takes writes."),
    "topic": CommandPlace("deploy.cli.topic", "topic_group", "List, create, describe, delete, pause, resume topics."),
    "link": CommandPlace(
        "deploy.cli.link", "link_group", "List, describe, pause, resume, restart, retry, cut; rights."
    ),
    "acls": CommandPlace("deploy.cli.acls", "acls_group", "Plan, apply: a link's ACLs at its target; users it lacks."),
    "offsets": CommandPlace("deploy.cli.offsets", "offsets_group", "Translate offsets between sites."),
    "group": CommandPlace("deploy.cli.group", "group_group", "List and describe consumer groups."),
    "switchover": CommandPlace(
        "deploy.cli.failover", "switchover", "Move to the other site, both alive; lose nothing."
    ),
    "failover": CommandPlace(
        "deploy.cli.failover", "failover", "Move to the other site, the source lost; states the loss."
    ),
    "failback": CommandPlace("deploy.cli.failback", "failback", "Come back to the site that was lost."),
    "stranded": CommandPlace(
        "deploy.cli.stranded", "stranded_group", "List, export, leave, replay what a lost site has alone."
    ),
    "apply": CommandPlace("deploy.cli.apply", "apply", "Carry out a plan that --out wrote, if it still holds."),
    "operation": CommandPlace(
        "deploy.cli.operation", "operation_group", "List, show, wait, resume, abort: switchover, failover, failback."
    ),
    "drill": CommandPlace("deploy.cli.drill", "drill", "Say what a failover would find if the source died now."),
    "canary": CommandPlace("deploy.cli.canary", "canary_group", "Send probe records through a link."),
    "monitor": CommandPlace("deploy.cli.monitor", "monitor_group", "Serve metrics to Prometheus."),
    "audit": CommandPlace(
        "deploy.cli.audit", "audit_group", "Compare: run, watch; freeze, digest; list, show, diff; repair."
    ),
    "chaos": CommandPlace("deploy.cli.chaos", "chaos_group", "Run faults on purpose, check the promises, clean up."),
}


_ARGUMENTS: Final = "farshore.arguments"
"""In what click keeps for a command: all its words, as they were typed."""


class FarshoreGroup(click.Group):
    """The root group: loads commands by name, takes `--config FILE` before and behind them, tells errors in a line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place.module), place.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        try:
            return super().parse_args(ctx, config_option_first(args))
        except click.UsageError as error:
            raise fitted(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        from deploy.cli.terminal import ExitCode, note_asked_output, tell_error, told

        try:
            with told():
                note_asked_output(ctx, ctx.meta[_ARGUMENTS])
                refuse_empty(ctx.meta[_ARGUMENTS])
                return super().invoke(ctx)
        except click.ClickException as error:
            tell_error(ctx, error)
            raise fitted(error) from None
        except KeyboardInterrupt:  # before a command has its own way to stop: while it is imported
            raise SystemExit(ExitCode.INTERRUPTED) from None


def fitted(error: click.ClickException) -> click.ClickException:
    """A wrong use in lines that fit a terminal, where it goes to one; any other error, and a help text, as it is."""
    from deploy.cli.lines import filled_for_people

    if not isinstance(error, click.UsageError) or type(error).show is not click.UsageError.show:
        return error
    head = "Error: "
    return click.UsageError(filled_for_people(head + error.format_message()).removeprefix(head), error.ctx)


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise click.UsageError for an empty value, also of an argument: no command has a meaning for one, a path of no
    letters is the current folder, and a variable that a script did not set is no wish for what is the default.
    """
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, value = argument.partition("=")
        if name.startswith("--") and equals and not value:
            raise click.UsageError(f"{name} is empty: give a value, or leave it out")
        if not argument:
            what = before if before.startswith("-") and before != "--" else "an argument"
            raise click.UsageError(f"{what} is empty: give a value, or leave it out")


def config_option_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--config FILE` moved to the front, wherever it stands.

    `topic create` has a `--config NAME=VALUE` of Kafka's own: a value with `=` in it stays where it is. So does,
    behind those two words, one that does not look like a file's name: its `=VALUE` was forgotten.
    """
    front: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            rest += [argument, *waiting]
            break
        if argument == "--config" and waiting and _names_a_file(waiting[0], rest):
            front += [argument, waiting.pop(0)]
        elif argument.startswith("--config=") and _names_a_file(argument.removeprefix("--config="), rest):
            front.append(argument)
        else:
            rest.append(argument)
    return front + rest


def _names_a_file(value: str, before: Sequence[str]) -> bool:
    """Whether a `--config` value behind the words `before` is meant as a file."""
    if "=" in value:
        return False
    return list(before[:2]) != ["topic", "create"] or value.endswith(".toml") or "/" in value


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"farshore {version('farshore')}")
    ctx.exit()


@click.group(cls=FarshoreGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("farshore.toml"),
    show_default="./farshore.toml",
    metavar="FILE",
    help="The configuration file; also taken behind the command.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
@click.pass_context
def cli(ctx: click.Context, config_file: Path) -> None:
    """Keep Kafka clusters in different datacenters mirrored, prove it, and move between them."""
    from deploy.config import FileContext

    ctx.obj = FileContext(config_file)
    if config_file.is_file() and ctx.invoked_subcommand in ("monitor", "audit") and not _asks_for_help():
        ctx.default_map = ctx.obj.configuration.option_defaults()


def _asks_for_help() -> bool:
    return any(argument in ("-h", "--help") for argument in sys.argv)


def main() -> None:
    """Entry point of the `farshore` command and of `python -m deploy.cli`."""
    from deploy.cli.streams import outlive_readers

    outlive_readers()
    # Passwords and records are in memory. What a command starts, as Spark, has the same limit, and may raise it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    cli(prog_name="farshore")
