"""Options that the commands of an audit share, what is asked by them, and how they show that they go on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import click

from deploy.cli.parameters import Moment
from deploy.cli.terminal import AppContext, audit_directory, progress, run_async
from deploy.defaults import SPARK_MASTER
from monitoring.audit.parts import PartRequest
from monitoring.audit.run import AuditRequest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class SparkOptions(TypedDict):
    """As click gives them to a command with `spark_options`."""

    master: str
    jars: tuple[str, ...]
    packages: tuple[str, ...]
    options: dict[str, str]
    driver_memory: str | None
    output_dir: Path | None


def spark_options(command: F) -> F:
    """How Spark is run, and where results go."""
    command = output_folder(command)
    for option in reversed(_SPARK):
        command = option(command)
    return command


def batches_option(command: F) -> F:
    """Whether batches may prove records."""
    return click.option(
        "--batches/--no-batches",
        "may_stay_closed",
        default=None,
        help="Prove by batches, without opening them, what these prove; by default where Spark runs on this machine. "
        "Elsewhere its workers need farshore.",
    )(command)


def output_folder(command: F) -> F:
    """Where a run's files are written."""
    return click.option(
        "--output-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the Parquet tables and the report go; by default audit/ in the state folder.",
    )(command)


def scope_options(command: F) -> F:
    """What of a link is audited."""
    options: Sequence[Callable[[F], F]] = (
        click.option("--full", is_flag=True, help="Read all anew, also what earlier runs have proved."),
        click.option(
            "--topic", "topics", multiple=True, metavar="TOPIC", help="Read only this topic; as often as you like."
        ),
        click.option("--since", "since_ms", type=Moment(), help="Read only what is as new as this, by its time."),
        click.option(
            "--sample",
            "sample_percent",
            type=click.FloatRange(0, 100, min_open=True),
            metavar="PERCENT",
            help="Read so many of all ranges only, chosen by the run's name; that is never a proof of all.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def with_steps(title: str, deed: Callable[[Callable[[str], None]], Coroutine[Any, Any, T]]) -> T:
    """On a terminal in the bar, elsewhere as lines: an audit may take long, and silence looks like a fault."""
    with progress() as bars:
        task = bars.add_task(title, total=None)

        def show(step: str) -> None:
            bars.update(task, description=step)
            if bars.disable:
                click.echo(step, err=True)

        return run_async(deed(show))


def request_of(context: AppContext, link_name: str | None, **spark: Unpack[SparkOptions]) -> AuditRequest:
    """All of the link, from where its proof ends."""
    return AuditRequest(
        link=context.link(link_name),
        master=spark["master"],
        jars=_names(spark["jars"]),
        packages=_names(spark["packages"]),
        options=_with_memory(spark["options"], spark["driver_memory"]),
        directory=folder_of(context, spark["output_dir"]),
    )


def part_of(context: AppContext, run_id: str, digests: str | None, **spark: Unpack[SparkOptions]) -> PartRequest:
    """A part of a run that is planned. `digests` as in PartRequest."""
    return PartRequest(
        run_id,
        spark["master"],
        _names(spark["jars"]),
        folder_of(context, spark["output_dir"]),
        digests,
        _with_memory(spark["options"], spark["driver_memory"]),
        _names(spark["packages"]),
    )


def folder_of(context: AppContext, output_dir: Path | None) -> Path:
    """Where results go: absolute."""
    return (output_dir or audit_directory(context)).resolve()


def _with_memory(options: dict[str, str], driver_memory: str | None) -> dict[str, str]:
    return options | ({} if driver_memory is None else {"spark.driver.memory": driver_memory})


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for item in given for name in item.split(",") if name.strip())


def _settings(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for item in given:
        name, found, value = item.partition("=")
        if not found or not name.startswith("spark."):
            raise click.BadParameter(f"{item!r} is no setting of Spark; for example spark.executor.memory=4g")
        settings[name] = value
    return settings


_SPARK = (
    click.option("--master", default=SPARK_MASTER, show_default=True, help="Spark master."),
    click.option(
        "--jars",
        multiple=True,
        help="A jar of Spark's Kafka connector, or several with commas; by default Spark resolves it from Maven.",
    ),
    click.option("--packages", multiple=True, help="Maven coordinates of other jars, or several with commas."),
    click.option(
        "--conf",
        "options",
        multiple=True,
        callback=lambda _context, _option, values: _settings(values),
        help="A setting of Spark, NAME=VALUE; as often as you like.",
    ),
    click.option("--driver-memory", help="Memory of Spark's driver, for example 4g; in local mode that is all it has."),
)
