"""`farshore link rights`: what farshore's principal has to be allowed at the sites of a link."""

from __future__ import annotations

import click

from broker.client.site import Site
from deploy.cli.terminal import LINK_HELP, AppContext, Output, emit, output_option
from deploy.rights import RIGHTS, rights_of

COLUMNS = ("needed_by", "site", "resource", "name", "pattern", "operations")


@click.command("rights")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--command",
    "commands",
    type=click.Choice(list(RIGHTS)),
    multiple=True,
    metavar="COMMAND",
    help="Only what this command needs, for example 'mirror run'; may be given several times.",
)
@click.option(
    "--principal",
    metavar="User:NAME",
    help="As whom farshore comes, where a site's security does not say it: by a certificate or a token.",
)
@output_option
@click.pass_obj
def rights_command(
    context: AppContext, link_name: str | None, commands: tuple[str, ...], principal: str | None, output: str
) -> None:
    """Print the rights that each command needs on each site of a link. Asks no cluster.

    As JSON each line has the `command` of Kafka's own tool that gives them. What the link declares by an expression is
    named by the prefix that all of it has.
    """
    link = context.link(link_name)
    principals = {site.name: principal or _principal(site) for site in (link.source, link.target)}
    found = rights_of(link, commands or tuple(RIGHTS), principals)
    if output != Output.TABLE:
        emit(found, output)
        return
    rows = [{name: getattr(right, name) for name in COLUMNS} for right in found]
    emit([row | {"operations": ", ".join(row["operations"])} for row in rows], output, columns=COLUMNS)
    click.echo("with -o json each line has the kafka-acls command that gives these rights", err=True)


def _principal(site: Site) -> str:
    """Raises click.UsageError where only the cluster knows it."""
    security = site.security
    if security.sasl is not None and security.sasl.username:
        return f"User:{security.sasl.username}"
    if security.sasl is None and (security.tls is None or security.tls.certificate_file is None):
        return "User:ANONYMOUS"
    raise click.UsageError(
        f"how {site.name} calls farshore stands in its certificate, token or ticket: name it with --principal User:NAME"
    )
