"""`farshore audit run` from a link to files on disk: both sites are frozen here, and compared by Spark in a child."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.base.address import parse_address
from broker.base.documents import iso_time
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.site import Site
from mirror.api import Link
from monitoring import limits
from monitoring.audit.freeze import freeze_link
from monitoring.audit.group_looks import freeze_groups
from monitoring.audit.history import Scope
from monitoring.audit.locked import require_reachable
from monitoring.audit.missing_rights import in_words
from monitoring.audit.model import AuditVerdict, FrozenLink
from monitoring.audit.plans import Plan, write_plan
from monitoring.audit.proof import LinkProof, read_proof
from monitoring.audit.protocol import ChildRequest, Compared
from monitoring.audit.ranges import plan as plan_of
from monitoring.audit.refusals import own_topics_named
from monitoring.audit.sample import Sample
from monitoring.audit.spark_child import Comparing, run_child
from monitoring.errors import AuditError, SparkFailed, SparkMissing

CLIENT_ID = "farshore-audit"
RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
STANDALONE = "spark://"


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What the command was asked. `run_id` None: made from the link and the time. `options` are Spark's own.

    `is_full`: nothing that was proved before counts, nor does it for a sample. `topics` and `since_ms` as in `Scope`.
    `may_stay_closed` as in `Sites`; None: where it can be seen to work.
    """

    link: Link
    master: str
    jars: tuple[str, ...]
    directory: Path
    run_id: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    is_full: bool = False
    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    sample_percent: float | None = None
    may_stay_closed: bool | None = None

    @property
    def tries_batches(self) -> bool:
        """Spark's workers are this machine's, and have our code: elsewhere only who asks for it can know that."""
        return self.master.startswith("local") if self.may_stay_closed is None else self.may_stay_closed


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What the command prints, and where the report is. `lacked`: rights that farshore lacks, each in words."""

    verdict: AuditVerdict
    document: dict[str, Any]
    report: Path
    lacked: tuple[str, ...] = ()


async def run_audit(
    request: AuditRequest, report: Callable[[str], None], compare: Comparing | None = None
) -> AuditOutcome:
    """Freeze, compare, store. Raises AuditError, and what the mirror's client raises for a site that is down.

    `compare` is Spark's part; by default a Spark that is started for it, and gone afterwards.
    """
    started_s = time.monotonic()
    require_means((request.link.source, request.link.target), request.jars)
    request = replace(request, run_id=run_id_of(request))
    await require_master(request.master)
    plan = await freeze_run(request, "run", report)
    directory = request.directory.resolve()  # the child stands elsewhere
    compared = await (compare or run_child)(
        ChildRequest(
            plan.run_id,
            plan.frozen,
            request.master,
            request.jars,
            directory,
            directory / "spark.log",
            plan.command,
            request.options,
            request.packages,
            plan.sample,
            may_stay_closed=request.tries_batches,
        ),
        report,
    )
    return outcome_of(compared, started_s, plan.frozen)


async def freeze_run(request: AuditRequest, verb: str, report: Callable[[str], None]) -> Plan:
    """The first part of every run: both sites are asked, and the plan is written down. `verb` is the command's.

    Raises AuditError, OSError, and what the mirror's client raises for a site that is down.
    """
    request = replace(request, run_id=run_id_of(request))
    assert request.run_id is not None
    directory = request.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    name = request.link.name
    is_anew = request.is_full or request.sample_percent is not None
    proof = LinkProof(name, ()) if is_anew else read_proof(directory, name)
    report("asking both sites where they stand")
    frozen = await _freeze(request.link, Scope(proof, request.topics, request.since_ms), report)
    sample = None if request.sample_percent is None else Sample(request.sample_percent, request.run_id)
    plan = Plan(request.run_id, frozen, command_of(request, verb), sample)
    write_plan(plan, directory)
    return plan


def outcome_of(compared: Compared, started_s: float, frozen: FrozenLink) -> AuditOutcome:
    """What the command prints of a run that is compared; `started_s` is of the clock that never goes back."""
    lacked = in_words(frozen.missing_rights, frozen.principals)
    document = compared.document | {
        "records": compared.document["source_records"],
        "report": str(compared.report),
        "seconds": round(time.monotonic() - started_s, 3),
    }
    return AuditOutcome(compared.verdict, document, compared.report, tuple(lacked))


async def _freeze(link: Link, scope: Scope, report: Callable[[str], None]) -> FrozenLink:
    async with (
        Cluster(link.source, client_id=CLIENT_ID) as source,
        Cluster(link.target, client_id=CLIENT_ID) as target,
        own_topics_named(link, source, target, "audit run"),
    ):
        frozen = await freeze_link(link, source, target, _now_ms, scope)
        plan_of(frozen)  # before anything slow begins: the child says the same after a wait
        report("asking both sites where groups stand")
        return replace(frozen, groups=await freeze_groups(link, frozen, source, target))


def require_means(sites: Iterable[Site], jars: Sequence[str]) -> None:
    """Raise AuditError where this machine, a site's security or a jar keeps Spark from beginning."""
    require_spark()
    for site in sites:
        require_reachable(site.name, site.security)
    require_jars(jars)


