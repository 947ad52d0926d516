"""`farshore cluster`: the brokers of one site, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from broker.base.clock import SystemClock
from broker.client.cluster_description import (
    ClusterFinding,
    ClusterFindingKind,
    ClusterLook,
    controllers_told,
    describe_brokers,
    describe_cluster,
    look_from_each,
)
from broker.client.cluster_verification import settled_look, verify_cluster
from broker.cluster.zookeeper.access import UNLOCKED, ZooKeeperAccess
from broker.cluster.zookeeper.errors import ZooKeeperUnreachable
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from deploy.cli.lines import filled_for_people, with_command
from deploy.cli.site import run_at_site, site_option
from deploy.cli.tables import counted
from deploy.cli.terminal import AppContext, ExitCode, Output, emit, output_option, run_async
from deploy.local.cluster import (
    BASE_PORT,
    BROKERS,
    SITE,
    LocalCluster,
    RunningBroker,
    Wanted,
    cluster_in,
    run_cluster,
)
from deploy.tools.zookeeper import CLIENT_PORT

PORT = click.IntRange(1, 65535)
SESSION_MS = 10_000
ZOOKEEPER_MS = 5_000
"""How long it may take to answer a session's first request."""


@click.group("cluster")
def cluster_group() -> None:
    """The brokers of a site: describe, verify; start a cluster on this machine."""


@cluster_group.command("start")
@click.option("--brokers", type=click.IntRange(1, 9), help=f"How many, with the node ids 1, 2, ... [{BROKERS}]")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("farshore-cluster"),
    show_default=True,
    help="Where everything is kept: farshore.toml, data, logs.",
)
@click.option("--base-port", type=PORT, help=f"Of the first broker; the others follow. [{BASE_PORT}]")
@click.option("--zookeeper-port", type=PORT, help=f"[{CLIENT_PORT}]")
@output_option
def start_command(
    brokers: int | None, folder: Path, base_port: int | None, zookeeper_port: int | None, output: str
) -> None:
    """Run a cluster on this machine, with a ZooKeeper of its own, in the foreground until Ctrl-C.

    Started again in the same folder it goes on with what it had. A broker that ends by itself is told with the command
    that starts it again; the others go on.
    """
    cluster = cluster_in(folder, Wanted(brokers, base_port, zookeeper_port))

    def ready(running: Sequence[RunningBroker], lacking: Sequence[str]) -> None:
        emit(list(running), output)
        for line in _told_when_ready(cluster, lacking):
            click.echo(line, err=True)

    run_async(run_cluster(cluster, lambda line: click.echo(filled_for_people(line), err=True), ready), service=True)


def _told_when_ready(cluster: LocalCluster, lacking: Sequence[str]) -> list[str]:
    missing = [filled_for_people(f"the cluster is not whole: {each}") for each in lacking]
    return [
        *(missing or ["the cluster is whole"]),
        f"bootstrap servers: {cluster.bootstrap_servers}",
        f"ZooKeeper: {cluster.zookeeper}",
        with_command("in another terminal", f"farshore --config {cluster.file} cluster describe --site {SITE}"),
        filled_for_people(f"Ctrl-C stops it; what it has stays in {cluster.folder}"),
    ]


@cluster_group.command("describe")
@site_option
@output_option
@click.pass_obj
def describe_command(context: AppContext, site_name: str, output: str) -> None:
    """Describe a cluster in numbers: brokers, topics, partitions that lack a leader or replicas in sync."""
    emit(describe_cluster(_look(context, site_name)), output)


@cluster_group.command("brokers")
@site_option
@output_option
@click.pass_obj
def brokers_command(context: AppContext, site_name: str, output: str) -> None:
    """List the brokers: address, rack, what each leads and has, and whether it answers.

    Exit code 4 when one of the file, or one that has replicas, is not there or does not answer.
    """
    node_ids = context.node_ids(site_name)
    kinds = (ClusterFindingKind.BROKER_MISSING, ClusterFindingKind.BROKER_SILENT)
    look, findings = run_at_site(context.site(site_name), partial(settled_look, node_ids=node_ids, kinds=kinds))
    emit(describe_brokers(look, node_ids), output)
    _end_with(findings)


