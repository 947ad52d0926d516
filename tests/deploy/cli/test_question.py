"""While a question stands at the terminal the world goes on: what was said yes to must still be so."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.terminal import ExitCode
from failover.journal.standing import OPEN_STATES
from mirror.link import Link
from mirror.offsets.source_ends import load_observation
from tests.deploy.cli.test_failover import (
    DEADLINE_S,
    FLIGHTS,
    Shell,
    append_records,
    two_sites,
    values_at,
)
from tests.deploy.cli.test_operation import kill_while_it_drains
from tests.forking import FARSHORE, forking
from tests.interop.servers import wait_until


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def asked(
    shell: Shell, line: str, question: str, meanwhile: Callable[[], None], questions: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run at a terminal, let `meanwhile` happen while the question stands there, and say yes to each."""
    keyboard, terminal = pty.openpty()
    told = shell.folder / "asked.stderr"
    try:
        with told.open("w") as stderr, (shell.folder / "asked.stdout").open("w") as stdout:
            files = (terminal, stdout.fileno(), stderr.fileno())
            process = forking().start(shell.argv(line)[len(FARSHORE) :], shell.folder, os.environ, files)
            wait_until(lambda: question in told.read_text(), DEADLINE_S, "the question")
            meanwhile()
            for number in range(questions):
                wait_until(lambda n=number: told.read_text().count(question) > n, DEADLINE_S, "it to be asked")  # type: ignore[misc]
                os.write(keyboard, b"y\n")
            code = process.wait(DEADLINE_S)
    finally:
        os.close(keyboard)
        os.close(terminal)
    return subprocess.CompletedProcess(line, code, (shell.folder / "asked.stdout").read_text(), told.read_text())


def test_a_source_that_is_back_while_the_question_stands_there_is_not_failed_over_from(own_shell: Shell) -> None:
    """The plan said that it is dead; meanwhile it took records that the move would have left behind unsaid."""
    own_shell.east.kill9()

    def come_back() -> None:
        own_shell.east.restart()
        append_records(own_shell.east, "late", 3)
        wait_until(lambda: values_at(own_shell.west) == ["late"] * 3, DEADLINE_S, "them to be mirrored")

    refused = asked(own_shell, "failover --allow-data-loss -o json", "Lose what was not mirrored and move", come_back)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "source_finding east-west: dead -> alive" in " ".join(refused.stderr.split())
    assert "nothing was changed" in refused.stderr
    reasons = [refusal["reason"] for refusal in json.loads(refused.stdout)["refusals"]]
    assert reasons == ["source_answers", "world_changed"]
    assert own_shell.operations == []
    moved = asked(own_shell, "switchover -o json", "Move to west?", lambda: append_records(own_shell.east, "more", 2))
    assert moved.returncode == ExitCode.DONE, moved.stderr
    assert json.loads(moved.stdout)["verified"] is True
    assert values_at(own_shell.west) == ["late"] * 3 + ["more"] * 2, "that records come is expected"


LOST = "Lose what was not mirrored and move"
FAILOVER = "failover --allow-data-loss --even-if-source-answers -o json"


def stall_mirror(shell: Shell) -> None:
    """What comes to the source from now on stays there alone."""
    (worker,) = shell.services
    worker.kill()
    worker.wait(DEADLINE_S)


def fastest_per_s(shell: Shell) -> float:
    """As the mirror saw it at last."""

    async def read() -> float:
        sites = Site("east", shell.east.bootstrap), Site("west", shell.west.bootstrap)
        link = Link("east-west", *sites, (FLIGHTS.topic,))
        async with Cluster(link.target) as west:
            last = (await load_observation(link, west)).last
        return 0.0 if last is None else last.fastest_per_s

    return asyncio.run(read())


def test_a_loss_that_grows_as_was_likely_while_a_person_reads_is_told_and_not_refused(own_shell: Shell) -> None:
    append_records(own_shell.east, "before", 40)
    wait_until(lambda: fastest_per_s(own_shell) > 5, DEADLINE_S, "the pace to be seen")
    stall_mirror(own_shell)
    done = asked(own_shell, FAILOVER, LOST, lambda: append_records(own_shell.east, "late", 2))
    assert done.returncode == ExitCode.DONE, done.stderr
    told = " ".join(done.stderr.split())
    assert "as of " in told
    assert "2 offsets more at east alone than when it was shown, no more than the pace that was shown" in told
    assert told.count(LOST) == 1
    assert json.loads(done.stdout)["loss"]["records"] == 2
    assert values_at(own_shell.west) == ["before"] * 40


