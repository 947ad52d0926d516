"""The manners of every command: output formats, plans and consent, exit codes, running asyncio under signals.

Data goes to stdout; progress, plans, prompts and errors go to stderr. In JSON and YAML there is one document with
`schema_version`; times are ISO-8601 in UTC, durations seconds, sizes bytes. Field names carry the unit of the value in
the program, and the document's names follow it: a field `..._at_ms` or `..._timestamp_ms` becomes the same name without
`_ms` and a time, any other `..._ms` becomes `..._seconds`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
import uvloop
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.base.address import Address
from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.base.garbage import passing_over_what_stays
from broker.client.site import Site
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.http.settings import FaceSettings
from deploy.cli.lines import filled_for_people
from deploy.cli.principals import told_principals
from deploy.cli.refusals import NO_CONSENT, refusals_of
from deploy.cli.streams import is_gone
from deploy.cli.tables import print_table
from deploy.errors import ConfigError
from failover.errors import GateRefused
from failover.freezing.hooks import Hooks
from failover.planning.gates import GateRefusal
from mirror.fleet.settings import FleetAccess
from mirror.link import Link

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SCHEMA_VERSION: Final = 1
SYSTEM_HINT: Final = "the operating system refused this: check the disk's room, permissions and limits"
CANCEL_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The last one where the terminal goes away; it stays ignored where it is, as nohup has it."""
_OUTPUT: Final = "farshore.output"
_IS_TOLD: Final = "farshore.is_told"
"""In what click keeps for a command: the form that was asked for, and whether a document went out."""


LINK_HELP = "The link's name; not needed when there is only one."


