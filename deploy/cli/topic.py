"""`farshore topic`: topics of one site, and which of them a link mirrors no more of for now."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

import click

from broker.client.cluster import Cluster
from broker.client.topic_description import describe_topic, plan_topic_deletion, summarise_topics
from broker.client.topics import NewTopic, create_topic, delete_topics, list_topics
from broker.wire.vocabulary import BROKER_DEFAULT
from deploy.cli.both_sites import with_both_sites
from deploy.cli.link import link_option, refuse_where_nothing_runs
from deploy.cli.site import run_at_site, site_option
from deploy.cli.tables import counted
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
)
from mirror.link import Link
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.status import condition_of

source_topics_option = click.option(
    "--topic",
    "names",
    multiple=True,
    required=True,
    metavar="TOPIC[,...]",
    help="Its name at the link's source; several with commas between, or given again.",
)


@click.group("topic")
def topic_group() -> None:
    """Topics of a site: list, create, describe, delete. Of a link: pause, resume."""


@topic_group.command("list")
@site_option
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics and farshore's own.")
@output_option
@click.pass_obj
def list_command(context: AppContext, site_name: str, exclude_internal: bool, output: str) -> None:
    """List a site's topics."""
    site = context.site(site_name)
    emit(run_at_site(site, lambda cluster: summarise_topics(cluster, exclude_internal=exclude_internal)), output)


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
    wanted = NewTopic(
        topic, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, _parse_configs(configs)
    )
    site = context.site(site_name)
    run_at_site(site, lambda cluster: create_topic(cluster, wanted, if_not_exists=if_not_exists))
    click.echo(f"topic {topic} is there", err=True)


@topic_group.command("describe")
@site_option
@click.option("--topic", required=True, help="Its name.")
@output_option
@click.pass_obj
def describe_command(context: AppContext, site_name: str, topic: str, output: str) -> None:
    """Describe a topic: partitions, leaders, offsets, its own configs."""
    emit(run_at_site(context.site(site_name), lambda cluster: describe_topic(cluster, topic)), output)


@topic_group.command("delete")
@site_option
@click.option("--topic", "topics", multiple=True, required=True, help="Its name; may be given again.")
@dry_run_option("what would be deleted")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_obj
def delete_command(context: AppContext, site_name: str, topics: Sequence[str], dry_run: bool, yes: bool) -> None:
    """Delete topics with all their records. Shows what they hold, then asks."""
    site = context.site(site_name)
    plan = run_at_site(site, lambda cluster: plan_topic_deletion(cluster, topics))
    if dry_run:
        emit(plan, "table", title="would be deleted")
        return
    confirm_plan(plan, yes, question=f"Delete {counted(len(plan), 'topic')} at {site_name} with all records?")

    async def delete(cluster: Cluster) -> None:
        for error in (await delete_topics(cluster, topics)).values():
            raise error

    run_at_site(site, delete)
    click.echo(f"deleted: {', '.join(topics)}", err=True)


@topic_group.command("pause")
@link_option
@source_topics_option
@click.pass_obj
def pause_command(context: AppContext, link_name: str | None, names: Sequence[str]) -> None:
    """Mirror nothing more of these topics of a link until they are resumed; all others go on.

    Each keeps its place, and its lag grows. A running mirror notices within some seconds, wherever it runs.
    """
    link, topics = context.link(link_name), _split(names)
    run_async(with_both_sites(link, partial(_pause, link, topics)))
    text = f"link {link.name}: nothing more is mirrored of {', '.join(topics)}; to go on: "
    click.echo(f"{text}farshore topic resume --link {link.name} --topic {','.join(topics)}", err=True)


async def _pause(link: Link, topics: Sequence[str], source: Cluster | None, target: Cluster) -> None:
    entries = await read_entries(link, target)
    refuse_where_nothing_runs(link, condition_of(entries))
    there = _known(entries) | (set(await list_topics(source)) if source is not None else set())
    for topic in topics:
        if topic == link.canary_topic or not link.selects_topic(topic):
            text = f"link {link.name} mirrors no topic {topic}"
            raise CommandRefused(text, f"farshore link describe --link {link.name} shows those that it does")
        if topic not in there:
            text = f"{link.source.name} has no topic {topic}"
            if source is None:
                text = f"site {link.source.name} does not answer, and link {link.name} never mirrored a topic {topic}"
            raise CommandRefused(text, f"farshore topic list --site {link.source.name} has their names")
    await pause_topics(link, target, f"pause-{uuid.uuid4().hex[:12]}", topics)


@topic_group.command("resume")
@link_option
@source_topics_option
@click.pass_obj
def resume_command(context: AppContext, link_name: str | None, names: Sequence[str]) -> None:
    """Mirror topics of a link again that were paused, each from where it stood. A running mirror notices by itself."""
    link, topics = context.link(link_name), _split(names)
    run_at_site(link.target, partial(_resume, link, topics))
    click.echo(f"link {link.name}: mirrored again: {', '.join(topics)}", err=True)


async def _resume(link: Link, topics: Sequence[str], target: Cluster) -> None:
    paused = (await read_entries(link, target)).paused
    for topic in topics:
        if topic not in paused:
            told = f"paused are: {', '.join(sorted(paused))}" if paused else "no topic of it is"
            raise CommandRefused(f"link {link.name}: topic {topic} is not paused", told)
    await resume_topics(link, target, topics)


def _known(entries: StateEntries) -> set[str]:
    return {topic for topic, _ in (*entries.checkpoints, *entries.holds)} | entries.paused.keys()


def _split(names: Sequence[str]) -> list[str]:
    """Each once, in their order."""
    return list(dict.fromkeys(name for text in names for name in text.split(",") if name))


def _parse_configs(texts: Sequence[str]) -> dict[str, str]:
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--config")
        configs[name] = value
    return configs