def test_a_loss_that_grows_beyond_that_is_asked_about_again_in_the_same_command(own_shell: Shell) -> None:
    stall_mirror(own_shell)
    assert fastest_per_s(own_shell) == 0
    done = asked(own_shell, FAILOVER, LOST, lambda: append_records(own_shell.east, "late", 3), questions=2)
    assert done.returncode == ExitCode.DONE, done.stderr
    told = " ".join(done.stderr.split())
    assert "3 offsets more at east alone than when it was shown, and more than the pace" in told
    assert told.count(LOST) == 2
    assert "only at the source: 3 offsets in 1 partition" in told, "the new figures, before the question"
    assert json.loads(done.stdout)["loss"]["records"] == 3
    assert values_at(own_shell.west) == []


def test_a_source_that_died_while_the_question_stood_there_is_not_resumed_without(own_shell: Shell) -> None:
    """It was frozen and drained from; nobody may wait for what it still had."""
    operation_id = kill_while_it_drains(own_shell)
    refused = asked(own_shell, f"operation resume {operation_id}", "Go on with it?", own_shell.east.kill9)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    told = " ".join(refused.stderr.split())
    assert "calling east and west" in told.partition("Go on with it?")[2], "nothing was said until it was given up"
    assert "source_unreachable (east)" in told
    assert "nothing more was changed" in told
    (standing,) = own_shell.standings()
    assert standing.state in OPEN_STATES
    own_shell.east.restart()
    own_shell.run(f"operation resume {operation_id} --yes", ExitCode.DONE)


def test_who_resumes_a_failover_is_shown_what_is_lost_by_now_and_asked_again_where_that_grows(own_shell: Shell) -> None:
    """It was cut short before its fence, and what the source took since was lost unsaid: an old line was shown."""
    stall_mirror(own_shell)
    waits, config = own_shell.folder / "waits", own_shell.folder / "farshore.toml"
    waits.touch()
    with config.open("a") as added:
        hook = f"touch {own_shell.folder}/hooked; while test -e {waits}; do sleep 0.1; done"
        added.write(f'[failover]\nbefore_hook = ["sh", "-c", "{hook}"]\n')
    operation = own_shell.start(f"{FAILOVER} --yes")
    wait_until((own_shell.folder / "hooked").exists, DEADLINE_S, "the hook")
    operation.process.kill()
    operation.end(DEADLINE_S)
    waits.unlink()
    (operation_id,) = own_shell.operations
    append_records(own_shell.east, "late", 3)
    line, go_on = f"operation resume {operation_id} -o json", "Go on with it?"
    done = asked(own_shell, line, go_on, lambda: append_records(own_shell.east, "later", 2), questions=2)
    assert done.returncode == ExitCode.DONE, done.stderr
    told = " ".join(done.stderr.split())
    for more, in_all in ((3, 3), (2, 5)):
        assert f"{more} offsets more at east alone than when it was shown, and more than the pace" in told
        assert f"only at the source: {in_all} offsets in 1 partition" in told
    assert told.count(go_on) == 2
    assert json.loads(done.stdout)["loss"]["records"] == 5


def test_an_abort_says_what_stays_by_the_sites_as_they_are_behind_the_question(own_shell: Shell) -> None:
    """The source would have been thawed; by now it does not answer, and nobody knows how it will come back."""
    operation_id = kill_while_it_drains(own_shell)
    line = f"operation abort {operation_id} -o json"
    done = asked(own_shell, line, "Abort it?", own_shell.east.kill9)
    assert "source thawed: east takes writes again" in done.stderr, "as it was when the question was asked"
    assert "left as it is: source unknown east" in done.stderr
    assert done.returncode == ExitCode.FINDINGS, done.stderr
    found = [(one["kind"], one["stays"]) for one in json.loads(done.stdout)["items"]]
    assert found == [("link_runs", False), ("source_unknown", True)]


def test_a_link_is_not_resumed_that_would_append_a_tail_by_now(own_shell: Shell) -> None:
    """When it was asked the target had nothing newer; then somebody wrote there."""
    append_records(own_shell.east, "old", 2)
    wait_until(lambda: values_at(own_shell.west) == ["old"] * 2, DEADLINE_S, "them to be mirrored")
    own_shell.run("failover --allow-data-loss --even-if-source-answers --yes", ExitCode.DONE)
    append_records(own_shell.east, "tail", 2)
    question = "Let link east-west write to west again?"
    refused = asked(own_shell, "link resume", question, lambda: append_records(own_shell.west, "newer", 1))
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    told = " ".join(refused.stderr.split())
    assert "east has 2 records in 1 partition that west lacks, and west has newer ones" in told
    assert "Nothing was changed" in told

    def is_split() -> bool:
        append_records(own_shell.east, "tail", 1)  # what comes before the worker notices the fence counts as seen
        return "split_brain" in own_shell.ask("status").stdout

    wait_until(is_split, DEADLINE_S, "both sites' writers to be found")
    assert "promoted" in own_shell.run("status", ExitCode.FINDINGS).stdout
    assert values_at(own_shell.west) == ["old", "old", "newer"]


