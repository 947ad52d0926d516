"""`farshore link`: links as declared, and what they would do at their targets."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from deploy.cli.terminal import AppContext, confirm_plan, emit, output_option, run_async

if TYPE_CHECKING:
    from broker.client.cluster import Cluster
    from broker.client.topics import NewTopic
    from mirror.link import Link
    from mirror.offsets.entries import Gap
    from mirror.offsets.state import StateEntries
    from mirror.topics.plan import ConfigChange, Finding, MirroredTopic

link_option = click.option("--link", "link_name", metavar="LINK", help="The link (default: the only one).")


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link as declared."""

    link: str
    source: str
    target: str
    topics: tuple[str, ...]
    topic_names: str
    groups: tuple[str, ...]
    shared_targets: bool

    @classmethod
    def of(cls, link: Link) -> LinkRow:
        return cls(
            link.name,
            link.source.name,
            link.target.name,
            link.topics,
            link.topic_names,
            link.groups,
            link.shared_targets,
        )


@dataclass(frozen=True, slots=True)
class LinkDescription:
    """A link, what it mirrors now, and what its next passes would change at the target.

    While the source does not answer, only what the target knows is there: the lists of topics, configs and findings
    are None.
    """

    link: str
    source: str
    target: str
    source_answers: bool
    topic_names: str
    shared_targets: bool
    condition: str
    operation_id: str
    mirrored: tuple[MirroredTopic, ...] | None
    topics_to_create: tuple[NewTopic, ...] | None
    topics_to_grow: tuple[tuple[str, int], ...] | None
    config_drift: tuple[ConfigChange, ...] | None
    findings: tuple[Finding, ...] | None
    gaps: tuple[Gap, ...]


@click.group("link")
def link_group() -> None:
    """Links: list, describe, resume."""


@link_group.command("list")
@output_option
@click.pass_obj
def list_command(context: AppContext, output: str) -> None:
    """List the links of farshore.toml."""
    rows = [LinkRow.of(link) for link in context.links()]
    emit(rows, output)


@link_group.command("describe")
@link_option
@output_option
@click.pass_obj
def describe_command(context: AppContext, link_name: str | None, output: str) -> None:
    """Show what a link mirrors, what it would create or change at the target, and what speaks against it."""
    link = context.link(link_name)
    description = run_async(_describe(link))
    emit(description, output)
    if not description.source_answers:
        text = f"site {link.source.name} does not answer: only what {link.target.name} knows of the link is shown"
        click.echo(f"note: {text}", err=True)


@link_group.command("resume")
@link_option
@click.option("--accept-gap", is_flag=True, help="Consent to the recorded gaps: stopped partitions go on behind them.")
@click.option("--dry-run", is_flag=True, help="Show what would be written and change nothing.")
@click.option("--yes", is_flag=True, help="Go on without asking.")
@click.pass_obj
def resume_command(context: AppContext, link_name: str | None, accept_gap: bool, dry_run: bool, yes: bool) -> None:
    """Let a link run again after a failover, or behind a gap. A running mirror notices by itself."""
    link = context.link(link_name)
    plan = _resume_plan(link, run_async(_load(link)), accept_gap)
    if plan is None:
        click.echo(f"link {link.name} may run already: there is nothing to resume", err=True)
        return
    if dry_run:
        emit(plan, "table")
        return
    confirm_plan(plan, yes, question=f"Let link {link.name} write to {link.target.name} again?")
    run_async(_resume(link, accept_gap))
    click.echo(
        f"link {link.name} may run: where no mirror runs, start it: farshore mirror run --link {link.name}", err=True
    )


def _resume_plan(link: Link, entries: StateEntries, accept_gap: bool) -> dict[str, object] | None:
    """What resuming means, None when there is nothing to resume. Raises Refusal where consent is missing."""
    from deploy.cli.terminal import ExitCode, Refusal
    from mirror.status import LinkCondition, condition_of

    condition = condition_of(entries)
    gaps = tuple(entries.open_gaps().values())
    if condition is LinkCondition.NEVER_RAN:
        raise Refusal(f"link {link.name} never ran", f"start it: farshore mirror run --link {link.name}")
    if condition is not LinkCondition.PROMOTED and not gaps:
        return None
    if condition is not LinkCondition.PROMOTED and not accept_gap:
        text = f"link {link.name} stands still at {len(gaps)} gaps"
        raise Refusal(text, "add --accept-gap to give up the records of the gaps", ExitCode.REFUSED)
    return {
        "link": link.name,
        "condition": condition.value,
        "operation_id": entries.run.operation_id if entries.run is not None else "",
        "gaps_accepted": gaps if accept_gap else (),
        "gaps_left": () if accept_gap else gaps,
    }


async def _load(link: Link) -> StateEntries:
    from broker.client.cluster import Cluster
    from mirror.offsets.state import read_entries

    async with Cluster(link.target, client_id="farshore-cli") as target:
        return await read_entries(link, target)


async def _resume(link: Link, accept_gap: bool) -> None:
    from broker.client.cluster import Cluster
    from mirror.offsets.operations import resume_link

    async with Cluster(link.target, client_id="farshore-cli") as target:
        await resume_link(link, target, f"resume-{uuid.uuid4().hex[:12]}", accept_gaps=accept_gap)


async def _describe(link: Link) -> LinkDescription:
    """Raises ClientError where the target does not answer. A source that is lost is when a person asks."""
    from broker.client.cluster import Cluster
    from broker.client.errors import ClusterUnreachable

    async with Cluster(link.target, client_id="farshore-cli") as target, AsyncExitStack() as stack:
        try:
            source = await stack.enter_async_context(Cluster(link.source, client_id="farshore-cli"))
        except ClusterUnreachable:
            return await _describe_target(link, target)
        return await _describe_between(link, source, target)


async def _describe_target(link: Link, target: Cluster) -> LinkDescription:
    from mirror.offsets.state import read_entries
    from mirror.status import condition_of

    entries = await read_entries(link, target)
    return LinkDescription(
        link=link.name,
        source=link.source.name,
        target=link.target.name,
        source_answers=False,
        topic_names=link.topic_names,
        shared_targets=link.shared_targets,
        condition=condition_of(entries).value,
        operation_id=entries.run.operation_id if entries.run is not None else "",
        mirrored=None,
        topics_to_create=None,
        topics_to_grow=None,
        config_drift=None,
        findings=None,
        gaps=tuple(entries.gaps.values()),
    )


async def _describe_between(link: Link, source: Cluster, target: Cluster) -> LinkDescription:
    from broker.client.topics import describe_topics, list_topics
    from mirror.topics.plan import pair_topics, select_topics
    from mirror.topics.sync import find_concerns, plan_config_sync, plan_link_topics

    at_source = await list_topics(source)
    wanted = {link.target_topic(name) for name in select_topics(link, at_source)}
    pairs = pair_topics(link, at_source, await describe_topics(target, wanted))
    plan = await plan_link_topics(link, source, target)
    drift, _ = await plan_config_sync(link, source, target, pairs)
    return replace(
        await _describe_target(link, target),
        source_answers=True,
        mirrored=pairs,
        topics_to_create=plan.create,
        topics_to_grow=tuple(plan.grow.items()),
        config_drift=drift,
        findings=tuple(await find_concerns(source, target, pairs, source.clock.now_ms())),
    )
