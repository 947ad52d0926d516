"""What /metrics says, read back with Prometheus' own parser."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker.base.address import Address
from broker.http.errors import ListenFailed
from broker.http.settings import FaceSettings
from mirror.link_finding import LinkFindingKind
from monitoring.canary.record import CanaryRecord
from monitoring.canary.verdict import CanaryJudge
from monitoring.metrics.canary import latency_histogram
from monitoring.metrics.observation import (
    AclSample,
    Board,
    GroupSample,
    HoldSample,
    LagSample,
    LinkObservation,
    SplitSample,
)
from monitoring.metrics.readiness import Readiness, ReadinessBoard
from monitoring.metrics.server import metrics_server, registry_of

NOW_MS = 1_700_000_000_000
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read(registry: CollectorRegistry) -> Samples:
    return parsed(generate_latest(registry).decode())


def observation(**changes: Any) -> LinkObservation:
    values: dict[str, Any] = {
        "link": "east-west",
        "observed_at_ms": NOW_MS,
        "answered": True,
        "up": True,
        "condition": "running",
        "lags": (LagSample("flights", 0, 12, 1.5, 3_400, 41),),
        "groups_synced_at_ms": {"analysts": NOW_MS - 2_500},
    }
    return LinkObservation(**(values | changes))


def registry_for(board: Board, tmp_path: Path, judges: tuple[CanaryJudge, ...] = ()) -> CollectorRegistry:
    return registry_of(board, ReadinessBoard(), judges, tmp_path, clock_ms=lambda: NOW_MS)


def test_an_observed_link(tmp_path: Path) -> None:
    board = Board()
    board.post(observation())
    found = read(registry_for(board, tmp_path))
    place = (("link", "east-west"), ("partition", "0"), ("topic", "flights"))
    assert found["farshore_link_lag_records", place] == 12
    assert found["farshore_link_lag_seconds", place] == 1.5
    assert found["farshore_link_lag_bytes", place] == 3_400
    assert found["farshore_link_held_by_transaction_offsets", place] == 41
    assert found["farshore_link_up", (("link", "east-west"),)] == 1
    assert found["farshore_link_state", (("link", "east-west"), ("state", "running"))] == 1
    assert found["farshore_link_state", (("link", "east-west"), ("state", "promoted"))] == 0
    assert found["farshore_group_sync_age_seconds", (("group", "analysts"), ("link", "east-west"))] == 2.5
    assert any(name == "farshore_build_info" for name, _ in found)


def test_a_split_is_shown_and_what_is_not_known_is_not(tmp_path: Path) -> None:
    board = Board()
    registry = registry_for(board, tmp_path)
    link = ("link", "east-west")
    names = ("farshore_link_split_brain", "farshore_link_two_active", "farshore_link_both_promoted")
    for split, expected in (
        (SplitSample(), (0, 0, 0, 0, 0)),
        (SplitSample(both_promoted=True), (0, 0, 1, 0, 0)),
        (SplitSample(two_active=True), (0, 1, 0, 0, 0)),
        (SplitSample(True, True, 3, 7), (1, 1, 0, 3, 7)),
    ):
        board.post(observation(split=split))
        found = read(registry)
        own = [found["farshore_link_split_brain_records", (link, ("side", side))] for side in ("source", "target")]
        assert (*(found[name, (link,)] for name in names), *own) == expected
    board.post(observation(split=SplitSample(two_active=None)))
    found = read(registry)
    assert ("farshore_link_two_active", (link,)) not in found, "Apache Kafka has no roles: nobody knows"
    assert found["farshore_link_split_brain", (link,)] == 0
    board.post(observation(split=None))
    shown = " ".join(name for name, _ in read(registry))
    assert not any(word in shown for word in ("split", "two_active", "both_promoted"))


@pytest.mark.parametrize("kind", LinkFindingKind)
def test_each_finding_of_status_is_a_metric(kind: LinkFindingKind, tmp_path: Path) -> None:
    board = Board()
    registry = registry_for(board, tmp_path)

    def shown() -> dict[str, float]:
        return {
            dict(labels)["kind"]: value
            for (name, labels), value in read(registry).items()
            if name == "farshore_link_findings"
        }

    board.post(observation(findings={kind: 3}))
    assert shown() == {kind.value: 3}, "what else there is was not seen"
    board.post(observation(findings={kind: 3}, sees_all=True))
    assert shown() == {one.value: 3 if one is kind else 0 for one in LinkFindingKind}


def test_a_drill_is_shown_with_its_findings_by_kind_until_it_cannot_be_made(tmp_path: Path) -> None:
    board = ReadinessBoard()
    registry = registry_of(Board(), board, (), tmp_path, clock_ms=lambda: NOW_MS)
    link = (("link", "east-west"),)
    board.post("east-west", Readiness("east-west", NOW_MS, {}, 10, 20, 1.5, 0.2, 7))
    found = read(registry)
    assert found["farshore_drill_ready", link] == 1
    assert found["farshore_drill_timestamp_seconds", link] == NOW_MS / 1000
    values = [found[f"farshore_drill_{name}", link] for name in ("loss_offsets", "likely_loss_offsets")]
    assert found["farshore_drill_unclear_loss_offsets", link] == 7
    values += [found[f"farshore_drill_{name}", link] for name in ("loss_seconds", "ends_age_seconds")]
    assert values == [10, 20, 1.5, 0.2]
    board.post("east-west", Readiness("east-west", NOW_MS, {"group_unknown": 2, "silent": 1}))
    found = read(registry)
    assert found["farshore_drill_ready", link] == 0
    assert found["farshore_drill_findings", (("kind", "group_unknown"), ("link", "east-west"))] == 2
    assert ("farshore_drill_loss_offsets", link) not in found, "what is not known is not shown"
    assert found["farshore_drill_moved", link] == 0
    board.post("east-west", Readiness("east-west", NOW_MS, {}, is_moved=True))
    found = read(registry)
    assert found["farshore_drill_moved", link] == 1
    assert ("farshore_drill_loss_offsets", link) not in found, "a moved link has none"
    board.post("east-west", None)
    assert ("farshore_drill_ready", link) not in read(registry)


def test_the_age_of_the_sources_ends_grows_behind_the_drill_that_saw_them(tmp_path: Path) -> None:
    """One that hangs, or the minute until the next, would leave them as fresh as they were."""
    board = ReadinessBoard()
    registry = registry_of(Board(), board, (), tmp_path, clock_ms=lambda: NOW_MS + 50_000)
    board.post("east-west", Readiness("east-west", NOW_MS, {}, ends_age_seconds=0.25))
    assert read(registry)["farshore_drill_ends_age_seconds", (("link", "east-west"),)] == 50.25


@pytest.mark.parametrize(("ahead_ms", "shown"), [(5_000, 0), (5_001, None)])
def test_a_group_that_was_equal_in_the_future_is_not_of_now(tmp_path: Path, ahead_ms: int, shown: int | None) -> None:
    """The worker's clock is ahead: how old the group's offsets are nobody knows, and it was shown as 0."""
    board = Board()
    board.post(observation(groups_synced_at_ms={"analysts": NOW_MS + ahead_ms}))
    found = read(registry_for(board, tmp_path))
    assert found.get(("farshore_group_sync_age_seconds", (("group", "analysts"), ("link", "east-west")))) == shown


def test_held_partitions_are_named_with_their_reasons(tmp_path: Path) -> None:
    board = Board()
    held = (HoldSample("flights", 3, "no_leader_at_source"), HoldSample("gates", None, "topic_not_created"))
    board.post(observation(holds=held))
    found = {
        labels: value
        for (name, labels), value in read(registry_for(board, tmp_path)).items()
        if "partition_held" in name
    }
    assert found == {
        (("link", "east-west"), ("partition", "3"), ("reason", "no_leader_at_source"), ("topic", "flights")): 1,
        (("link", "east-west"), ("partition", "all"), ("reason", "topic_not_created"), ("topic", "gates")): 1,
    }


def test_paused_topics_are_named(tmp_path: Path) -> None:
    board = Board()
    board.post(observation(topics_paused=("flights", "gates")))
    found = {
        labels for (name, labels), value in read(registry_for(board, tmp_path)).items() if "paused" in name and value
    }
    assert found == {(("link", "east-west"), ("topic", topic)) for topic in ("flights", "gates")}


def test_acls_are_counted_by_what_becomes_of_them_and_not_where_that_is_not_known(tmp_path: Path) -> None:
    board = Board()
    board.post(observation(acls=AclSample(NOW_MS, {"hold": 2, "remove": 1}, failed=False)))
    link = ("link", "east-west")
    found = read(registry_for(board, tmp_path))
    assert found["farshore_link_acls", (link, ("step", "hold"))] == 2
    assert found["farshore_link_acls", (link, ("step", "remove"))] == 1
    assert found["farshore_link_acls_failed", (link,)] == 0
    assert found["farshore_link_acls_compared_timestamp_seconds", (link,)] == NOW_MS / 1000
    board.post(observation(acls=AclSample(NOW_MS, {"hold": 0}, failed=True)))
    found = read(registry_for(board, tmp_path))
    assert [name for name, _ in found if name == "farshore_link_acls"] == []
    assert found["farshore_link_acls_failed", (link,)] == 1
    board.post(observation())
    assert [name for name, _ in read(registry_for(board, tmp_path)) if "acls" in name] == []


def test_partitions_that_nobody_leads_are_counted_by_site(tmp_path: Path) -> None:
    board = Board()
    board.post(observation(partitions_offline={"east": 0, "west": 2}))
    found = read(registry_for(board, tmp_path))
    assert found["farshore_site_partitions_offline", (("link", "east-west"), ("site", "east"))] == 0
    assert found["farshore_site_partitions_offline", (("link", "east-west"), ("site", "west"))] == 2


def test_groups_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    board = Board()
    waiting = GroupSample({"skip_active": 2, "hold_not_mirrored": 1}, False)
    groups = {"analysts": waiting, "app": GroupSample({}, False), "broken": GroupSample({"skip_active": 1}, True)}
    board.post(observation(groups=groups, groups_looked_at_ms=NOW_MS - 4_000))
    found = read(registry_for(board, tmp_path))
    for state in ("carried", "waiting", "failed"):
        assert found["farshore_groups", (("link", "east-west"), ("state", state))] == 1
    place = (("group", "analysts"), ("link", "east-west"), ("reason", "skip_active"))
    assert found["farshore_group_waiting_partitions", place] == 2
    looked_at = found["farshore_groups_looked_at_timestamp_seconds", (("link", "east-west"),)]
    assert looked_at == (NOW_MS - 4_000) / 1000


def test_a_lost_site_leaves_no_old_values(tmp_path: Path) -> None:
    board = Board()
    board.post(observation())
    board.post(LinkObservation("east-west", NOW_MS, answered=False, up=False, error="ClusterUnreachable"))
    found = read(registry_for(board, tmp_path))
    assert found["farshore_link_up", (("link", "east-west"),)] == 0
    assert found["farshore_link_observe_errors_total", (("link", "east-west"),)] == 1
    assert not [
        name for name, _ in found if name.startswith(("farshore_link_lag", "farshore_group", "farshore_link_s"))
    ]


def test_every_name_has_its_prefix_and_the_text_parses(tmp_path: Path) -> None:
    board = Board()
    board.post(observation())
    registry = registry_for(board, tmp_path, (CanaryJudge("east-west", "me"),))
    latency_histogram(registry).labels("east-west").observe(0.2)
    names = {name for name, _ in read(registry)}
    assert all(name.startswith("farshore_") for name in names)
    assert "farshore_canary_latency_seconds_bucket" in names


def test_a_lost_counter_never_falls(tmp_path: Path) -> None:
    judge = CanaryJudge("east-west", "me", deadline_ms=500, lost_after_ms=1_000)
    record = CanaryRecord("me", 0, 0)
    judge.sending(record)
    judge.acknowledged(record, 0)
    judge.expire(1_001)
    registry = registry_for(Board(), tmp_path, (judge,))
    link = (("link", "east-west"),)
    assert read(registry)["farshore_canary_lost_records_total", link] == 1
    judge.seen(record, 1_002)
    found = read(registry)
    assert found["farshore_canary_lost_records_total", link] == 1
    assert found["farshore_canary_late_records_total", link] == 1


def test_a_damaged_audit_result_is_said_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "east-west.json").write_text("{")
    board = Board()
    board.post(observation())
    found = read(registry_for(board, tmp_path))
    assert found["farshore_audit_results_damaged", ()] == 1
    assert found["farshore_link_up", (("link", "east-west"),)] == 1


async def test_served_over_http_and_a_taken_port_is_said(tmp_path: Path) -> None:
    registry = registry_for(Board(), tmp_path)
    async with metrics_server(FaceSettings(Address("127.0.0.1", 0)), registry) as url:
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert "farshore_build_info" in answer
        port = url.split(":")[2].split("/")[0]
        with pytest.raises(ListenFailed, match=port):
            async with metrics_server(FaceSettings(Address("127.0.0.1", int(port))), registry):
                pass
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", int(port)))


def test_a_scrape_is_not_disturbed_by_records_that_come_in_meanwhile(tmp_path: Path) -> None:
    """Who asks has a thread of its own."""
    judge = CanaryJudge("east-west", "me")
    registry = registry_for(Board(), tmp_path, (judge,))
    is_over = threading.Event()

    def fly() -> None:
        for sequence in itertools.count():
            record = CanaryRecord("me", sequence, NOW_MS)
            judge.sending(record)
            judge.acknowledged(record, sequence)
            if sequence >= 2_000:
                judge.seen(CanaryRecord("me", sequence - 2_000, NOW_MS), NOW_MS)
            if is_over.is_set():
                return

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    flying = threading.Thread(target=fly)
    flying.start()
    try:
        for _ in range(50):
            read(registry)
    finally:
        is_over.set()
        flying.join()
        sys.setswitchinterval(before_s)
