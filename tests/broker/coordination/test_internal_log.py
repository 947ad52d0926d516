"""Where a coordinator's key lies, and what a log that cannot be read to its end does to a start."""

import os
from pathlib import Path

import pytest

from broker.coordination.internal_log import Entry
from broker.errors import LogDamaged
from broker.wire.coordinator_keys import OFFSETS_TOPIC, java_string_hash, partition_for
from tests.broker.coordinator_host import start


@pytest.mark.parametrize(("text", "value"), [("", 0), ("a", 97), ("Aa", 2112), ("😀", 1_772_899)])
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_of_the_smallest_hash_is_zero() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0


def test_a_replay_that_does_not_get_on_is_damage_and_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = start(tmp_path).groups.log
    for number in range(3):
        state.append("group", [Entry(b"%d" % number, b"value")])
    assert len(list(state.replay())) == 3
    (path,) = (tmp_path / "data" / f"{OFFSETS_TOPIC}-0").glob("*.log")
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"\xff" * 8, 0)
    os.close(fd)
    monkeypatch.setattr("broker.coordination.internal_log.COORDINATOR_LOAD_BYTES", 100)
    with pytest.raises(LogDamaged, match=r"has no batch with offset 0 at 0"):
        list(state.replay())
