"""Where a coordinator's key lies."""

import pytest

from broker.coordination.internal_log import java_string_hash, partition_for


@pytest.mark.parametrize(("text", "value"), [("", 0), ("a", 97), ("Aa", 2112), ("😀", 1_772_899)])
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_of_the_smallest_hash_is_zero() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
