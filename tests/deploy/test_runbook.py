"""docs/runbook.md, typed as it is written, in its order: every command of it, in four worlds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, append_records, is_draining, values_at
from tests.forking import FARSHORE
from tests.interop.servers import FarshoreBroker, wait_until

TEXT: Final = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
COMMAND: Final = re.compile(r"`farshore ([^`]+)`")
SITE: Final = """
[sites.{name}]
bootstrap_servers = "{listen}"
[sites.{name}.broker]
data_dir = "{data_dir}"
site_start_frozen = {held}
"""
LINK: Final = """
[[links]]
name = "{name}"
source = "{source}"
target = "{target}"
topics = ["{topic}"]
topic_names = "same"
groups = [".*"]
"""


def written(section: str, *, whole_site: bool = False) -> list[str]:
    """The commands of a section for one link, in its order; those for a whole site stand behind them."""
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    one_link, *for_a_site = re.split(r"^(?=A whole site|All links)", found, flags=re.MULTILINE)
    return [" ".join(words.split()) for words in COMMAND.findall("".join(for_a_site) if whole_site else one_link)]


class OwnBroker(FarshoreBroker):
    """Started from the file, as the runbook has it."""

    def __init__(self, folder: Path, site: str) -> None:
        super().__init__(folder / site)
        self._line = ["--config", str(folder / "farshore.toml"), "broker", "run", "--site", site]

    def command(self) -> Sequence[str]:
        return [*FARSHORE, *self._line]


@contextmanager
def world(
    folder: Path, topics: Sequence[str] = ("flights",), *, held: bool = True, partitions: int = 1
) -> Iterator[Shell]:
    """Two sites of our own brokers, let in by the runbook's command, and a link there and back for each topic."""
    east, west = OwnBroker(folder, "east"), OwnBroker(folder, "west")
    parts = ['state_dir = "state"']
    for name, site in (("east", east), ("west", west)):
        is_held = str(held and name == "east").lower()
        parts.append(SITE.format(name=name, listen=site.bootstrap, data_dir=site.data_dir, held=is_held))
    for number, topic in enumerate(topics):
        more = f"-{topic}" if number else ""
        parts.append(LINK.format(name=f"east-west{more}", source="east", target="west", topic=topic))
        parts.append(LINK.format(name=f"west-east{more}", source="west", target="east", topic=topic))
    (folder / "farshore.toml").write_text("".join(parts))
    with east, west:
        shell = Shell(folder, east, west)
        thaw, _ = written("Before the day")
        if held:
            shell.run(f"{thaw} --yes", ExitCode.DONE)
        for topic in topics:
            create = f"topic create --site east --topic {topic} --partitions {partitions} --config retention.ms=-1"
            shell.run(create, ExitCode.DONE)
        try:
            yield shell
        finally:
            shell.close()


def end_service(shell: Shell) -> None:
    """The one that was begun last."""
    service = shell.services.pop()
    service.terminate()
    service.wait(DEADLINE_S)


def test_there_and_back_as_planned_and_then_after_a_loss(tmp_path: Path) -> None:
    with world(tmp_path) as shell:
        append_records(shell.east, "first", 4)
        shell.begin("mirror run --link east-west")
        arrive(shell.west, ["first"] * 4)
        at_west = ["first"] * 4

        _, now_and_then = written("Before the day")
        drill, dry_run, run_back, _, *_cut_short, listed, resume = written("Planned")
        assert now_and_then == drill
        move(shell, drill, dry_run)
        shell.run(listed, ExitCode.DONE)
        append_records(shell.west, "west", 3)
        at_west += ["west"] * 3
        shell.begin(run_back)
        arrive(shell.east, at_west)
        back = dry_run.replace("east-west", "west-east")
        wait_until(lambda: is_allowed(shell, back), DEADLINE_S, "nothing to speak against the way back")
        shell.run(f"{back.removesuffix(' --dry-run')} --yes", ExitCode.DONE)
        shell.run(f"{resume} --yes", ExitCode.DONE)
        append_records(shell.east, "east again", 2)
        at_west += ["east again"] * 2
        arrive(shell.west, at_west)

        end_service(shell)
        end_service(shell)
        append_records(shell.east, "stranded", 3)
        at_east = [*at_west, *["stranded"] * 3]
        dry_run, failover, *_cut_short, standby = written("Unplanned")
        shell.east.kill9()
        shell.run(dry_run, ExitCode.DONE)
        shell.run(f"{failover} --yes", ExitCode.DONE)
        append_records(shell.west, "west alone", 5)
        shell.east.start()
        assert role_of(shell, "east") == "frozen", "nobody is let in before it is said what it is"
        shell.run(f"{standby} --yes", ExitCode.DONE)

        listed, run_back, dry_run, *failback, run_there, export, leave, replay = written("Failback")
        shell.run(listed, ExitCode.DONE)
        shell.begin(run_back)
        shell.run(export.replace("DIR", "exported"), ExitCode.DONE)
        shell.run(f"{leave} --yes", ExitCode.DONE)
        shell.run(f"{replay.replace('DIR', 'exported')} --yes", ExitCode.DONE)
        at_west += ["west alone"] * 5 + ["stranded"] * 3
        assert values_at(shell.west) == at_west
        wait_until(lambda: is_allowed(shell, dry_run), DEADLINE_S, "nothing to speak against the failback")
        come_back_after_all(shell, *failback)
        there = [value for value in values_at(shell.east) if value != "never committed"]
        assert there == at_east + ["west alone"] * 5 + ["stranded"] * 3
        append_records(shell.east, "at home", 2)
        shell.begin(run_there)
        arrive(shell.west, [*at_west, "at home", "at home"])


