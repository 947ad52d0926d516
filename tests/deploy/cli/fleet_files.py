"""The files of fleets: two sites, an etcd, and links from one site to the other with a topic of their name each."""

from __future__ import annotations

from collections.abc import Iterable

SITES = """
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
"""
FLEET = """
[fleet]
etcd = ["{etcd}"]
prefix = "{prefix}"
"""
LINK = """
[[links]]
name = "{name}"
source = "east"
target = "west"
topics = ["{topics}"]
"""
NOWHERE = ("127.0.0.1:1", "127.0.0.1:2")


def fleet_file(
    links: Iterable[str],
    sites: tuple[str, str] = NOWHERE,
    etcd: object = None,
    prefix: str = "/farshore/fleet/",
    topics: dict[str, str] | None = None,
) -> str:
    """`topics`: of links whose topic has another name. Without `etcd` there is no fleet."""
    text = SITES.format(east=sites[0], west=sites[1])
    text += FLEET.format(etcd=etcd, prefix=prefix) if etcd is not None else ""
    return text + "".join(LINK.format(name=name, topics=(topics or {}).get(name, name)) for name in links)