def test_a_site_is_not_thawed_while_another_became_active(own_shell: Shell) -> None:
    for site in ("east", "west"):
        own_shell.run(f"site standby --site {site} --yes", ExitCode.DONE)

    def thaw_west() -> None:
        own_shell.run("site thaw --site west --even-if-other-active --yes", ExitCode.DONE)

    refused = asked(own_shell, "site thaw --site east", "Have east active?", thaw_west)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "west is active: both would take writes" in " ".join(refused.stderr.split())
    roles = json.loads(own_shell.run("site role -o json", ExitCode.DONE).stdout)["items"]
    assert [(row["site"], row["role"]) for row in roles] == [("east", "standby"), ("west", "active")]


def test_a_link_that_was_moved_anew_while_the_question_stood_there_is_not_let_run(own_shell: Shell) -> None:
    """Who came back late to it undid another operator's failover, of which he had seen nothing."""
    failover = "failover --allow-data-loss --even-if-source-answers --yes"
    own_shell.run(failover, ExitCode.DONE)

    def move_anew() -> None:
        own_shell.run("link resume --yes", ExitCode.DONE)
        own_shell.run(failover, ExitCode.DONE)

    first, question = own_shell.operations[-1], "Let link east-west write to west again?"
    refused = asked(own_shell, "link resume", question, move_anew)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    told = " ".join(refused.stderr.split())
    assert f"the plan holds no more: promoted by {first} -> promoted by {own_shell.operations[-1]}" in told
    assert "nothing was changed" in told
    assert "promoted" in own_shell.ask("status").stdout


def test_nothing_is_replayed_into_a_site_that_its_link_writes_to_again_by_now(own_shell: Shell) -> None:
    """The link stood still at what was appended there, as at any other hand's."""
    append_records(own_shell.east, "old", 2)
    wait_until(lambda: values_at(own_shell.west) == ["old"] * 2, DEADLINE_S, "them to be mirrored")
    own_shell.run("failover --allow-data-loss --even-if-source-answers --yes", ExitCode.DONE)
    append_records(own_shell.east, "tail", 2)
    own_shell.run(f"stranded export --to {own_shell.folder / 'saved'}", ExitCode.DONE)
    own_shell.run("stranded leave --yes", ExitCode.DONE)
    line = f"stranded replay --from {own_shell.folder / 'saved'} --policy append"
    refused = asked(own_shell, line, "Append 2 records at west?", lambda: resumed(own_shell))
    assert "link east-west runs: east is the active site, and has the records" in " ".join(refused.stderr.split())
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert values_at(own_shell.west) == ["old"] * 2


def resumed(shell: Shell) -> None:
    shell.run("link resume --yes", ExitCode.DONE)


def test_nothing_is_left_at_the_source_of_a_link_that_was_moved_anew(own_shell: Shell) -> None:
    """By then the link had brought those very records, and the list said of them that the source alone has them."""
    failover = "failover --allow-data-loss --even-if-source-answers --yes"
    own_shell.run(failover, ExitCode.DONE)
    append_records(own_shell.east, "tail", 2)

    def bring_and_move_anew() -> None:
        own_shell.run("link resume --stranded append --yes", ExitCode.DONE)
        wait_until(lambda: values_at(own_shell.west) == ["tail"] * 2, DEADLINE_S, "them to be mirrored")
        own_shell.run(failover, ExitCode.DONE)

    refused = asked(own_shell, "stranded leave", "Let link east-west never bring them to west?", bring_and_move_anew)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "the plan holds no more: promoted by failover-east-west-" in " ".join(refused.stderr.split())
    assert "east has no record that west lacks" in own_shell.run("stranded list", ExitCode.DONE).stdout


def test_more_than_was_told_is_not_appended_behind_newer_records(own_shell: Shell) -> None:
    """It was asked about 2 records, and 5 came behind those of the active site."""
    own_shell.run("failover --allow-data-loss --even-if-source-answers --yes", ExitCode.DONE)
    append_records(own_shell.east, "tail", 2)
    append_records(own_shell.west, "newer", 1)
    line, question = "link resume --stranded append", "Let link east-west write to west again?"
    refused = asked(own_shell, line, question, lambda: append_records(own_shell.east, "more", 3))
    assert "2 records of 1 partition are appended at west" in refused.stderr
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "what only east has is not what it was. Nothing was changed" in " ".join(refused.stderr.split())
    assert "promoted" in own_shell.ask("status").stdout
    assert values_at(own_shell.west) == ["newer"]
    done = asked(own_shell, line, question, lambda: None)
    assert "5 records of 1 partition are appended at west" in done.stderr
    assert done.returncode == ExitCode.DONE, done.stderr
