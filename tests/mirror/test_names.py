"""Sets of names against the regular expressions themselves."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.names import all_of, is_exact, literal, matching, may_have_any, none_of

WORDS = st.text("ab.-", max_size=5)
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        r"\.",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W",
        r"\d",
        "-",
        "(?=a)",
        "(?!a)",
        "(?!.*b)",
        "(?<=a)",
        "$",
        "^",
        r"\b",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{1,40}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"(?!{part})"),
        inner.map(lambda part: f"(?={part})"),
    ),
    max_leaves=6,
)


@given(st.one_of(PATTERNS, PATTERNS.map(lambda part: f"({part})b?\\1")), WORDS)
def test_a_name_that_matches_is_always_in_the_set_and_no_other_in_an_exact_one(pattern: str, word: str) -> None:
    found = may_have_any(all_of([matching(pattern), literal(word)]))
    matches = re.fullmatch(pattern, word) is not None
    assert found or not matches
    assert matches or not found or not is_exact(pattern)


@given(PATTERNS, PATTERNS, WORDS)
def test_sets_that_do_not_meet_have_no_word_in_common(first: str, second: str, word: str) -> None:
    both = re.fullmatch(first, word) and re.fullmatch(second, word)
    assert not both or may_have_any(all_of([matching(first), matching(second)]))


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ("flights", "f.*", True),
        ("flights", "orders-.*", False),
        ("[a-z.]+", r"east\..*", True),
        (r"(?:.+\.)?orders", r"east\..*", True),
        (r"(?!east\.).*", r"east\..*", False),
        (r"(?!orders$).*", "orders", False),
        (r"^flights$|^orders$", "trains", False),
        ("(?i)FLIGHTS", "flights", True),
        (r"(a|b)+x", r"[ab]{3}y", False),
        (".{1,249}", "x", True),
        ("[0-9]{3}", "[0-9]{4}", False),
    ],
)
def test_common_patterns_are_decided(first: str, second: str, meet: bool) -> None:
    assert may_have_any(all_of([matching(first), matching(second)])) is meet


def test_what_is_in_all_but_one_is_not_in_that_one() -> None:
    left = all_of([matching("[ab]{1,2}"), none_of(matching("a.*"))])
    assert may_have_any(all_of([left, literal("ba")]))
    assert not may_have_any(all_of([left, literal("ab")]))


def test_what_takes_too_long_to_decide_counts_as_possible() -> None:
    """The set of words whose 16th letter from the end is an a has 2^16 states."""
    assert may_have_any(all_of([matching("[ab]*a[ab]{15}"), none_of(matching("[ab]*a[ab]{15}[ab]?"))]))
