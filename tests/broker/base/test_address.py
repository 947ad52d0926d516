from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.base.address import Address, AddressInvalid, parse_address


@given(st.sampled_from(["127.0.0.1", "kafka-1.example", "::1", "fe80::1"]), st.integers(1, 65_535))
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == (host, port)


@pytest.mark.parametrize("wrong", ["9600", "host:", ":9600", "a:b", "h:70000", "h:0", "h:-1", "h:\u00b2"])
def test_what_is_no_address(wrong: str) -> None:
    with pytest.raises(AddressInvalid, match="host:port"):
        parse_address(wrong)


def test_port_0_only_where_it_is_listened_on() -> None:
    assert parse_address("127.0.0.1:0", port_min=0).port == 0