def come_back_after_all(shell: Shell, failback: str, listed: str, resume: str, abort: str) -> None:
    """Its machine dies twice: the first failback is aborted, with the link back running, the second one resumed."""
    for command, code in ((abort, ExitCode.FINDINGS), (resume, ExitCode.DONE)):
        with drain_held_up(shell.west.bootstrap):
            cut_short = shell.start(f"{failback} --yes")
            wait_until(lambda: is_carrying(shell), DEADLINE_S, "the failback to wait for the link back")
            cut_short.process.kill()
            cut_short.end(DEADLINE_S)
        (open_,) = json.loads(shell.run(f"{listed} -o json", ExitCode.DONE).stdout)["items"]
        shell.run(f"{command.replace('ID', open_['operation_id'])} --yes", code)


def is_carrying(shell: Shell) -> bool:
    return is_in(shell, "carry")


def is_in(shell: Shell, step: str) -> bool:
    return any(one.step == step and one.ended_at_ms is None for one in shell.standings())


def test_a_whole_site_there_cut_short_and_back_and_then_lost(tmp_path: Path) -> None:
    with world(tmp_path, ("flights", "orders")) as shell:
        append_records(shell.east, "first", 4)
        shell.begin("mirror run --link east-west --link east-west-orders")
        drill, dry_run, _, listed, resume, resume_link = written("Planned", whole_site=True)
        wait_until(lambda: is_allowed(shell, drill), DEADLINE_S, "a drill without findings")
        shell.run(dry_run, ExitCode.DONE)
        cut_drain_short(shell, dry_run.removesuffix(" --dry-run"))
        take_up(shell, listed, resume)
        append_records(shell.west, "west", 3)
        shell.begin("mirror run --link west-east --link west-east-orders")
        arrive(shell.east, ["first"] * 4 + ["west"] * 3)
        back = dry_run.replace("--from east --to west", "--from west --to east")
        wait_until(lambda: is_allowed(shell, back), DEADLINE_S, "nothing to speak against the way back")
        shell.run(f"{back.removesuffix(' --dry-run')} --yes", ExitCode.DONE)
        for link in ("east-west", "east-west-orders"):
            shell.run(f"{resume_link.replace('east-west', link)} --yes", ExitCode.DONE)
        append_records(shell.east, "east again", 2)
        arrive(shell.west, ["first"] * 4 + ["west"] * 3 + ["east again"] * 2)

        (dry_run,) = written("Unplanned", whole_site=True)
        shell.east.kill9()
        shell.run(dry_run, ExitCode.DONE)
        shell.run(f"{dry_run.removesuffix(' --dry-run')} --yes", ExitCode.DONE)


def cut_drain_short(shell: Shell, switchover: str) -> None:
    """Its machine dies while it waits for the mirror."""
    before = shell.operations
    with drain_held_up(shell.east.bootstrap):
        cut_short = shell.start(f"{switchover} --yes")
        wait_until(lambda: is_draining(shell, before), DEADLINE_S, "the drain to start")
        cut_short.process.kill()
        cut_short.end(DEADLINE_S)


def take_up(shell: Shell, listed: str, resume: str, told: ExitCode = ExitCode.DONE) -> None:
    (open_,) = json.loads(shell.run(f"{listed} -o json", told).stdout)["items"]
    shell.run(f"{resume.replace('ID', open_['operation_id'])} --yes", ExitCode.DONE)