@cluster_group.command("controller")
@site_option
@output_option
@click.pass_obj
def controller_command(context: AppContext, site_name: str, output: str) -> None:
    """Show whom each broker calls the controller. A KRaft cluster does not tell.

    Exit code 4 when there is none, brokers tell different ones, or one does not answer.
    """
    kind = ClusterFindingKind
    kinds = (kind.NO_CONTROLLER, kind.CONTROLLERS_DIFFER, kind.BROKER_SILENT)
    look, findings = run_at_site(context.site(site_name), partial(settled_look, node_ids=(), kinds=kinds))
    emit(controllers_told(look), output)
    if look.is_kraft:
        click.echo("the controller is not known: brokers of a KRaft cluster name any broker", err=True)
    _end_with(findings)


@cluster_group.command("verify")
@site_option
@output_option
@click.pass_obj
def verify_command(context: AppContext, site_name: str, output: str) -> None:
    """Check that ZooKeeper and every broker of the file are there, all brokers answer and tell the same, every
    partition has a leader that answers, every replica is in sync, no broker has others, or records that it set aside,
    and no topic is still throttled when its partitions have moved.

    What is found is looked for again two seconds later, and told if it is still there; where something else is found,
    once more. Exit code 4 when anything is found. Topics on disks that may not be described are passed over, and
    counted.
    """
    verify = partial(verify_cluster, node_ids=context.node_ids(site_name))
    site, zookeeper = context.site(site_name), context.zookeeper(site_name)
    missing = None if zookeeper is None else run_async(_zookeeper_of(context, site_name, zookeeper))
    verified = run_at_site(site, verify)
    findings = [*([missing] if missing else []), *verified.findings]
    show_findings(findings, output, verified.topics_passed_over)
    raise SystemExit(ExitCode.FINDINGS if findings else ExitCode.DONE)


async def _zookeeper_of(context: AppContext, site_name: str, servers: str) -> ClusterFinding | None:
    return await missing_zookeeper(servers, access=context.zookeeper_access(site_name) or UNLOCKED)


async def missing_zookeeper(
    servers: str, connect_ms: int = ZOOKEEPER_MS, access: ZooKeeperAccess = UNLOCKED
) -> ClusterFinding | None:
    """None: it answers."""
    hosts = servers.partition("/")[0]
    try:
        session = await KazooZooKeeper.connect(hosts, SESSION_MS, SystemClock(), connect_ms, access)
    except ZooKeeperUnreachable as error:
        detail = f"{error}; brokers that have none either lead nothing: start it, they go on by themselves"
        return ClusterFinding(ClusterFindingKind.ZOOKEEPER_UNREACHABLE, None, None, None, detail)
    await session.close()
    return None


def show_findings(findings: Sequence[ClusterFinding], output: str, topics_passed_over: int = 0) -> None:
    if output != Output.TABLE:
        emit({"items": list(findings), "topics_passed_over": topics_passed_over}, output)
    elif findings:
        emit(list(findings), output)
    if topics_passed_over:
        what = "whose replicas are passed over: DESCRIBE on them is missing, or nobody has them any more"
        click.echo(filled_for_people(f"{counted(topics_passed_over, 'topic')} on disks, {what}"), err=True)
    said = (
        counted(len(findings), "finding") if findings else "every broker answers and agrees, every replica is in sync"
    )
    click.echo(said, err=True)


def _end_with(findings: Sequence[ClusterFinding]) -> None:
    """Beside the data that was asked for; with nothing found, the command goes on to its end."""
    for each in findings:
        whose = "" if each.broker is None else f" broker {each.broker}:"
        click.echo(filled_for_people(f"{each.kind.value}:{whose} {each.detail}"), err=True)
    if findings:
        raise SystemExit(ExitCode.FINDINGS)


def _look(context: AppContext, site_name: str) -> ClusterLook:
    return run_at_site(context.site(site_name), look_from_each)
