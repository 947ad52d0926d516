"""Many names, asked of many regular expressions."""

from __future__ import annotations

import re

import pytest

from broker.base.expressions import any_of
from broker.wire.site_role import SiteRole, SiteStanding


@pytest.mark.parametrize(
    ("expressions", "yes", "no"),
    [
        (("orders",), ["orders"], ["order", "orders2", ""]),
        ((r"orders\.v1", r"orders\-2"), ["orders.v1", "orders-2"], ["ordersxv1", r"orders\.v1"]),
        (("orders.v1",), ["orders.v1", "ordersxv1"], ["orders.v12"]),
        (("(?i)orders", r"(a)b\1", r"(.)\1"), ["ORDERS", "aba", "zz"], ["FLIGHTS", "abb", "az"]),
        ((".*",), ["", "orders"], []),
        ((), [], ["orders"]),
    ],
)
def test_an_expression_matches_a_name_in_full(expressions: tuple[str, ...], yes: list[str], no: list[str]) -> None:
    matches = any_of(expressions)
    assert [name for name in (*yes, *no) if matches(name)] == yes


def test_a_site_of_many_topics_that_is_closed_to_many_compiles_each_expression_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 of each took 15 s, in which nothing else was done: each was compiled anew for each name."""
    compiled: list[str] = []
    compile_one = re.compile

    def compile_and_note(one: str) -> re.Pattern[str]:
        compiled.append(one)
        return compile_one(one)

    monkeypatch.setattr(re, "compile", compile_and_note)
    expressions = tuple(f"orders-{number}-.*" for number in range(600))
    standing = SiteStanding(SiteRole.STANDBY, 1, "", expressions)
    assert not any(standing.refuses(f"flights-{number}") for number in range(20))
    assert compiled == list(expressions)
