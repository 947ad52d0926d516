"""What is wrong between the tables of brokers that farshore runs, and with what they listen on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.access.listeners import EVERY_INTERFACE
from broker.base.address import Address, parse_address
from broker.config import BrokerConfig
from deploy.complaints import by_id
from deploy.security import PathOf
from deploy.tables import FileModel, SiteTable

LISTENERS: Final = ("listen", "inter_broker_listen")


def broker_address(site: SiteTable) -> Address | None:
    """Where a site's own broker listens: `listen`, else the only bootstrap server; None when that is ambiguous."""
    if site.broker is not None and site.broker.listen is not None:
        return parse_address(site.broker.listen)
    servers = site.bootstrap_servers.split(",")
    return parse_address(servers[0]) if len(servers) == 1 else None


def broker_problems(model: FileModel, path_of: PathOf, broker_config: Callable[[str, int | None], object]) -> list[str]:
    """Brokers that could not run beside each other, or of which it is not known where they listen."""
    problems: list[str] = []
    folders: dict[Path, str] = {}
    for name, site in model.sites.items():
        problems += _cluster_problems(name, site)
        own = [*site.brokers, *([] if site.broker is None else [site.broker])]
        if site.security is not None and any(each.listeners is None for each in own):
            problems.append(f"sites.{name}.security: farshore's brokers here have no TLS and no logins; take it out")
        if site.freeze_principals and (site.broker is not None or site.brokers):
            problems.append(f"sites.{name}.freeze_principals: farshore's own brokers freeze by their role; take it out")
        where = f"sites.{name}.broker"
        tables: list[tuple[str, Path, int | None]] = []
        if site.broker is not None:
            tables.append((where, site.broker.data_dir, None))
        tables += [
            (f"{where}s[{index}]{by_id(table.node_id)}", table.data_dir, table.node_id)
            for index, table in enumerate(site.brokers)
        ]
        for path, data_dir, node_id in tables:
            named = site.broker is not None and site.broker.listeners is not None
            if node_id is None and not named and broker_address(site) is None:
                problems.append(f"{path}.listen: is missing; bootstrap_servers names more than one address")
            elif (every_interface := _not_advertised(site, node_id)) is not None:
                problems.append(f"{path}.advertised: {every_interface}")
            elif node_id is None or site.cluster is not None:
                try:
                    broker_config(name, node_id)
                except ValueError as error:
                    problems.append(f"{path}: {error}")
            folder = path_of(data_dir).resolve()
            if folder in folders:
                problems.append(f"{path}.data_dir: site {folders[folder]} has the same folder; give each its own")
            else:
                nested = next((f for f in folders if f in folder.parents or folder in f.parents), None)
                if nested is not None:
                    problems.append(
                        f"{path}.data_dir: {nested}, of site {folders[nested]}, is in it or around it; "
                        "give each a folder of its own"
                    )
            folders.setdefault(folder, name)
    return problems


def start_problems(model: FileModel, broker_config: Callable[[str, int | None], BrokerConfig]) -> Iterator[str]:
    """Of brokers that would not start; whoever runs none of them goes on."""
    for name, site in model.sites.items():
        for index, table in enumerate(site.brokers):
            try:
                broker_config(name, table.node_id).check_start()
            except ValueError as error:
                yield f"sites.{name}.brokers[{index}]{by_id(table.node_id)}: {error}"


def _not_advertised(site: SiteTable, node_id: int | None) -> str | None:
    """Of a broker that listens on every interface, and tells clients no address that they could dial."""
    table = site.broker if node_id is None else next(each for each in site.brokers if each.node_id == node_id)
    listen = broker_address(site) if table is None or table.listen is None else parse_address(table.listen)
    if table is None or table.advertised is not None or listen is None or listen.host not in EVERY_INTERFACE:
        return None
    if table.listen is None and table.listeners is not None:
        return None
    named = [str(each) for each in map(parse_address, site.bootstrap_servers.split(",")) if each.port == listen.port]
    dialled = named[0] if len(named) == 1 and parse_address(named[0]).host not in EVERY_INTERFACE else None
    return (
        f"is missing; listen {listen.host} is every interface of the machine, and nothing that clients and brokers "
        f'could dial: add advertised = "{dialled or f"HOST:{listen.port}"}"'
        f"{', as bootstrap_servers has it' if dialled else ', with a HOST that they know'}"
    )


def _cluster_problems(name: str, site: SiteTable) -> Iterator[str]:
    """Of a site's brokers among themselves."""
    if site.brokers and site.broker is not None:
        yield f"sites.{name}.broker: this site has brokers too; write its only broker as broker, or all as brokers"
    if site.brokers and site.cluster is None:
        yield f"sites.{name}.cluster: is missing; add zookeeper there, which keeps the metadata of these brokers"
    if site.cluster is not None and not site.brokers:
        yield f"sites.{name}.brokers: is missing; add a [[sites.{name}.brokers]] table for each broker of the cluster"
    for index, table in enumerate(site.brokers):
        if table.listen is None and table.listeners is None:
            yield f"sites.{name}.brokers[{index}]{by_id(table.node_id)}.listen: is missing; or give listeners"
    for keys, what in ((("node_id",), "broker has this node id"), (LISTENERS, "listener has this address")):
        seen: set[object] = set()
        for index, table in enumerate(site.brokers):
            for key in keys:
                value = getattr(table, key)
                if value in seen:
                    where = f"sites.{name}.brokers[{index}]{by_id(table.node_id)}"
                    yield f"{where}.{key}: another {what}, {value}; give each its own"
                if value is not None:
                    seen.add(value)
