"""What `farshore audit run` and `farshore audit watch` ask alike: how to reach Spark, and where results go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click

from deploy.cli.terminal import AppContext, audit_directory
from monitoring.audit.run import AuditRequest

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
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def request_of(
    context: AppContext,
    link_name: str | None,
    *,
    master: str,
    jars: tuple[str, ...],
    packages: tuple[str, ...],
    options: dict[str, str],
    driver_memory: str | None,
    output_dir: Path | None,
) -> AuditRequest:
    """All of the link, from where its proof ends."""
    return AuditRequest(
        link=context.link(link_name),
        master=master,
        jars=_names(jars),
        packages=_names(packages),
        options=options | ({} if driver_memory is None else {"spark.driver.memory": driver_memory}),
        directory=(output_dir or audit_directory(context)).resolve(),
    )


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


_OPTIONS = (
    click.option("--master", default="local[*]", show_default=True, help="Spark master."),
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
    click.option(
        "--output-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the Parquet tables and the report go; by default audit/ in the state folder.",
    ),
)
