"""What a link may select, by its expressions alone."""

from __future__ import annotations

import pytest

from broker.client.site import Site
from mirror.link import Link
from mirror.origins import may_select

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("flights", "hotels"))


@pytest.mark.parametrize(
    ("expressions", "but", "may"),
    [
        (("flights",), (), True),
        (("bills",), (), False),
        (("flights",), ("flights",), False),
        (("flights", "hotels"), ("hotels",), True),
        ((".*",), ("flights|hotels",), False),
        (("flights",), ("(?i:hotels)",), True),
    ],
)
def test_what_is_left_out_is_so_as_far_as_it_is_known(
    expressions: tuple[str, ...], but: tuple[str, ...], may: bool
) -> None:
    assert may_select(LINK, expressions, but) is may
