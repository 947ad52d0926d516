"""What a configuration file amounts to, defaults included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.config import Configuration
from mirror.description import LinkDeclaration, declare_link

FREEZES_FOR_GOOD: Final = (
    "failover: freeze_hook has no thaw_hook, so that a switchover that is given up would leave clients kept from "
    "writing: none is begun"
)
UNDO_HINT: Final = 'write what undoes it, or thaw_hook = ["true"] where it undoes itself'


@dataclass(frozen=True, slots=True)
class BrokerDeclaration:
    """A broker of a cluster; `inter_broker_listen` is None where it takes a free port, beside `listen`."""

    site: str
    node_id: int
    listen: str
    inter_broker_listen: str | None
    rack: str | None
    data_dir: str


@dataclass(frozen=True, slots=True)
class SiteDeclaration:
    """A site as declared; `username` is None where nobody logs in, or without one; `logs_in_as` says also who that is.

    `broker_...` are None where farshore does not run the site, or more than one broker of it: these are in `brokers`,
    and their metadata in `zookeeper`.
    """

    site: str
    bootstrap_servers: str
    address_map: dict[str, str]
    protocol: str
    mechanism: str | None
    username: str | None
    logs_in_as: str | None
    freeze_principals: tuple[str, ...]
    broker_listen: str | None
    broker_data_dir: str | None
    zookeeper: str | None
    brokers: tuple[BrokerDeclaration, ...]


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """What a configuration file amounts to, defaults included. `findings`: not wrong, but worth a look."""

    file: str
    state_dir: str
    sites: tuple[SiteDeclaration, ...]
    links: tuple[LinkDeclaration, ...]
    findings: tuple[str, ...]


def effective_configuration(configuration: Configuration) -> EffectiveConfiguration:
    """What the file amounts to."""
    sites = []
    for name, site in configuration.sites().items():
        table = configuration.model.sites[name]
        broker = configuration.broker_config(name) if table.broker is not None else None
        sasl = site.security.sasl
        sites.append(
            SiteDeclaration(
                site=name,
                bootstrap_servers=site.bootstrap_servers,
                address_map=dict(site.address_map),
                protocol=site.security.protocol,
                mechanism=sasl.mechanism if sasl is not None else None,
                username=(sasl.username or None) if sasl is not None else None,
                logs_in_as=sasl.principal if sasl is not None else None,
                freeze_principals=site.freeze_principals,
                broker_listen=", ".join(str(each.address) for each in broker.client_listeners()) if broker else None,
                broker_data_dir=str(broker.data_dir) if broker else None,
                zookeeper=table.cluster.zookeeper if table.cluster is not None else None,
                brokers=tuple(
                    BrokerDeclaration(
                        name,
                        each.node_id,
                        each.listen or ", ".join(each.listeners or ()),
                        each.inter_broker_listen,
                        each.rack,
                        str(configuration.path(each.data_dir)),
                    )
                    for each in table.brokers
                ),
            )
        )
    links = tuple(declare_link(link) for link in configuration.links())
    used = {end for link in links for end in (link.source, link.target)}
    findings = [f"site {site.site} is part of no link" for site in sites if site.site not in used]
    findings += [f"link {link.link} carries no group: it has no groups" for link in links if not link.groups]
    if configuration.hooks().is_never_undone:
        findings.append(f"{FREEZES_FOR_GOOD}; {UNDO_HINT}")
    return EffectiveConfiguration(
        file=str(configuration.file),
        state_dir=str(configuration.state_dir),
        sites=tuple(sites),
        links=links,
        findings=tuple(findings),
    )
