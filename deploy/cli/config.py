"""`farshore config ...`."""

from __future__ import annotations

import click

from broker.client.security.settings import PLAINTEXT
from deploy.cli.terminal import Output, emit, output_option
from deploy.config import FileContext
from deploy.effective import effective_configuration
from deploy.whole import toml_of, whole_configuration


@click.group("config")
def config_group() -> None:
    """Validate the configuration file; show all of it."""


@config_group.command("validate")
@output_option
@click.pass_obj
def validate(context: FileContext, output: str) -> None:
    """Check the file and print what it amounts to; exit 2 with every problem when it cannot be used."""
    context.configuration.check_start()
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


@config_group.command("show")
@output_option
@click.pass_obj
def show(context: FileContext, output: str) -> None:
    """Print all that the file says and leaves out, by its own keys, with the defaults; `table` is TOML.

    No secret is shown: files, variables and programs that have one are named, and of programs no arguments.
    """
    configuration = context.configuration
    whole = whole_configuration(configuration)
    if output != Output.TABLE:
        sites = [{"site": name, **table} for name, table in whole["sites"].items()]
        emit({"file": str(configuration.file), **whole, "sites": sites}, output)
        return
    click.echo(f"# {configuration.file}, with the defaults of what it leaves out\n{toml_of(whole)}", nl=False)
