"""The audit's child as its parent sees it, with programs in Spark's place: events, errors, the log, and its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from monitoring import limits
from monitoring.audit import spark_child
from monitoring.audit.model import AuditVerdict, FrozenLink, FrozenPartition, FrozenSite, Span, Step
from monitoring.audit.protocol import EVENT, REQUEST, ChildRequest, Compared, Failed, Progress, error_of, failed
from monitoring.errors import AuditError, NothingToCompare, SiteLost, SparkFailed, SparkMissing

PREAMBLE = """
import json, os, signal, subprocess, sys, time
request = json.load(sys.stdin)
def tell(**event):
    os.write(int(sys.argv[1]), json.dumps(event).encode() + b"\\n")
"""


@pytest.fixture
def request_(tmp_path: Path) -> ChildRequest:
    partition = FrozenPartition("t", 0, "t", Span(0, 5), None, (Step(0, 0), Step(3, 4)), (5, 6), gaps=(Span(1, 2),))
    site = FrozenSite("east", "localhost:9092", None)
    frozen = FrozenLink("east-west", site, site, 1_000, (partition,))
    return ChildRequest("run-1", frozen, "local[1]", ("a.jar",), tmp_path, tmp_path / "spark.log", "farshore")


def plays(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(spark_child, "CHILD", (sys.executable, "-c", PREAMBLE + program))


async def carry_out(request: ChildRequest) -> tuple[list[str], Compared]:
    steps: list[str] = []
    return steps, await spark_child.run_child(request, steps.append)


def test_what_is_said_is_what_is_heard(request_: ChildRequest) -> None:
    assert REQUEST.validate_json(REQUEST.dump_json(request_)) == request_
    compared = Compared(AuditVerdict.MOVED, {"run_id": "run-1", "seconds": 1.5}, Path("r.html"))
    for event in (Progress("starting Spark"), compared, Failed("SparkFailed", "no", "see the log")):
        assert EVENT.validate_json(EVENT.dump_json(event)) == event


@pytest.mark.parametrize("kind", [AuditError, NothingToCompare, SiteLost, SparkFailed, SparkMissing])
def test_an_error_keeps_its_class_and_words(kind: type[AuditError]) -> None:
    error = error_of(failed(kind("what", "do this")))
    assert type(error) is kind
    assert isinstance(error, AuditError)
    assert (str(error), error.hint, error.retriable) == ("what", "do this", kind.retriable)


def test_what_the_system_refuses_keeps_its_words() -> None:
    error = error_of(failed(OSError(28, "No space left on device", "audit/run")))
    assert isinstance(error, OSError)
    assert str(error) == "audit/run: No space left on device"


async def test_steps_a_result_and_the_rest_in_the_log(monkeypatch: pytest.MonkeyPatch, request_: ChildRequest) -> None:
    plays(
        monkeypatch,
        "print('java says'); print('so does python', file=sys.stderr)\n"
        "tell(event='progress', step='one'); tell(event='progress', step=request['run_id'])\n"
        "tell(event='compared', verdict='differs', document={'big': 'x' * 200_000}, report='r.html')\n",
    )
    steps, compared = await carry_out(request_)
    assert steps == ["one", "run-1"]
    assert (compared.verdict, compared.report) == (AuditVerdict.DIFFERS, Path("r.html"))
    assert len(compared.document["big"]) == 200_000
    assert sorted(request_.log_file.read_text().splitlines()) == ["java says", "so does python"]


async def test_an_error_that_is_told_is_raised(monkeypatch: pytest.MonkeyPatch, request_: ChildRequest) -> None:
    plays(monkeypatch, "tell(event='failed', kind='SparkFailed', message='m', hint='h')")
    with pytest.raises(SparkFailed, match=r"^m$") as caught:
        await carry_out(request_)
    assert caught.value.hint == "h"


@pytest.mark.parametrize("program", ["raise ValueError('a bug')", "os.kill(os.getpid(), signal.SIGKILL)"])
async def test_an_end_without_a_word_names_the_log(
    monkeypatch: pytest.MonkeyPatch, request_: ChildRequest, program: str
) -> None:
    plays(monkeypatch, program)
    with pytest.raises(SparkFailed, match="no result") as caught:
        await carry_out(request_)
    assert str(request_.log_file) in caught.value.hint


async def test_a_child_that_does_not_listen(monkeypatch: pytest.MonkeyPatch, request_: ChildRequest) -> None:
    monkeypatch.setattr(spark_child, "CHILD", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(SparkFailed, match="status 3"):
        await carry_out(request_)


async def test_cancelled_it_ends_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, request_: ChildRequest
) -> None:
    """Also what does not hear SIGTERM."""
    monkeypatch.setattr(limits, "AUDIT_SPARK_STOP_MS", 500)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    plays(
        monkeypatch,
        f"java = subprocess.Popen([sys.executable, '-c', {deaf!r}], stdout=subprocess.PIPE)\n"
        "java.stdout.readline()\n"
        "tell(event='progress', step=f'{os.getpid()} {java.pid}'); time.sleep(60)\n",
    )
    said: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(spark_child.run_child(request_, said.put_nowait))
    child, java = (int(text) for text in (await said.get()).split())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{child}").exists()
    async with asyncio.timeout(60):
        while not is_gone(java):  # the signal was sent, and is on its way
            await asyncio.sleep(0.01)


def is_gone(process: int) -> bool:
    """Ended; a zombie is its new parent's to bury."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def test_a_child_that_ends_in_the_middle_of_its_result(
    monkeypatch: pytest.MonkeyPatch, request_: ChildRequest
) -> None:
    plays(monkeypatch, 'os.write(int(sys.argv[1]), b\'{"event": "compared", "verd\')\n')
    with pytest.raises(SparkFailed, match="while it told its result") as caught:
        await carry_out(request_)
    assert str(request_.log_file) in caught.value.hint


async def test_a_folder_with_modules_of_our_names_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, request_: ChildRequest, tmp_path: Path
) -> None:
    (tmp_path / "monitoring").mkdir()
    (tmp_path / "monitoring" / "__init__.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark_child, "CHILD", (*spark_child.CHILD[:-1], "monitoring.audit.protocol"))
    with pytest.raises(SparkFailed, match="status 0 and no result"):
        await carry_out(request_)
