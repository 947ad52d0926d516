"""The demo's proofs can fail: each finds what it is there to find. And the data is what it says."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from deploy.config import parse
from deploy.demo.first_round import KILL_AT_RECORDS, content, continuity, translation_proof
from deploy.demo.flights import FLIGHTS_COUNT, flights
from deploy.demo.leader_kills import LeaderKills
from deploy.demo.results import DemoResult, GroupProof, LossProof
from deploy.demo.stage import FLIGHTS, configuration, sites_of, stage
from deploy.demo.traffic import Acknowledgements, GroupRead
from deploy.errors import DemoFailed
from deploy.local.brokers import zookeeper_member
from deploy.local.locksmith import make_locks
from mirror.api import OffsetMap
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import PartitionMap

ROWS = {offset: 100 + offset for offset in range(5)}


def map_with(*intervals: tuple[int, int], end: tuple[int, int]) -> OffsetMap:
    """An offset map whose partition 0 has the given (source start, target start) intervals."""
    found = PartitionMap()
    found.advance([Interval(*interval) for interval in intervals], End(*end))
    return OffsetMap({(FLIGHTS, 0): found})


def test_an_exact_map_is_proved_with_its_markers_at_the_target() -> None:
    offset_map = map_with((0, 1), (3, 6), end=(5, 8))
    there = {1: 100, 2: 101, 3: 102, 6: 103, 7: 104}
    proof = translation_proof(offset_map, 0, ROWS, there)
    assert (proof.offsets, proof.wrong_forward, proof.wrong_back, proof.intervals) == (5, 0, 0, 2)
    assert proof.holds


def test_a_map_that_is_off_by_one_is_found() -> None:
    offset_map = map_with((0, 1), end=(5, 6))
    there = {offset + 2: row for offset, row in ROWS.items()}
    proof = translation_proof(offset_map, 0, ROWS, there)
    assert proof.wrong_forward == 5
    assert not proof.holds


def test_a_map_that_knows_nothing_proves_nothing() -> None:
    proof = translation_proof(OffsetMap(), 0, ROWS, ROWS)
    assert (proof.wrong_forward, proof.wrong_back) == (5, 5)
    assert not translation_proof(OffsetMap(), 0, {}, {}).holds


def test_continuity_counts_what_is_lost_and_what_is_repeated() -> None:
    whole = continuity(GroupRead(list(range(1000)), {}), GroupRead(list(range(1000, FLIGHTS_COUNT)), {}))
    assert whole.holds
    assert (whole.before_records, whole.after_records) == (1000, FLIGHTS_COUNT - 1000)
    overlapping = continuity(GroupRead(list(range(1000)), {}), GroupRead(list(range(990, FLIGHTS_COUNT)), {}))
    assert (overlapping.lost_records, overlapping.repeated_records) == (0, 10)
    with_an_offset_gap = continuity(GroupRead(list(range(1000)), {}), GroupRead(list(range(1003, FLIGHTS_COUNT)), {}))
    assert (with_an_offset_gap.lost_records, with_an_offset_gap.repeated_records) == (3, 0)
    assert not overlapping.holds
    assert not with_an_offset_gap.holds


def test_what_a_site_lacks_or_has_twice_is_counted() -> None:
    rows = Counter(range(FLIGHTS_COUNT))
    assert content("east", rows).holds
    del rows[7]
    rows[8] += 2
    found = content("east", rows)
    assert (found.records, found.lost_records, found.repeated_records) == (FLIGHTS_COUNT + 1, 1, 2)
    assert not found.holds


async def test_acknowledgements_are_counted_and_failures_are_none() -> None:
    seen = Acknowledgements()
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for future in futures:
        future.add_done_callback(seen.note)
    futures[0].set_result(None)
    futures[1].set_exception(TimeoutError())
    futures[2].cancel()
    await asyncio.sleep(0)
    assert (seen.records, seen.longest_pause_s) == (1, 0.0)
    later = asyncio.get_running_loop().create_future()
    later.add_done_callback(seen.note)
    await asyncio.sleep(0.02)
    later.set_result(None)
    await asyncio.sleep(0)
    assert seen.records == 2
    assert seen.longest_pause_s >= 0.02
    assert futures[1].exception() is not None


@pytest.mark.parametrize("is_locked", [False, True])
@pytest.mark.parametrize("brokers", [1, 3])
def test_the_demos_file_has_both_sites_with_all_their_brokers(tmp_path: Path, brokers: int, is_locked: bool) -> None:
    zookeeper = zookeeper_member(tmp_path, 2181) if brokers > 1 else None
    ports = range(9092, 9092 + 2 * brokers)
    sites = sites_of(brokers, ports)
    locks = {site: make_locks(tmp_path / site) for site in sites} if is_locked else {}
    read = parse(configuration(sites, zookeeper, None, locks), tmp_path / "farshore.toml")
    configs = [read.broker_config(each.site, each.node_id) for site in sites.values() for each in site]
    listeners = [listener for each in configs for listener in each.client_listeners()]
    assert [each.address.port for each in listeners] == list(ports)
    protocol = "SASL_SSL" if is_locked else "PLAINTEXT"
    assert {site.security.protocol for site in read.sites().values()} == {protocol}
    assert {each.protocol for each in listeners} == {protocol}
    assert len({each.data_dir for each in configs}) == 2 * brokers
    assert {each.zookeeper for each in configs} == (
        {None} if brokers == 1 else {"127.0.0.1:2181/east", "127.0.0.1:2181/west"}
    )
    assert {each.security_inter_broker_protocol for each in configs} == (
        {"SSL"} if is_locked and brokers > 1 else {"PLAINTEXT"}
    )


async def test_a_demo_in_which_no_leader_was_killed_is_not_one_that_survived_it(tmp_path: Path) -> None:
    async with stage(Console(quiet=True), DemoResult("now"), brokers=3) as scene:
        with pytest.raises(DemoFailed, match="no leader was killed at east, west"):
            await LeaderKills(scene, dict(KILL_AT_RECORDS)).bring_back()


def test_a_group_that_would_read_another_record_is_found() -> None:
    assert GroupProof(0, 10, 11, 42, 42).holds
    assert GroupProof(0, 10, 11, None, None).holds
    assert not GroupProof(0, 10, 11, 42, 43).holds
    assert not GroupProof(0, 10, 11, 42, None).holds


@pytest.mark.parametrize(
    ("stated", "certainty", "true_records", "holds"),
    [
        (7, "exact", 7, True),
        (7, "exact", 8, False),
        (7, "at_least", 7, True),
        (7, "at_least", 9, True),
        (7, "at_least", 6, False),
        (None, "unknown", 9, True),
        (None, "exact", 0, False),
    ],
)
def test_a_statement_of_loss_is_held_against_the_disk(
    stated: int | None, certainty: str, true_records: int, holds: bool
) -> None:
    assert LossProof(0, 100, 90, stated, certainty, true_records).holds is holds


def test_the_first_flights_are_those_of_the_package() -> None:
    first, second = islice(flights(), 2)
    # UA 1545 to Houston: scheduled 05:15 in New York on New Year's Day 2013, two minutes late.
    assert (first.row, first.key, first.timestamp_ms) == (0, b"UA", 1_357_035_420_000)
    assert b'"row":0,' in first.value
    assert b'"flight":"1545"' in first.value
    # UA 1714: scheduled 05:29, four minutes late.
    assert (second.row, second.key, second.timestamp_ms) == (1, b"UA", 1_357_036_380_000)


def test_every_flight_is_there_once() -> None:
    rows = [flight.row for flight in flights()]
    assert rows == list(range(FLIGHTS_COUNT))
