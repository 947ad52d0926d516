"""Lines of the journal read without opening their evidence: they say what the whole of them says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.errors import JournalDamaged
from failover.journal.lines import Detail, fields_of
from failover.journal.values import GENESIS_HASH, JournalEntry, read_operations

LOOKALIKE = '},"event":"done","operation_id":"other","previous_hash":"' + "a" * 64 + '","sequence":7,"v":1}'
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from([LOOKALIKE, '{"at_ms":1,"detail":{', "", '"', "\\"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


def entry(detail: dict[str, Any], operation_id: str = "one", event: str = "step") -> JournalEntry:
    return JournalEntry(3, 1_700_000_000_000, operation_id, event, detail, "0f" * 32)


@given(detail=st.dictionaries(TEXTS, VALUES, max_size=4), operation_id=TEXTS, event=TEXTS)
def test_every_line_of_ours_says_the_same_opened_or_not(detail: dict[str, Any], operation_id: str, event: str) -> None:
    line = entry(detail, operation_id, event).line().encode()
    found = fields_of(line)
    assert found == json.loads(line)


def test_the_evidence_is_opened_when_it_is_asked_for() -> None:
    line = entry({"moves": [LOOKALIKE]}).line().encode()
    found = fields_of(line.replace(b'"moves":[', b'"moves":]'))
    assert found is not None
    assert found["sequence"] == 3
    with pytest.raises(JournalDamaged, match="cannot be read"):
        found["detail"]["moves"]


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"v": 2, "sequence": 0, "detail": {}}).encode(),
        b'{"at_ms":1,"detail":{}}',
        b'{"at_ms":1,"detail":[1],"event":"step","operation_id":"one","previous_hash":"' + b"0" * 64 + b'","v":2}',
    ],
)
def test_a_line_that_others_wrote_is_opened_at_once(line: bytes) -> None:
    found = fields_of(line)
    assert found == json.loads(line)
    assert not isinstance((found or {}).get("detail"), Detail)


@pytest.mark.parametrize("line", [b"", b"7", b"not json", b"\xff"])
def test_what_is_no_object_is_none(line: bytes) -> None:
    assert fields_of(line) is None


def test_a_last_entry_that_nobody_can_open_is_damage_and_those_before_it_stand() -> None:
    """No entry follows that would say what it was."""
    first = JournalEntry(0, 1, "one", "planned", {"who": "ann"}, GENESIS_HASH)
    last = JournalEntry(1, 2, "one", "finished", {"verified": True}, first.hash())
    (key, value), *_ = last.records()
    log = read_operations([*first.records(), (key, value.replace(b"true", b"tru!"))])["one"]
    assert log.entries == (first,)
    assert "entry 1 cannot be read" in log.damage
    assert not log.is_ended