def require_spark() -> None:
    """Raise SparkMissing, naming the command that helps, before anything slow begins."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissing("the audit needs PySpark, which is not installed", "pip install 'farshore[audit]'")
    java_home = os.environ.get("JAVA_HOME")
    if (java_home is None or not Path(java_home, "bin", "java").exists()) and shutil.which("java") is None:
        raise SparkMissing(
            "the audit needs Java 17 for Spark, and no java is on the PATH",
            "apt-get install openjdk-17-jre-headless, or set JAVA_HOME",
        )


def require_jars(jars: Sequence[str]) -> None:
    """Raise AuditError for a jar that is not there; Spark would go on without it, and miss its connector later."""
    for jar in jars:
        if not urlsplit(jar).scheme and not Path(jar).exists():
            raise AuditError(
                f"there is no jar {jar}",
                "name the jars of Spark's Kafka connector; without --jars Spark resolves it from Maven",
            )


async def require_master(master: str) -> None:
    """Raise SparkFailed where none of a standalone cluster's masters listens: Spark itself would try for a minute."""
    if not master.startswith(STANDALONE):
        return
    addresses = [parse_address(text) for text in master.removeprefix(STANDALONE).split(",")]
    answers = await asyncio.gather(*[_listens(*address) for address in addresses])
    if not any(answers):
        raise SparkFailed(f"no Spark master answers at {master}", "see that it runs, or use --master 'local[*]'")


async def _listens(host: str, port: int) -> bool:
    try:
        async with timeout(limits.AUDIT_MASTER_CONNECT_MS / limits.SECOND_MS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # a time-out is one
        return False
    writer.close()
    return True


def run_id_of(request: AuditRequest) -> str:
    """The run's id: a folder's name. Raises AuditError for one that cannot be."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_id = request.run_id if request.run_id is not None else f"{request.link.name}-{moment}"
    return require_run_id(run_id)


def require_run_id(run_id: str) -> str:
    """Raises AuditError for what cannot name a folder."""
    if not RUN_ID.fullmatch(run_id) or run_id.startswith("."):
        raise AuditError(f"{run_id!r} cannot name a run", "use letters, digits, '.', '_' and '-', at most 200")
    return run_id


def command_of(request: AuditRequest, verb: str) -> str:
    """What repeats the run."""
    asked = [f"--topic {topic}" for topic in request.topics]
    if request.since_ms is not None:
        asked.append(f"--since {iso_time(request.since_ms)}")
    # What an earlier run proved is no part of what repeats this one; what was sampled goes by the run's name.
    if request.sample_percent is None:
        asked.insert(0, "--full")
    else:
        asked.insert(0, f"--sample {request.sample_percent:g} --run-id {request.run_id}")
    if request.master:
        asked.append(f"--master '{request.master}'")
    if request.may_stay_closed is not None:
        asked.append("--batches" if request.may_stay_closed else "--no-batches")
    return " ".join([f"farshore audit {verb}", f"--link {request.link.name}", *asked])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
