"""What commands about one site share: its option, and the connection to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.terminal import run_async

T = TypeVar("T")

site_option = click.option("--site", "site_name", required=True, metavar="SITE", help="The site, as in farshore.toml.")


def run_at_site(site: Site, job: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run `job` with a connected cluster, in the manner of `run_async`."""

    async def main() -> T:
        async with Cluster(site, client_id="farshore-cli") as cluster:
            return await job(cluster)

    return run_async(main())
