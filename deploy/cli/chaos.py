"""`farshore chaos run latency` and `farshore chaos clean`."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import click

from broker.base.address import Address
from broker.base.children import module_command
from chaos.cleaning import Found, cleaning
from chaos.scenario import Run, Scenario, run_latency
from chaos.toxics import Latency, connect, find_server, running_server
from deploy.cli.parameters import Duration, HostPort
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    ExitCode,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)

TOOLS_FOLDERS = (Path(".cache/bin"), Path(__file__).parents[2] / ".cache" / "bin")
"""Where `make chaos` builds the server: below the working folder, or in the checkout that this file runs from."""
COLUMNS = ("phase", "acknowledged_records", "mirrored_records", "latency_p50_seconds", "latency_p99_seconds", "steady")


@click.group("chaos")
def chaos_group() -> None:
    """Faults between sites, while a checker proves what the mirror promised."""


@chaos_group.group("run")
def run_group() -> None:
    """Run a scenario."""


@run_group.command("latency")
@click.option("--link", "link_name", metavar="LINK", help="Between the sites of this link (default: the only one).")
@click.option("--latency-ms", type=click.IntRange(1), default=200, show_default=True, help="Delay of each answer.")
@click.option("--jitter-ms", type=click.IntRange(0), default=0, show_default=True, help="Random part of the delay.")
@click.option(
    "--duration",
    "duration_ms",
    type=Duration(1),
    default="20s",
    show_default=True,
    help="Of each phase.",
)
@click.option("--rate", type=click.IntRange(1), default=100, show_default=True, help="Records written per second.")
@click.option("--steady-p99-ms", type=float, default=1000.0, show_default=True, help="Steady state: latency at p99.")
@click.option("--toxiproxy", type=HostPort(), help="A running toxiproxy server (default: start one).")
@output_option
@click.pass_obj
def run_latency_command(
    app: AppContext,
    link_name: str | None,
    latency_ms: int,
    jitter_ms: int,
    duration_ms: int,
    rate: int,
    steady_p99_ms: float,
    toxiproxy: Address | None,
    output: str,
) -> None:
    """Slow the network between the sites and prove that nothing is lost, doubled or reordered.

    Topics and a mirror of the run's own are used and removed again; the link's own mirror is not touched. Exit code: 0
    when every promise held and the fault was seen, 4 when not.
    """
    link = app.link(link_name)
    scenario = Scenario(Latency(latency_ms, jitter_ms), duration_ms / 1000, rate, steady_p99_ms)
    with ExitStack() as stack:
        if toxiproxy:
            server = connect(toxiproxy, 2.0)
        else:
            server = stack.enter_context(running_server(find_server(TOOLS_FOLDERS)))
        run = run_async(run_latency(link, scenario, server, mirror_command, app.security_text))
    print_run(run, output)
    raise SystemExit(ExitCode.DONE if run.verdict.holds else ExitCode.FINDINGS)


@chaos_group.command("clean")
@click.option("--toxiproxy", type=HostPort(), help="Look for proxies on this toxiproxy server, too.")
@dry_run_option("what would be removed")
@yes_option
@output_option
@click.pass_obj
def clean_command(app: AppContext, toxiproxy: Address | None, dry_run: bool, yes: bool, output: str) -> None:
    """Remove what killed runs have left at the sites of farshore.toml, in this machine's temporary folder and, with
    --toxiproxy, on that server.

    Only what is called after a run is removed, and not while the run lives: this is watched for 15 seconds.
    """
    sites = tuple(app.sites().values())
    server = connect(toxiproxy, 2.0) if toxiproxy else None

    async def clean() -> Found:
        async with AsyncExitStack() as stack:
            there = await cleaning(stack, sites, server)
            found = await there.find()
            for left in found.alive:
                click.echo(f"left alone: {left.kind.value} {left.name} of run {left.run_id}, which runs", err=True)
            if found.dead and not dry_run:
                confirm_plan(list(found.dead), yes, question="Remove these?")
                await there.remove(found.dead)
            return found

    found = run_async(clean())
    emit(list(found.dead), output, title="would be removed" if dry_run else "removed")
    if found.lost_sites:
        lost = ", ".join(found.lost_sites)
        raise CommandRefused(f"not looked at, because it does not answer: {lost}", "run this again when it does")


def print_run(run: Run, output: str) -> None:
    """The verdict on stdout; as a table with its anomalies on stderr."""
    if output != "table":
        emit(run, output)
        return
    emit(list(run.verdict.phases), output, columns=COLUMNS, title=f"latency {run.fault.latency_ms} ms on {run.link}")
    for anomaly, sequences in run.verdict.anomalies.items():
        click.echo(f"{anomaly.value}: {len(sequences)} records, first {sequences[:5]}", err=True)
    if not run.verdict.fault_seen:
        effect = run.verdict.effect
        measured = "unknown" if effect.measured_ms is None else f"{effect.measured_ms:.0f} ms"
        noise = "an unknown time" if effect.noise_ms is None else f"{effect.noise_ms:.0f} ms"
        click.echo(
            f"the fault did not show, so this run proves nothing: the median latency rose by {measured} where "
            f"{effect.expected_ms:.0f} ms was put in, and varies by {noise} without it; try a larger --latency-ms",
            err=True,
        )
    click.echo("every promise held" if run.verdict.holds else "DEVIATED", err=True)


def mirror_command(config: Path) -> tuple[str, ...]:
    """What starts a mirror of this very farshore."""
    return module_command("deploy.cli", "--config", str(config), "mirror", "run")
