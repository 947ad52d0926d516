"""`farshore topic`: topics of one site."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from deploy.cli.terminal import AppContext, confirm_plan, emit, output_option, run_async

if TYPE_CHECKING:
    from broker.client.cluster import Cluster
    from broker.client.errors import KafkaError
    from broker.client.model import Topic
    from broker.client.site import Site
    from broker.client.topics import NewTopic

site_option = click.option("--site", "site_name", required=True, metavar="SITE", help="The site, as in farshore.toml.")


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list."""

    topic: str
    partitions: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its offsets; they are None while it has no leader."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; `configs` are those that were set on it."""

    topic: str
    topic_id: str | None
    replication_factor: int
    configs: Mapping[str, str | None]
    partitions: tuple[PartitionRow, ...] = field(default_factory=tuple)


@click.group("topic")
def topic_group() -> None:
    """Topics of a site: list, create, describe, delete."""


@topic_group.command("list")
@site_option
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics and farshore's own.")
@output_option
@click.pass_obj
def list_command(context: AppContext, site_name: str, exclude_internal: bool, output: str) -> None:
    """List a site's topics."""

    async def rows(cluster: Cluster) -> list[TopicRow]:
        from broker.client.topics import list_topics

        return [
            TopicRow(name, len(topic.partitions), topic.replication_factor, topic.is_internal)
            for name, topic in sorted((await list_topics(cluster)).items())
            if not exclude_internal or not (topic.is_internal or name.startswith("__"))
        ]

    emit(run_async(_at_site(context.site(site_name), rows)), output)


@topic_group.command("create")
@site_option
@click.option("--topic", required=True, help="Its name.")
@click.option("--partitions", type=click.IntRange(1), help="Partition count (default: the cluster's).")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Replicas (default: the cluster's).")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic config; may be given again.")
@click.option("--if-not-exists", is_flag=True, help="A topic of that name is no error.")
@click.pass_obj
def create_command(
    context: AppContext,
    site_name: str,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
) -> None:
    """Create a topic and wait until it can be used."""
    from broker.client.topics import NewTopic
    from broker.wire.vocabulary import BROKER_DEFAULT

    wanted = NewTopic(
        topic, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, _parse_configs(configs)
    )
    run_async(_at_site(context.site(site_name), lambda cluster: _create(cluster, wanted, if_not_exists)))
    click.echo(f"topic {topic} is there", err=True)


@topic_group.command("describe")
@site_option
@click.option("--topic", required=True, help="Its name.")
@output_option
@click.pass_obj
def describe_command(context: AppContext, site_name: str, topic: str, output: str) -> None:
    """Describe a topic: partitions, leaders, offsets, its own configs."""
    emit(run_async(_at_site(context.site(site_name), lambda cluster: _describe(cluster, topic))), output)


@topic_group.command("delete")
@site_option
@click.option("--topic", "topics", multiple=True, required=True, help="Its name; may be given again.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and change nothing.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_obj
def delete_command(context: AppContext, site_name: str, topics: Sequence[str], dry_run: bool, yes: bool) -> None:
    """Delete topics with all their records. Shows what they hold, then asks."""
    site = context.site(site_name)
    plan = run_async(_at_site(site, lambda cluster: _deletion_plan(cluster, topics)))
    if dry_run:
        emit(plan, "table", title="would be deleted")
        return
    confirm_plan(plan, yes, question=f"Delete {len(plan)} topics at {site_name} with all their records?")

    async def delete(cluster: Cluster) -> None:
        from broker.client.topics import delete_topics

        _raise_first(await delete_topics(cluster, topics))

    run_async(_at_site(site, delete))


async def _at_site(site: Site, job: Any) -> Any:
    """Run `job(cluster)` with a connected cluster."""
    from broker.client.cluster import Cluster

    async with Cluster(site, client_id="farshore-cli") as cluster:
        outcome: Coroutine[Any, Any, Any] = job(cluster)
        return await outcome


async def _create(cluster: Cluster, topic: NewTopic, if_not_exists: bool) -> None:
    from broker.client.topics import create_topics
    from broker.wire.errors import ErrorCode

    failures = await create_topics(cluster, [topic])
    if if_not_exists:
        failures = {n: e for n, e in failures.items() if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS}
    _raise_first(failures)


async def _describe(cluster: Cluster, name: str) -> TopicDescription:
    from broker.client.configs import describe_topic_configs
    from broker.client.errors import KafkaError

    topic = (await _existing(cluster, [name]))[name]
    configs = (await describe_topic_configs(cluster, [name]))[name]
    if isinstance(configs, KafkaError):
        raise configs
    offsets = await _offsets(cluster, topic)
    partitions = tuple(
        PartitionRow(p.partition, p.leader_id, p.replicas, p.isr, *offsets.get(p.partition, (None, None)))
        for p in topic.partitions
    )
    own = {entry.name: entry.value for entry in configs.values() if entry.is_topic_own}
    topic_id = None if topic.topic_id is None else str(topic.topic_id)
    return TopicDescription(name, topic_id, topic.replication_factor, own, partitions)


async def _deletion_plan(cluster: Cluster, names: Sequence[str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, topic in (await _existing(cluster, names)).items():
        offsets = (await _offsets(cluster, topic)).values()
        rows.append({"topic": name, "partitions": len(topic.partitions), "offsets": sum(e - s for s, e in offsets)})
    return rows


async def _existing(cluster: Cluster, names: Sequence[str]) -> dict[str, Topic]:
    """These topics; raises KafkaError for one that is not there."""
    from broker.client.errors import KafkaError
    from broker.client.topics import describe_topics
    from broker.wire.errors import ErrorCode

    found = await describe_topics(cluster, names)
    for name in names:
        if name not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} at {cluster.site.name}")
    return found


async def _offsets(cluster: Cluster, topic: Topic) -> dict[int, tuple[int, int]]:
    """Partition -> (log start, log end), for the partitions that have a leader."""
    from broker.client.offsets import log_end_offsets, log_start_offsets
    from broker.wire.vocabulary import NO_LEADER, TopicPartition

    led = [TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader_id != NO_LEADER]
    starts, ends = await log_start_offsets(cluster, led), await log_end_offsets(cluster, led)
    return {where.partition: (starts[where], ends[where]) for where in led}


def _parse_configs(texts: Sequence[str]) -> dict[str, str]:
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--config")
        configs[name] = value
    return configs


def _raise_first(failures: Mapping[str, KafkaError]) -> None:
    for error in failures.values():
        raise error