def test_a_site_of_which_a_partition_is_gone(tmp_path: Path) -> None:
    with world(tmp_path, partitions=2) as shell:
        append_records(shell.east, "first", 4)
        shell.begin("mirror run --link east-west")
        arrive(shell.west, ["first"] * 4)
        end_service(shell)
        append_records(shell.east, "not mirrored", 2)
        shell.east.stop()
        (shell.east.data_dir / "flights-1").rename(shell.folder / "lost")
        shell.east.start()

        status, dry_run = written("Partial loss")
        shell.run(status, ExitCode.FINDINGS)
        plan = shell.run(dry_run, ExitCode.DONE).stdout
        assert "partly there" in plan, plan
        shell.run(f"{dry_run.replace(' --dry-run', '')} --yes", ExitCode.DONE)
        append_records(shell.west, "west", 3)

        shell.east.stop()
        (shell.folder / "lost").rename(shell.east.data_dir / "flights-1")
        shell.east.start()
        _, standby, listed, *more = written("Split brain")
        (leave,) = (command for command in more if command.endswith("--stranded leave"))
        shell.run(f"{standby} --yes", ExitCode.DONE)
        (tail,) = json.loads(shell.run(f"{listed} -o json", ExitCode.DONE).stdout)["tails"]
        assert (tail["partition"], tail["records"]) == (0, 2), "it shows when it is back"
        shell.run(f"{leave} --yes", ExitCode.DONE)
        shell.begin("mirror run --link east-west")
        shell.run("status --link east-west --until healthy --timeout 60s", ExitCode.DONE)
        assert values_at(shell.west) == ["first"] * 4 + ["west"] * 3


def cut_off(shell: Shell, *, been_there: bool) -> list[str]:
    """West is promoted, and both sites are written to; `been_there`: so was east once, by a planned way back -> what
    both have.
    """
    both = ["first"] * 4
    append_records(shell.east, "first", 4)
    shell.begin("mirror run --link east-west")
    arrive(shell.west, both)
    if been_there:
        shell.run("switchover --link east-west --yes", ExitCode.DONE)
        shell.begin("mirror run --link west-east")
        back = "switchover --link west-east"
        wait_until(lambda: is_allowed(shell, f"{back} --dry-run"), DEADLINE_S, "nothing to speak against the way back")
        shell.run(f"{back} --yes", ExitCode.DONE)
        shell.run("link resume --link east-west --yes", ExitCode.DONE)
        append_records(shell.east, "home", 1)
        both.append("home")
        arrive(shell.west, both)
    shell.east.stop()
    shell.run("failover --link east-west --allow-data-loss --yes", ExitCode.DONE)
    append_records(shell.west, "west", 3)
    shell.east.start()
    append_records(shell.east, "east", 2)
    return both


@pytest.mark.parametrize(("is_appended", "been_there"), [(True, False), (False, True)])
def test_both_sites_took_writes(tmp_path: Path, is_appended: bool, been_there: bool) -> None:
    """East does not start frozen, as one that lived and was cut off. To the end: applications at one site, both links
    right, and no finding.
    """
    with world(tmp_path, held=False) as shell:
        both = cut_off(shell, been_there=been_there)
        roles, standby, listed, export, run_back, resume_back, append, leave, run, healthy, back = written(
            "Split brain"
        )
        told = json.loads(shell.run(f"{roles} -o json", ExitCode.DONE).stdout)["items"]
        assert [row["takes_writes"] for row in told] == [True, True]
        shell.run(f"{standby} --yes", ExitCode.DONE)
        (tail,) = json.loads(shell.run(f"{listed} -o json", ExitCode.DONE).stdout)["tails"]
        assert (tail["records"], tail["target_wrote"]) == (2, True)
        shell.run(export.replace("DIR", "exported"), ExitCode.DONE)
        if been_there:
            shell.run(f"{resume_back} --yes", ExitCode.DONE)
        else:
            shell.begin(run_back)
        arrive(shell.east, [*both, "east", "east", "west", "west", "west"])
        shell.run(f"{append if is_appended else leave} --yes", ExitCode.DONE)
        assert run == "mirror run --link east-west", "it does"
        at_west = [*both, *["west"] * 3, *(["east"] * 2 if is_appended else [])]
        arrive(shell.west, at_west)
        shell.run(f"{healthy} --timeout 60s", ExitCode.DONE)
        wait_until(lambda: is_allowed(shell, f"{back} --dry-run"), DEADLINE_S, "nothing to speak against the way back")
        shell.run(f"{back} --yes", ExitCode.DONE)
        append_records(shell.east, "at home", 2)
        arrive(shell.west, [*at_west, "at home", "at home"])
        arrive(shell.east, [*both, *["east"] * 2, *["west"] * 3, *["at home"] * 2])
        shell.run(f"{healthy} --timeout 60s", ExitCode.DONE)
        assert (role_of(shell, "east"), role_of(shell, "west")) == ("active", "standby")


