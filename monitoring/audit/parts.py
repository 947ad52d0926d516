"""`farshore audit digest` and `compare`: the parts of a run that `farshore audit freeze` has planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.client.site import Site
from monitoring.audit.look import require_clusters
from monitoring.audit.model import Side
from monitoring.audit.plans import KeptPlan, Plan, reached, read_plan
from monitoring.audit.protocol import ApartRequest, ChildRequest, Digested
from monitoring.audit.run import (
    AuditOutcome,
    outcome_of,
    require_master,
    require_means,
    require_run_id,
)
from monitoring.audit.spark_child import run_child, run_part


@dataclass(frozen=True, slots=True)
class PartRequest:
    """What the command was asked. `digests` is a folder or an address that Spark reaches; None: the `directory`.

    `options` are Spark's own.
    """

    run_id: str
    master: str
    jars: tuple[str, ...]
    directory: Path
    digests: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        return str(self.directory.resolve()) if self.digests is None else self.digests.rstrip("/")


def plan_of_run(run_id: str, directory: Path) -> KeptPlan:
    """Raises AuditError for a name that is none, where there is no plan, and for one that this program cannot go by."""
    return read_plan(directory.resolve(), require_run_id(run_id))


async def digest_part(
    request: PartRequest, kept: KeptPlan, side: Side, site: Site, report: Callable[[str], None]
) -> Digested:
    """Digest one site. Raises AuditError, SiteLost where the site does not answer, and OSError."""
    child = await _child_request(request, kept, {side: site}, side)
    report(f"asking {site.name} which cluster it is")
    await require_clusters(child.frozen, [side])
    ended = await run_part(child, report)
    assert isinstance(ended, Digested)
    return ended


async def compare_part(
    request: PartRequest, kept: KeptPlan, sites: Mapping[Side, Site], report: Callable[[str], None]
) -> AuditOutcome:
    """Compare both sites' digests. Raises AuditError, DigestsUnusable where they are not all of this plan's, and
    OSError."""
    started_s = time.monotonic()
    child = await _child_request(request, kept, sites, None)
    return outcome_of(await run_child(child, report), started_s, child.frozen)


async def _child_request(
    request: PartRequest, kept: KeptPlan, sites: Mapping[Side, Site], side: Side | None
) -> ChildRequest:
    require_means(sites.values(), request.jars)
    await require_master(request.master)
    directory = request.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    plan = kept.plan
    return ChildRequest(
        plan.run_id,
        reached(plan.frozen, sites),
        request.master,
        request.jars,
        directory,
        directory / "spark.log",
        "\n".join([plan.command, *next_commands(plan)]),
        request.options,
        request.packages,
        plan.sample,
        ApartRequest(kept, request.base, side),
    )


def next_commands(plan: Plan) -> list[str]:
    """What is left to do of a run that is planned: a command near each site, and one where both digests are."""
    sites = (plan.frozen.source.name, plan.frozen.target.name)
    digests = [f"farshore audit digest --site {name} --run {plan.run_id}" for name in sites]
    return [*digests, f"farshore audit compare --run {plan.run_id}"]
