"""The watch's loop and its Spark that stays, with programs in Spark's place and sites that do not answer."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.site import Site
from mirror.link import Link
from monitoring import limits
from monitoring.audit import spark_child
from monitoring.audit.model import AuditVerdict, FrozenLink, FrozenPartition, FrozenSite, Span, Step
from monitoring.audit.protocol import ChildRequest
from monitoring.audit.run import AuditRequest
from monitoring.audit.spark_child import SparkChild
from monitoring.audit.watch import TABLES, Watched, WatchSettings, trim, watch
from monitoring.audit.watching import WatchState, read_state, run_id_at, state_path, write_state
from monitoring.errors import AuditError, AuditResultDamaged, SparkFailed
from tests.ports import free_port

PROGRAM = """
import json, os, sys
def tell(**event):
    os.write(int(sys.argv[1]), json.dumps(event).encode() + b"\\n")
for line in sys.stdin:
    run_id = json.loads(line)["run_id"]
    if run_id == "dies":
        raise SystemExit(3)
    if run_id == "fails":
        tell(event="failed", kind="AuditError", message="no", hint="")
    tell(event="progress", step=run_id)
    if run_id != "waits":
        tell(event="compared", verdict="equal", document={"process": os.getpid()}, report="r.html")
"""


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChildRequest:
    monkeypatch.setattr(spark_child, "CHILD", (sys.executable, "-c", PROGRAM))
    site = FrozenSite("east", "localhost:9092", None)
    partition = FrozenPartition("t", 0, "t", Span(0, 5), None, (Step(0, 0),), (5, 5))
    frozen = FrozenLink("east-west", site, site, 1_000, (partition,))
    return ChildRequest("run", frozen, "local[1]", (), tmp_path, tmp_path / "spark.log", "farshore")


class Told:
    """What a Spark that stays answers, and each step that it reports."""

    def __init__(self, spark: SparkChild, request: ChildRequest) -> None:
        self._spark, self._request = spark, request
        self.steps: asyncio.Queue[str] = asyncio.Queue()

    async def process(self, run_id: str) -> int:
        compared = await self._spark.compare(replace(self._request, run_id=run_id), self.steps.put_nowait)
        return int(compared.document["process"])


async def test_a_spark_that_stays_answers_one_request_after_the_other(request_: ChildRequest) -> None:
    async with SparkChild() as spark:
        told = Told(spark, request_)
        processes = {await told.process(f"run-{number}") for number in range(3)}
        assert [told.steps.get_nowait() for _ in range(3)] == ["run-0", "run-1", "run-2"]
    (process,) = processes
    assert not Path(f"/proc/{process}").exists()


@pytest.mark.parametrize(("run_id", "error"), [("dies", SparkFailed), ("fails", AuditError)])
async def test_after_one_that_failed_another_spark_goes_on(
    request_: ChildRequest, run_id: str, error: type[AuditError]
) -> None:
    async with SparkChild() as spark:
        told = Told(spark, request_)
        before = await told.process("one")
        with pytest.raises(error):
            await told.process(run_id)
        assert not Path(f"/proc/{before}").exists()
        assert await told.process("two") != before


async def test_what_was_cancelled_is_not_the_next_ones_answer(request_: ChildRequest) -> None:
    async with SparkChild() as spark:
        told = Told(spark, request_)
        waiting = asyncio.create_task(told.process("waits"))
        assert await told.steps.get() == "waits"
        waiting.cancel()
        await asyncio.wait([waiting])
        await told.process("next")
        assert told.steps.get_nowait() == "next"


async def test_no_spark_lives_for_ever(request_: ChildRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_WATCH_SPARK_RUNS", 2)
    monkeypatch.setattr(limits, "AUDIT_WATCH_LOG_BYTES", 3)
    request_.log_file.write_text("long")
    async with SparkChild() as spark:
        told = Told(spark, request_)
        one, two, three = [await told.process("run") for _ in range(3)]
    assert one == two != three
    assert request_.log_file.with_name("spark.log.1").read_text() == "long"


def dead_link() -> Link:
    east, west = (Site(name, f"127.0.0.1:{free_port()}") for name in ("east", "west"))
    return Link("east-west", east, west, ("flights",))


def settings_of(directory: Path, posted: asyncio.Queue[Watched], lines: list[str]) -> WatchSettings:
    request = AuditRequest(dead_link(), "local[1]", (), directory)
    return WatchSettings(request, 1, SystemClock(), posted.put_nowait, lines.append)


async def test_a_site_that_does_not_answer_ends_nothing_and_is_said_once(tmp_path: Path) -> None:
    write_state(WatchState("east-west", 7, AuditVerdict.EQUAL), tmp_path)
    plan = tmp_path / "plans" / f"{run_id_at('east-west', 1)}.json"
    plan.parent.mkdir()
    plan.write_text("{}")
    posted: asyncio.Queue[Watched] = asyncio.Queue()
    lines: list[str] = []
    task = asyncio.create_task(watch(settings_of(tmp_path, posted, lines)))
    found = [await posted.get() for _ in range(3)]
    task.cancel()
    await asyncio.wait([task])
    assert [item.failed_in_a_row for item in found] == [0, 1, 2]
    assert {(item.proved_at_ms, item.audits, item.differed) for item in found} == {(7, 0, False)}
    (line,) = lines
    assert "no audit, tried again each 0.001 s: site east does not answer" in line
    assert read_state(tmp_path, "east-west").proved_at_ms == 7
    assert not plan.exists()  # of what failed nothing piles up while a site is away


async def test_a_link_is_watched_once_in_a_folder(tmp_path: Path) -> None:
    posted: asyncio.Queue[Watched] = asyncio.Queue()
    first = asyncio.create_task(watch(settings_of(tmp_path, posted, [])))
    await posted.get()
    with pytest.raises(AuditError, match="link east-west is watched already"):
        await watch(settings_of(tmp_path, posted, []))
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(watch(settings_of(tmp_path, posted, [])))
    await posted.get()
    second.cancel()
    await asyncio.wait([second])


async def test_what_could_never_be_audited_ends_it_at_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, asyncio.Queue(), [])
    with pytest.raises(AuditError, match=r"there is no jar no/such\.jar"):
        await watch(replace(settings, request=replace(settings.request, jars=("no/such.jar",))))
    state_path(tmp_path, "east-west").parent.mkdir()
    state_path(tmp_path, "east-west").write_text("{")
    with pytest.raises(AuditResultDamaged):
        await watch(settings)


def test_runs_that_are_not_kept_go_with_all_that_they_left(tmp_path: Path) -> None:
    """Also one that was cut off before it had a document: it takes the place of none that ended."""
    runs = [run_id_at("a", number) for number in range(limits.AUDIT_WATCH_RUNS_KEPT + 3)]
    for run in [*runs, "by-hand"]:
        for table in TABLES:
            folder = tmp_path / table / f"run_id={run}"
            folder.mkdir(parents=True)
            (folder / "part.parquet").write_text("rows")
        for folder_name, ending in (("documents", "json"), ("plans", "json"), ("reports", "html")):
            (tmp_path / folder_name).mkdir(exist_ok=True)
            (tmp_path / folder_name / f"{run}.{ending}").write_text("{}")
    (tmp_path / "documents" / f"{runs[0]}.json").unlink()
    plans = tmp_path / "plans"
    for planned in (run_id_at("a", 1_000_000), "planned-by-hand"):
        (plans / f"{planned}.json").write_text("{}")
    trim(tmp_path, WatchState("a", told_runs=(runs[1],)))
    kept = {runs[1], *runs[3:], "by-hand"}
    assert {path.stem for path in (tmp_path / "documents").iterdir()} == kept
    assert {path.stem for path in (tmp_path / "reports").iterdir()} == kept
    assert {path.stem for path in plans.iterdir()} == {*kept, "planned-by-hand"}
    for table in TABLES:
        assert {path.name for path in (tmp_path / table).iterdir()} == {f"run_id={run}" for run in kept}
