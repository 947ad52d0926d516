"""A worker that follows its file, on simulated time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from deploy.cli.mirror import places_of
from deploy.cli.mirror_file import LOOK_S, FollowedFile, chosen_links, offered_link, replace_links, stamp_of
from deploy.cli.root import cli
from deploy.config import FileContext
from mirror.coordinator.current import Current
from mirror.fleet.events import FleetEvent
from mirror.fleet.keys import WorkerRecord
from tests.deploy.cli.fleet_files import fleet_file
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop

ETCD = "127.0.0.1:3"


class Worker:
    """Follows a file; `told` is what it said of it."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.file = folder / "farshore.toml"
        self.told: list[tuple[FleetEvent, str]] = []
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.write(fleet_file(["red", "blue"], etcd=ETCD), 1_000)
        context = FileContext(self.file)
        links = chosen_links(context.links(), names)
        offer = replace_links(WorkerRecord(links={}, weight=3.0), links, 1_000)
        stamp = stamp_of(self.file)
        self.followed = FollowedFile(context, names, Current(links), Current(offer), stamp)

    def write(self, text: str, at_ms: int) -> None:
        self.file.write_text(text)
        os.utime(self.file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def hear(self, event: FleetEvent, /, **fields: object) -> None:
        self.told.append((event, " ".join(f"{name}={value}" for name, value in fields.items())))

    async def look(self) -> None:
        """For as long as a change needs to be taken."""
        await self.clock.sleep(2.5 * LOOK_S)

    @property
    def names(self) -> set[str]:
        assert self.followed.offer.value.links.keys() == self.followed.links.value.keys()
        return set(self.followed.links.value)


def test_what_changes_is_offered_and_what_is_invalid_is_not(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    async def change() -> None:
        following = worker.loop.create_task(worker.followed.follow(worker.clock, worker.hear))
        worker.write(fleet_file(["red", "blue"], etcd=ETCD), 2_000)
        await worker.look()
        assert not worker.told, "it says what it said"
        before = worker.followed.offer.value
        worker.write(fleet_file(["red", "green"], etcd=ETCD, topics={"red": "red|more"}), 3_000)
        await worker.look()
        assert worker.told.pop() == (FleetEvent.FILE_TAKEN, "added=green removed=blue changed=red")
        assert worker.names == {"red", "green"}
        offer = worker.followed.offer.value
        assert (offer.weight, offer.file_at_ms) == (3.0, 3_000)
        assert offer.links["red"].declared != before.links["red"].declared
        for text, why in (
            ("[[links]", "is not TOML"),
            (fleet_file(["red"], etcd="127.0.0.1:4"), "restart this worker"),
            (fleet_file([], etcd=ETCD), "no link"),
            (fleet_file(["red", "red"], etcd=ETCD), "another link has this name"),
        ):
            worker.write(text, 4_000)
            await worker.look()
            event, words = worker.told.pop()
            assert event is FleetEvent.FILE_REFUSED
            assert why in words
            assert worker.names == {"red", "green"}
            await worker.look()
            assert not worker.told, "once is enough"
        worker.file.unlink()
        await worker.look()
        assert worker.names == {"red", "green"}
        worker.write(fleet_file(["green"], etcd=ETCD), 5_000)
        await worker.look()
        assert worker.names == {"green"}
        following.cancel()

    worker.loop.run(change())


def test_a_file_that_is_being_written_is_not_taken(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "red", "green")

    async def change() -> None:
        following = worker.loop.create_task(worker.followed.follow(worker.clock, worker.hear))
        for at in range(10):
            worker.write(fleet_file(["blue"], etcd=ETCD) + f"# {at}", 2_000 + at)
            await worker.clock.sleep(0.9 * LOOK_S)
        assert worker.names == {"red"}
        worker.write(fleet_file(["red", "blue", "green"], etcd=ETCD), 3_000)
        await worker.look()
        assert worker.names == {"red", "green"}, "of the links only those that it was told to run"
        following.cancel()

    worker.loop.run(change())


def test_a_rack_is_part_of_the_offer_and_no_other_version_of_the_link(tmp_path: Path) -> None:
    file = tmp_path / "farshore.toml"
    file.write_text(fleet_file(["red"], etcd=ETCD))
    (link,) = FileContext(file).links()
    plain, racked = offered_link(link), offered_link(replace(link, target_rack="a"))
    assert (plain.target_rack, racked.target_rack) == ("", "a")
    assert plain.declared == racked.declared


def test_who_is_near_a_rack_is_near_its_site(tmp_path: Path) -> None:
    assert places_of(["west/a", "east", "west/b"]) == ("west", "west/a", "east", "west/b")
    file = tmp_path / "farshore.toml"
    file.write_text(fleet_file(["red"], etcd=ETCD))

    def said(near: str) -> str:
        return CliRunner().invoke(cli, ["--config", str(file), "mirror", "run", "--near", near]).output

    assert "no site 'north'" in said("north/a")
    assert "write west, or west/RACK" in said("west/")


def test_files_that_do_not_say_the_same_of_acls_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "farshore.toml").write_text(fleet_file(["red"], etcd=ETCD))
    link = FileContext(tmp_path / "farshore.toml").link("red")
    with_acls = replace(link, sync_acls=True)
    renamed = replace(with_acls, acl_principals=(("User:shop", "User:shop-west"),))
    assert len({offered_link(one).declared for one in (link, with_acls, renamed)}) == 3