class ExitCode(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    FINDINGS = 4
    TIMED_OUT = 5
    INTERRUPTED = 130


class Output(StrEnum):
    """The forms in which data is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class AppContext(Protocol):
    """What commands get as `ctx.obj`: the configuration file, read."""

    @property
    def state_dir(self) -> Path:
        """Where audit results are kept."""
        ...

    def site(self, name: str) -> Site:
        """Raises click.UsageError that names the known sites."""
        ...

    def sites(self) -> Mapping[str, Site]: ...

    def security_text(self, site: str) -> str:
        """Its table of security, for a file in another folder."""
        ...

    def runs_brokers(self, site: str) -> bool:
        """Whether the site's brokers are farshore's own, by the file."""
        ...

    def node_ids(self, site: str) -> tuple[int, ...]:
        """Of the brokers that the file has for a cluster; none where somebody else runs it."""
        ...

    def zookeeper(self, site: str) -> str | None:
        """Where that cluster's metadata are, as `zookeeper` has it in the file."""
        ...

    def zookeeper_access(self, site: str) -> ZooKeeperAccess | None: ...

    def link(self, name: str | None) -> Link:
        """None: the only link. Raises click.UsageError that names the known links."""
        ...

    def links(self) -> tuple[Link, ...]: ...

    def monitor_face(self, listen: Address) -> FaceSettings:
        """To whom metrics of the links are shown there."""
        ...

    @property
    def file(self) -> Path:
        """What was read."""
        ...

    def fresh(self) -> AppContext:
        """The same file, as it is now."""
        ...

    def fleet(self) -> FleetAccess | None:
        """Where the workers of this file agree on who runs what; None: they know nothing of each other."""
        ...

    def hooks(self) -> Hooks:
        """What keeps a site's clients from writing where its brokers cannot."""
        ...


def audit_directory(context: AppContext) -> Path:
    """Where audits are kept, if nothing else is said."""
    return context.state_dir / "audit"


class CommandRefused(click.ClickException):
    """A command that ends with an explanation, a next step and an exit code; `refusals`: what said no, for programs."""

    def __init__(
        self, message: str, hint: str = "", exit_code: int = ExitCode.ERROR, refusals: Sequence[GateRefusal] = ()
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.refusals = tuple(refusals)
        self.exit_code = int(exit_code)  # type: ignore[misc]  # click types it as a class variable, and reads it from the instance

    def show(self, file: Any = None) -> None:
        click.echo(filled_for_people(f"error: {self.message}"), err=True)
        if self.hint:
            click.echo(filled_for_people(f"hint: {self.hint}"), err=True)


def is_one_place() -> bool:
    """Whether what goes to stdout is read where stderr is: one terminal, or one file of both."""
    try:
        return os.path.samestat(*(os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)))
    except (OSError, ValueError):  # closed, or none of the system's
        return False


def output_option(command: F) -> F:
    """Decorator: `-o table|json|yaml`, given to the command as `output`."""
    return click.option(
        *("-o", "--output"),
        type=click.Choice([form.value for form in Output]),
        default=Output.TABLE.value,
        show_default=True,
        is_eager=True,  # known, whatever is wrong with the others
        callback=_note_output,
        help="Form of the data.",
    )(command)


def _note_output(ctx: click.Context, _parameter: click.Parameter, output: str) -> str:
    ctx.meta[_OUTPUT] = output
    return output


def note_asked_output(context: click.Context, arguments: Sequence[str]) -> None:
    """Of a command whose words may be refused before its options are read."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        asked = argument if before in ("-o", "--output") else argument.partition("--output=")[2]
        if asked in set(Output):
            context.meta[_OUTPUT] = asked


def dry_run_option(shown: str) -> Callable[[F], F]:
    """Decorator: `--dry-run`, given to the command as `dry_run`; `shown` is what it shows instead of changing it."""
    return click.option("--dry-run", is_flag=True, help=f"Show {shown} and change nothing.")


def yes_option(command: F) -> F:
    """Decorator: `--yes`, given to the command as `yes`, for `confirm_plan`."""
    return click.option("--yes", is_flag=True, help="Go on without asking.")(command)


def emit(data: object, output: str, *, columns: Sequence[str] | None = None, title: str = "") -> None:
    """Print data on stdout.

    `data` is a dataclass, a pydantic model or a mapping, or a list of those. As JSON and YAML a list is the document's
    `items`. `columns` are the field names that a table shows, in this order (default: all that are plain values).
    """
    rows = isinstance(data, list | tuple) and not hasattr(data, "_fields")
    plain = to_document(data)
    if output == Output.TABLE:
        print_table(plain, columns, title)
        return
    document: dict[str, object] = {"schema_version": SCHEMA_VERSION}
    document |= {"items": plain} if rows else plain if isinstance(plain, dict) else {"value": plain}
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_IS_TOLD] = True
    if output == Output.YAML:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
        return
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def tell_error(context: click.Context, error: click.ClickException) -> None:
    """The command's end as a document, where one was asked for and none went out."""
    output = context.meta.get(_OUTPUT, Output.TABLE)
    if output == Output.TABLE or _IS_TOLD in context.meta:
        return
    refused = error if isinstance(error, CommandRefused) else CommandRefused(error.format_message())
    document = {
        "error": refused.message,
        "hint": refused.hint,
        "exit_code": int(error.exit_code),
        "refusals": refused.refusals,
    }
    with suppress(OSError):  # nobody reads it: the words on stderr and the exit code say it, too
        emit(document, output)


def confirm_plan(plan: object, yes: bool, *, question: str = "Go on?", columns: Sequence[str] | None = None) -> None:
    """Show a plan on stderr and get consent: `--yes`, or a yes on a terminal.

    Without a terminal and without `--yes`, and when the answer is no, it raises CommandRefused with exit code 3.
    """
    if isinstance(plan, str):
        click.echo(filled_for_people(plan), err=True)
    elif plan is not None:
        print_table(to_document(plan), columns, "", to_stderr=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandRefused(
            "nothing was changed: there is no terminal to ask on", "add --yes to go on", ExitCode.REFUSED, NO_CONSENT
        )
    if not _answers_yes(question):
        raise CommandRefused("nothing was changed: the answer was no", "", ExitCode.REFUSED, NO_CONSENT)


def _answers_yes(question: str) -> bool:
    """Ask on the terminal; the signals end the question, also where an event loop waits behind it."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _heeded()}
    try:
        answer = click.confirm(question, default=False, err=True)
        if is_gone(sys.stderr):
            text = "nothing was changed: nobody reads the plan and the question"
            raise CommandRefused(text, "add --yes to go on", ExitCode.REFUSED, NO_CONSENT)
        return answer
    except click.Abort as abort:
        click.echo(err=True)
        if isinstance(abort.__context__, EOFError):
            return False
        raise CommandRefused("nothing was changed: interrupted", "", ExitCode.INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress bars on stderr; silent when stderr is no terminal."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*shown, console=console, disable=not console.is_terminal) as bars:
        yield bars


def run_async(main: Coroutine[Any, Any, T], *, service: bool = False) -> T:
    """Run `main` on uvloop; `CANCEL_SIGNALS` cancel it, so that its `finally` blocks run.

    farshore's errors end the command with one line `error:` and one `hint:` on stderr and their exit code. Cancelled by
    a signal the exit code is 130, or 0 for a service, which is stopped that way.
    """
    looks = passing_over_what_stays(time.monotonic) if service else nullcontext()
    with told(), looks, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_with_signals(main, service))


async def _with_signals(main: Coroutine[Any, Any, T], service: bool) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    received: list[signal.Signals] = []

    def cancel(number: signal.Signals) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    heeded = _heeded()
    for number in heeded:
        loop.add_signal_handler(number, cancel, number)
    try:
        return await main
    except asyncio.CancelledError:
        if not received:
            raise
        raise SystemExit(ExitCode.DONE if service else ExitCode.INTERRUPTED) from None
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def _heeded() -> list[signal.Signals]:
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in CANCEL_SIGNALS if not (is_nohup and number is signal.SIGHUP)]


@contextmanager
def told() -> Iterator[None]:
    """Turn farshore's errors, and what the system refuses, into CommandRefused; others go on as the bugs they are."""
    try:
        yield
    except BaseExceptionGroup as group:
        errors = [error for error in _leaves(group) if not isinstance(error, asyncio.CancelledError)]
        if not errors or not all(_is_told(error) for error in errors):
            raise
        raise _refusal(errors) from group
    except Exception as error:  # only errors that say what to do next are told; the others are raised again
        if isinstance(error, click.ClickException) or not _is_told(error):
            raise
        raise _refusal([error]) from error


def _refusal(errors: Sequence[BaseException]) -> CommandRefused:
    first = errors[0]
    if isinstance(first, CommandRefused):
        return first
    message = "\nerror: ".join(dict.fromkeys(_words(error) for error in errors))
    if isinstance(first, OSError):
        hint = "try again; `farshore status` says how the sites are" if isinstance(first, TimeoutError) else SYSTEM_HINT
        return CommandRefused(message, hint)
    hint = first.hint if isinstance(first, FarshoreError) else ""
    context = click.get_current_context(silent=True)
    if context is not None and context.obj is not None and (who := told_principals(errors, context.obj.sites)):
        hint = f"{hint}; that is {who}"
    refusals = [refusal for error in errors if isinstance(error, GateRefused) for refusal in refusals_of(error)]
    return CommandRefused(message, hint, exit_code_of(first), refusals)


def exit_code_of(error: BaseException) -> ExitCode:
    """What a command that ends with this error exits with."""
    if isinstance(error, GateRefused):
        return ExitCode.REFUSED
    return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.ERROR


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.strerror:
        return str(error) or "timed out"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _is_told(error: BaseException) -> bool:
    """Whether the error is one of farshore's, or the system's own.

    A pipe that nobody reads any more is click's to end quietly.
    """
    if isinstance(error, OSError):
        return not isinstance(error, BrokenPipeError)
    return isinstance(error, FarshoreError | CommandRefused)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
