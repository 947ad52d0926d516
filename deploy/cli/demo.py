"""`farshore demo`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from deploy.cli.terminal import run_async
from deploy.demo.story import tell


@click.command()
@click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("farshore-demo.html"),
    show_default=True,
    help="Where the report is written.",
)
@click.option(
    "--brokers",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="Of each site; three of them meet in a ZooKeeper, and each site loses one in mid-write.",
)
@click.option(
    "--workers",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="That mirror; three of them share their links through an etcd, and one is killed in the middle.",
)
@click.option(
    "--secure",
    "is_locked",
    is_flag=True,
    help="Both sites are reached by SASL_SSL alone: everything comes by TLS and a login, made for this run.",
)
def demo(report_path: Path, brokers: str, workers: str, is_locked: bool) -> None:
    """Two sites on this machine, real flights, a switchover, a lost site, a Spark audit, one HTML report.

    Takes about two minutes, with three brokers at each site or three workers three. Nothing is left behind but the
    report, also after Ctrl-C.
    """
    if not os.access(report_path.resolve().parent, os.W_OK):
        raise click.BadParameter(f"nothing can be written to {report_path.resolve().parent}", param_hint="--report")
    run_async(tell(report_path, int(brokers), int(workers), is_locked))
