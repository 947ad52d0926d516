"""The plan of a run: what was frozen, written down for those who digest one site each and for who compares them.

Pure values, and the file that carries them: DIR/plans/RUN.json. It is what a site's job needs besides its own site:
frozen ends, what of the partitions is compared, the offset map. It says nothing of logins: each job reaches its site as
its own configuration file says. A plan is known by a hash of its file, which what a job leaves behind has to name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from broker.client.security.settings import PLAINTEXT
from broker.client.site import Site
from monitoring import limits
from monitoring.audit.files import replace_file
from monitoring.audit.model import FrozenLink, FrozenSite, Side
from monitoring.audit.sample import Sample
from monitoring.errors import AuditError, DigestsUnusable

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """`command` repeats the run; `range_offsets` and `version` are of who wrote it."""

    run_id: str
    frozen: FrozenLink
    command: str
    sample: Sample | None = None
    range_offsets: int = 0
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan as its file has it. `plan_id` is the hash of the file's `size_bytes`."""

    plan: Plan
    plan_id: str
    size_bytes: int
    path: Path


_FILE: Final = TypeAdapter(Plan)


def write_plan(plan: Plan, directory: Path) -> KeptPlan:
    """Without what is secret, or only holds where it was frozen: security and address maps. Raises OSError."""
    frozen = replace(plan.frozen, source=_bare(plan.frozen.source), target=_bare(plan.frozen.target))
    kept = replace(plan, frozen=frozen, range_offsets=limits.AUDIT_RANGE_OFFSETS)
    text = _FILE.dump_json(kept).decode()
    path = replace_file(_path(directory, plan.run_id), text)
    return KeptPlan(kept, _plan_id(text), len(text.encode()), path)


def read_plan(directory: Path, run_id: str) -> KeptPlan:
    """Raises AuditError where there is none, and DigestsUnusable for one that this program cannot go by."""
    path = _path(directory, run_id)
    try:
        text = path.read_text(encoding="utf-8")
        plan = _FILE.validate_json(text)
    except FileNotFoundError as error:
        raise AuditError(
            f"there is no plan of run {run_id} in {directory}",
            "copy it here from where farshore audit freeze has written it",
        ) from error
    except (ValidationError, ValueError) as error:
        raise DigestsUnusable(
            f"{path} is not the plan of an audit: {str(error).splitlines()[0]}", "copy it again, or freeze anew"
        ) from error
    if (plan.version, plan.range_offsets, plan.run_id) != (VERSION, limits.AUDIT_RANGE_OFFSETS, run_id):
        raise DigestsUnusable(
            f"{path} is of run {plan.run_id}, version {plan.version} with ranges of {plan.range_offsets} offsets; "
            f"this program has version {VERSION} with {limits.AUDIT_RANGE_OFFSETS}",
            "use one version of farshore for all parts of a run, and freeze anew: farshore audit freeze",
        )
    return KeptPlan(plan, _plan_id(text), len(text.encode()), path)


def side_of(plan: Plan, site: str) -> Side:
    """Raises AuditError for a site that the run does not compare."""
    names = {plan.frozen.source.name: Side.SOURCE, plan.frozen.target.name: Side.TARGET}
    if site not in names:
        raise AuditError(
            f"run {plan.run_id} does not compare site {site}", f"it compares {' and '.join(names)}: use --site"
        )
    return names[site]


def reached(frozen: FrozenLink, sites: Mapping[Side, Site]) -> FrozenLink:
    """The link with sites as they are reached from here; the clusters are those of the plan."""
    here = {
        side: FrozenSite(site.name, site.bootstrap_servers, _of(frozen, side).cluster_id, dict(site.address_map))
        for side, site in sites.items()
    }
    here = {side: replace(found, security=sites[side].security) for side, found in here.items()}
    return replace(frozen, source=here.get(Side.SOURCE, frozen.source), target=here.get(Side.TARGET, frozen.target))


def _of(frozen: FrozenLink, side: Side) -> FrozenSite:
    return frozen.source if side is Side.SOURCE else frozen.target


def _bare(site: FrozenSite) -> FrozenSite:
    return replace(site, address_map={}, security=PLAINTEXT)


def _plan_id(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _path(directory: Path, run_id: str) -> Path:
    return directory / "plans" / f"{run_id}.json"
