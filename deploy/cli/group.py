"""`farshore group`: consumer groups of one site."""

from __future__ import annotations

import click

from broker.client.group_description import describe_group, summarise_groups
from deploy.cli.both_sites import note_lost_source, with_both_sites
from deploy.cli.site import run_at_site, site_option
from deploy.cli.terminal import AppContext, emit, output_option, run_async
from mirror.groups.description import describe_carried_group


@click.group("group")
def group_group() -> None:
    """Consumer groups of a site: list, describe."""


@group_group.command("list")
@site_option
@output_option
@click.pass_obj
def list_command(context: AppContext, site_name: str, output: str) -> None:
    """List a site's groups with their lag."""
    emit(run_at_site(context.site(site_name), summarise_groups), output)


@group_group.command("describe")
@click.option("--site", "site_name", metavar="SITE", help="The group as this site knows it.")
@click.option("--link", "link_name", metavar="LINK", help="How the link carries it over, and what waits and why.")
@click.option("--group", required=True, help="Its id.")
@output_option
@click.pass_obj
def describe_command(
    context: AppContext, site_name: str | None, link_name: str | None, group: str, output: str
) -> None:
    """Describe a group: members, committed offsets, lag at a site, or what a link does with its offsets."""
    if (site_name is None) == (link_name is None):
        raise click.UsageError("give one of --site and --link")
    if site_name is not None:
        emit(run_at_site(context.site(site_name), lambda cluster: describe_group(cluster, group)), output)
        return
    link = context.link(link_name)
    found = run_async(with_both_sites(link, lambda here, there: describe_carried_group(link, here, there, group)))
    emit(found, output)
    if not found.source_answers:
        note_lost_source(link)