def test_the_next_steps_alone_lead_out_of_a_split_brain(tmp_path: Path) -> None:
    """Whoever decides before the link back runs ended with both sites written to, as seen from that one, and no word
    of how to go on.
    """
    with world(tmp_path, held=False) as shell:
        both = cut_off(shell, been_there=True)
        assert follow(shell, "east-west").startswith("site standby --site east")
        listed = follow(shell, "east-west")
        assert listed == "stranded list --link east-west"
        (append,) = (one for one in next_of(shell, listed) if one.endswith("append"))
        dry = json.loads(shell.run(f"{append} --dry-run -o json", ExitCode.DONE).stdout)
        assert [tail["records"] for tail in dry["brings"]] == [2]
        assert "2 records of 1 partition are appended at west" in shell.run(f"{append} --dry-run", ExitCode.DONE).stdout
        resume_back, run_back, healthy, back = next_of(shell, f"{append} --yes")
        assert (resume_back, run_back) == (
            "link resume --link west-east --stranded append",
            "mirror run --link west-east",
        )
        assert follow(shell, "west-east") == resume_back, "that is what is found, and no split"
        at_west = [*both, *["west"] * 3, *["east"] * 2]
        arrive(shell.west, at_west)
        arrive(shell.east, [*both, *["east"] * 2, *["west"] * 3])
        shell.run(f"{healthy} --timeout 60s", ExitCode.DONE)
        wait_until(lambda: is_allowed(shell, f"{back} --dry-run"), DEADLINE_S, "nothing to speak against the way back")
        shell.run(f"{back} --yes", ExitCode.DONE)
        shell.run(f"{healthy} --timeout 60s", ExitCode.DONE)
        assert (values_at(shell.west), role_of(shell, "east")) == (at_west, "active")


def next_of(shell: Shell, line: str) -> list[str]:
    """What it names."""
    steps = json.loads(shell.run(f"{line} -o json", ExitCode.DONE).stdout)["next"]
    return [step["command"].removeprefix("farshore ") for step in steps]


def follow(shell: Shell, link: str) -> str:
    """Type what `status` names for the link's first finding."""
    (status,) = json.loads(shell.run(f"status --link {link} -o json", ExitCode.FINDINGS).stdout)["items"]
    command: str = status["findings"][0]["next_step"].removeprefix("farshore ")
    shell.run(command if command.startswith("stranded list") else f"{command} --yes", ExitCode.DONE)
    return command


def test_every_section_and_every_command_of_it_is_run_here() -> None:
    """Each is unpacked by the tests (a partial loss: `test_runbook_partial_loss.py`; a move of one link that is cut
    short: `test_runbook_cut_short.py`; an older disk: `tests/deploy/cli/test_older_disk.py`; the failback of a site:
    `test_two_pairs.py`), so that one more fails them; what stands in no section would be run by none.
    """
    one_link = [words for section in re.findall(r"^## (.*)$", TEXT, re.MULTILINE) for words in written(section)]
    with_sites = ("Planned", "Unplanned", "Partial loss", "Failback")
    of_sites = [words for section in with_sites for words in written(section, whole_site=True)]
    assert len(one_link) + len(of_sites) == len(COMMAND.findall(TEXT))
    assert re.findall(r"^## (.*)$", TEXT, re.MULTILINE) == [
        "Before the day",
        "Planned",
        "Unplanned",
        "Partial loss",
        "Failback",
        "An older disk",
        "Split brain",
    ]


def role_of(shell: Shell, site: str) -> str:
    (row,) = json.loads(shell.run(f"site role --site {site} -o json", ExitCode.DONE).stdout)["items"]
    return str(row["role"])


def move(shell: Shell, drill: str, dry_run: str) -> None:
    wait_until(lambda: is_allowed(shell, drill), DEADLINE_S, "a drill without findings")
    shell.run(dry_run, ExitCode.DONE)
    shell.run(f"{dry_run.removesuffix(' --dry-run')} --yes", ExitCode.DONE)


def is_allowed(shell: Shell, line: str) -> bool:
    return shell.ask(line).returncode == ExitCode.DONE


def arrive(site: FarshoreBroker, values: list[str]) -> None:
    """But for what held up a drain, and was aborted."""

    def are_there() -> bool:
        return [value for value in values_at(site) if value != "never committed"] == values

    wait_until(are_there, DEADLINE_S, f"{len(values)} records to be there")
