"""`farshore group`: consumer groups of one site."""

from __future__ import annotations

import click

from broker.client.group_description import describe_group, summarise_groups
from deploy.cli.site import run_at_site, site_option
from deploy.cli.terminal import AppContext, emit, output_option


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
@site_option
@click.option("--group", required=True, help="Its id.")
@output_option
@click.pass_obj
def describe_command(context: AppContext, site_name: str, group: str, output: str) -> None:
    """Describe a group: members, committed offsets, lag."""
    emit(run_at_site(context.site(site_name), lambda cluster: describe_group(cluster, group)), output)
