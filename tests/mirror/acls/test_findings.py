"""What a link's status says of its ACLs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.errors import ClientError, KafkaError
from broker.wire.errors import ErrorCode
from mirror.acls.findings import acl_findings
from mirror.acls.record import AclLook, AclRecord
from mirror.link_finding import LinkFindingKind
from mirror.offsets.entries import LinkRun, Owner, RunState, Writer
from mirror.offsets.state_entries import StateEntries
from tests.mirror.acls.acls import READ, WRITE, allow, link_of

LINK = replace(link_of("orders"), sync_acls=True)
NOW_MS = 1_700_000_000_000
OWNER = Owner(Writer(1, 0), "worker", NOW_MS)
RUNS = StateEntries(LINK, exists=True, owner=OWNER)


def said(
    found: AclRecord | ClientError | None, entries: StateEntries = RUNS, *, source_answers: bool = True
) -> list[tuple[LinkFindingKind, str, str]]:
    findings = acl_findings(LINK, entries, found, source_answers=source_answers)
    return [(one.kind, one.detail, one.next_step) for one in findings]


LOOK = AclLook(NOW_MS - 1_000)


def test_what_is_made_or_held_by_itself_is_none() -> None:
    assert said(AclRecord(exists=True, look=replace(LOOK, to_create=3, held=7))) == []
    assert said(None) == []


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PROMOTED])
def test_a_record_of_what_the_link_does_not_carry_is_one(state: RunState) -> None:
    record = AclRecord(
        exists=True, look=LOOK, beyond=frozenset({allow("a", WRITE, "wages"), allow("b", READ, "wages")})
    )
    entries = StateEntries(LINK, exists=True, owner=OWNER, run=LinkRun(state, "failover-1", at_ms=0))
    [(kind, detail, step)] = said(record, entries)
    assert (kind, step) == (LinkFindingKind.ACLS_DIFFER, "farshore acls plan --link east-west")
    assert "__farshore-acls-east-west at west has 2 ACLs" in detail
    assert str(allow("a", WRITE, "wages")) in detail


def test_what_somebody_has_to_decide_is_one() -> None:
    look = replace(LOOK, failed=1, failure="no right", withheld=2, open_at_target=3, to_remove=4)
    [(kind, detail, step)] = said(AclRecord(exists=True, look=look))
    assert (kind, step) == (LinkFindingKind.ACLS_DIFFER, "farshore acls plan --link east-west")
    assert detail.endswith("(no right)")
    assert all(text in detail for text in ("1 ACLs could", "2 ACLs are not", "3 ACLs let others", "4 ACLs were made"))


def test_where_a_link_goes_back_others_are_to_write() -> None:
    look = AclRecord(exists=True, look=replace(LOOK, open_at_target=3))
    assert [one.kind for one in acl_findings(LINK, RUNS, look, source_answers=True)] == [LinkFindingKind.ACLS_DIFFER]
    both_ways = replace(LINK, shared_targets=True)
    assert list(acl_findings(both_ways, RUNS, look, source_answers=True)) == []


@pytest.mark.parametrize(
    ("at_ms", "told"), [(NOW_MS - 300_000, False), (NOW_MS - 300_001, True), (NOW_MS + 3_600_000, True), (None, True)]
)
def test_a_comparison_that_is_old_or_of_the_future_or_none_is_one(at_ms: int | None, told: bool) -> None:
    look = None if at_ms is None else AclLook(at_ms)
    kinds = [kind for kind, *_ in said(AclRecord(exists=True, look=look))]
    assert kinds == ([LinkFindingKind.ACLS_NOT_SEEN] if told else [])


def test_why_nothing_could_be_compared_is_told_but_not_of_a_source_that_is_away() -> None:
    record = AclRecord(exists=True, look=AclLook(NOW_MS, trouble="no right", hint="give it"))
    assert said(record) == [(LinkFindingKind.ACLS_NOT_SEEN, "ACLs could not be compared: no right", "give it")]
    assert said(record, source_answers=False) == []
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "read")
    [(kind, detail, _)] = said(error)
    assert (kind, "TOPIC_AUTHORIZATION_FAILED" in detail) == (LinkFindingKind.ACLS_NOT_SEEN, True)


def test_rights_that_nobody_gave_since_the_promotion_are_one() -> None:
    promoted = replace(RUNS, run=LinkRun(RunState.PROMOTED, "failover-1", NOW_MS))
    write, other = allow("a", WRITE, "orders"), allow("b", WRITE, "orders")
    record = AclRecord(exists=True, held=frozenset({write, other}), made=frozenset({other, allow("a", READ, "orders")}))
    [(kind, detail, step)] = said(record, promoted)
    assert (kind, step) == (LinkFindingKind.ACLS_HELD, "farshore acls apply --link east-west --promote")
    assert detail.startswith("1 ACLs were held back while west stood by")
    assert str(write) in detail
    assert said(replace(record, made=record.held), promoted) == []


def test_of_a_link_that_is_paused_or_never_ran_nothing_is_said() -> None:
    paused = replace(RUNS, run=LinkRun(RunState.PAUSED, "pause-1", NOW_MS))
    assert said(AclRecord(), paused) == said(AclRecord(), StateEntries(LINK)) == []
