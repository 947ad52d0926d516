"""`farshore topic`: topics of one site."""

from __future__ import annotations

from collections.abc import Sequence

import click

from broker.client.cluster import Cluster
from broker.client.topic_description import describe_topic, plan_topic_deletion, summarise_topics
from broker.client.topics import NewTopic, create_topic, delete_topics
from broker.wire.vocabulary import BROKER_DEFAULT
from deploy.cli.site import run_at_site, site_option
from deploy.cli.tables import counted
from deploy.cli.terminal import (
    AppContext,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
)


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


def _parse_configs(texts: Sequence[str]) -> dict[str, str]:
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--config")
        configs[name] = value
    return configs
