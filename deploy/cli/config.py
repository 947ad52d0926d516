"""`farshore config ...`."""

from __future__ import annotations

import click

from broker.client.security.settings import PLAINTEXT
from deploy.cli.terminal import Output, emit, output_option
from deploy.config import FileContext
from deploy.effective import effective_configuration


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
    brokers = [broker for site in effective.sites for broker in site.brokers]
    is_locked = any(site.protocol != PLAINTEXT.protocol for site in effective.sites)
    columns = ["site", "bootstrap_servers", *(("protocol", "logs_in_as") if is_locked else ())]
    columns += ["broker_listen", "broker_data_dir", *(("zookeeper",) if brokers else ())]
    emit(list(effective.sites), output, columns=columns)
    if brokers:
        emit(brokers, output)
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
                "sync_acls": link.sync_acls,
            }
            for link in effective.links
        ]
        emit(links, output)
    for finding in effective.findings:
        click.echo(f"note: {finding}", err=True)
    click.echo(f"{effective.file} is valid; state is kept in {effective.state_dir}", err=True)
