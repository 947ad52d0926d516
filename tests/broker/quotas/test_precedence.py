"""Which quota holds: Kafka's order, whatever else is set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.quotas.precedence import Limit, limit_of, limit_of_address

USER, CLIENT = "CN=shop", "app/1"
ORDER = [
    ("users/CN%3Dshop/clients/app%2F1", USER, CLIENT),
    ("users/CN%3Dshop/clients/<default>", USER, CLIENT),
    ("users/CN%3Dshop", USER, ""),
    ("users/<default>/clients/app%2F1", USER, CLIENT),
    ("users/<default>/clients/<default>", USER, CLIENT),
    ("users/<default>", USER, ""),
    ("clients/app%2F1", "", CLIENT),
    ("clients/<default>", "", CLIENT),
]
"""As the documentation of Kafka has it, with those who share each."""
OTHERS = ("users/other", "users/other/clients/app%2F1", "clients/other", "users/CN%3Dshop/clients/other", "ips/1.2.3.4")


@given(st.sets(st.sampled_from(ORDER)), st.sets(st.sampled_from(OTHERS)))
def test_the_most_particular_one_holds(given_: set[tuple[str, str, str]], others: set[str]) -> None:
    limits = {path: 1.0 + number for number, (path, *_) in enumerate(ORDER) if ORDER[number] in given_}
    found = limit_of({**limits, **dict.fromkeys(others, 99.0)}, USER, CLIENT)
    first = next((one for one in ORDER if one in given_), None)
    assert found == (None if first is None else Limit(limits[first[0]], *first[1:]))


def test_without_a_client_id_only_quotas_of_users_hold() -> None:
    limits = {path: 1.0 + number for number, (path, *_) in enumerate(ORDER)}
    assert limit_of(limits, USER, "") == Limit(3.0, USER, "")
    del limits["users/CN%3Dshop"]
    assert limit_of(limits, USER, "") == Limit(6.0, USER, "")
    del limits["users/<default>"]
    assert limit_of(limits, USER, "") is None


def test_a_client_that_is_called_as_the_default_is_another_one() -> None:
    assert limit_of({"clients/<default>": 1.0, "clients/%3Cdefault%3E": 2.0}, "u", "<default>") == (
        2.0,
        "",
        "<default>",
    )


def test_addresses_have_their_own_and_the_default() -> None:
    limits = {"ips/10.0.0.1": 1.0, "ips/%3A%3A1": 2.0, "ips/<default>": 3.0}
    assert [limit_of_address(limits, each) for each in ("10.0.0.1", "::1", "10.0.0.2")] == [1.0, 2.0, 3.0]
    assert limit_of_address({}, "10.0.0.1") is None
