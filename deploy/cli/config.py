"""`farshore config ...`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from deploy.cli.link import LinkRow
from deploy.cli.terminal import Output, emit, output_option

if TYPE_CHECKING:
    from deploy.config import Configuration, FileContext


@dataclass(frozen=True, slots=True)
class SiteRow:
    site: str
    bootstrap_servers: str
    address_map: dict[str, str]
    broker_listen: str | None
    broker_data_dir: str | None


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """What a configuration file amounts to, defaults included. `findings`: not wrong, but worth a look."""

    file: str
    state_dir: str
    sites: tuple[SiteRow, ...]
    links: tuple[LinkRow, ...]
    findings: tuple[str, ...]


@click.group("config")
def config_group() -> None:
    """Check the configuration file."""


@config_group.command("validate")
@output_option
@click.pass_obj
def validate(context: FileContext, output: str) -> None:
    """Check the file and print what it amounts to; exit 2 with every problem when it cannot be used."""
    effective = effective_configuration(context.configuration)
    if output != Output.TABLE:
        emit(effective, output)
        return
    emit(list(effective.sites), output, columns=("site", "bootstrap_servers", "broker_listen", "broker_data_dir"))
    if effective.links:
        links = [
            {
                "link": link.link,
                "source": link.source,
                "target": link.target,
                "topics": ", ".join(link.topics),
                "topic_names": link.topic_names,
                "groups": ", ".join(link.groups),
                "shared_targets": link.shared_targets,
            }
            for link in effective.links
        ]
        emit(links, output)
    for finding in effective.findings:
        click.echo(f"note: {finding}", err=True)
    click.echo(f"{effective.file} is valid; state is kept in {effective.state_dir}", err=True)


def effective_configuration(configuration: Configuration) -> EffectiveConfiguration:
    """What the file amounts to."""
    sites = []
    for name, site in configuration.sites().items():
        own = configuration.model.sites[name].broker is not None
        broker = configuration.broker_config(name) if own else None
        sites.append(
            SiteRow(
                site=name,
                bootstrap_servers=site.bootstrap_servers,
                address_map=dict(site.address_map),
                broker_listen=f"{broker.listen_host}:{broker.listen_port}" if broker else None,
                broker_data_dir=str(broker.data_dir) if broker else None,
            )
        )
    links = tuple(LinkRow.of(link) for link in configuration.links())
    used = {end for link in links for end in (link.source, link.target)}
    findings = [f"site {site.site} is part of no link" for site in sites if site.site not in used]
    findings += [f"link {link.link} carries no group: it has no groups" for link in links if not link.groups]
    return EffectiveConfiguration(
        file=str(configuration.file),
        state_dir=str(configuration.state_dir),
        sites=tuple(sites),
        links=links,
        findings=tuple(findings),
    )
