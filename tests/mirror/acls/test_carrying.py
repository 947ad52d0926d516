"""What ACLs of the source come to at the target: nothing is allowed there that the source does not allow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.acls import AclBinding, Acls
from broker.client.acl_bindings import Acl
from broker.client.acls import WriteDenial
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from failover.freezing.denials import leaving_mark_of, mark_of
from mirror.acls.carrying import carry, without_freezes
from mirror.link import TopicNames
from tests.mirror.acls.acls import (
    ALL,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    allow,
    deny,
    link_of,
    of_group,
    prefixed,
    scope_of,
)


def test_reading_is_given_and_writing_is_held() -> None:
    scope = scope_of(link_of("orders"), "orders")
    carried = carry(
        scope, [allow("app", READ, "orders"), allow("app", WRITE, "orders"), allow("app", DELETE, "orders")]
    )
    assert carried.standing == {allow("app", READ, "orders")}
    assert carried.held == {allow("app", WRITE, "orders"), allow("app", DELETE, "orders")}


def test_of_all_operations_those_that_read_are_given_and_all_are_held() -> None:
    carried = carry(scope_of(link_of("orders"), "orders"), [allow("app", ALL, "orders")])
    assert carried.standing == {allow("app", op, "orders") for op in (READ, DESCRIBE, DESCRIBE_CONFIGS)}
    assert carried.held == {allow("app", ALL, "orders")}


def test_denials_are_carried_whatever_they_deny() -> None:
    denials = [deny("app", WRITE, "orders"), deny("app", ALL, "orders", host="10.0.0.7")]
    carried = carry(scope_of(link_of("orders"), "orders"), denials)
    assert carried.standing == {*denials}
    assert not carried.held


def test_hosts_stay_and_names_are_the_targets() -> None:
    link = link_of("orders", topic_names="prefixed", principals={"User:app": "User:app-west"})
    carried = carry(
        scope_of(link, "orders"), [allow("app", READ, "orders", host="10.0.0.7"), allow("b", READ, "orders")]
    )
    assert carried.standing == {
        allow("app-west", READ, "east.orders", host="10.0.0.7"),
        allow("b", READ, "east.orders"),
    }


def test_topics_and_groups_that_the_link_does_not_carry_are_not_spoken_of() -> None:
    scope = scope_of(link_of("orders"), "orders", groups=("g-1",))
    acls = [
        allow("app", READ, "wages"),
        of_group(allow("app", READ, "other")),
        allow("app", ALL, "kafka-cluster", kind=AclResource.CLUSTER),
        allow("app", WRITE, "id", kind=AclResource.TRANSACTIONAL_ID),
    ]
    assert not carry(scope, acls).standing
    assert carry(scope, [of_group(allow("app", READ, "g-1"))]).standing == {of_group(allow("app", READ, "g-1"))}


def test_a_wildcard_is_written_out_for_what_is_mirrored() -> None:
    scope = scope_of(link_of("orders", "flights"), "orders", "flights", others=("wages",), groups=("g-1",))
    wild = [allow("app", READ, "*"), of_group(allow("app", READ, "*"))]
    carried = carry(scope, wild)
    named = {allow("app", READ, "orders"), allow("app", READ, "flights"), of_group(allow("app", READ, "g-1"))}
    assert carried.standing == named
    assert carried.written_out == tuple(sorted(wild))


@pytest.mark.parametrize(
    ("topics", "prefix", "others", "stays"),
    [
        (("orders-.*",), "orders-", (), True),
        (("orders.*",), "orders-", (), True),
        (("orders-eu",), "orders-", (), False),
        (("(?!orders-x).*",), "orders-", (), False),
        (("(?!orders-x).*",), "orders-e", (), True),
        ((".*",), "o", (), True),
        ((".*",), "_", (), False),  # __consumer_offsets and its like are not mirrored
        (("orders-.*",), "orders-", ("orders-local",), False),
    ],
)
def test_a_prefix_stays_one_only_where_all_of_it_is_mirrored(
    topics: tuple[str, ...], prefix: str, others: tuple[str, ...], stays: bool
) -> None:
    scope = scope_of(link_of(*topics), "orders-eu", "orders-eu-2", others=others)
    carried = carry(scope, [prefixed(allow("app", READ, prefix))])
    if stays:
        assert carried.standing == {prefixed(allow("app", READ, prefix))}
        assert not carried.written_out
    else:
        expected = {allow("app", READ, name) for name in ("orders-eu", "orders-eu-2") if name.startswith(prefix)}
        told = (prefixed(allow("app", READ, prefix)),) if expected else ()
        assert carried.standing == expected
        assert carried.written_out == told


def test_a_prefix_has_the_sites_name_before_it_where_topics_have() -> None:
    link = link_of("orders-.*", topic_names="prefixed")
    source = [prefixed(allow("app", READ, "orders-"))]
    assert carry(scope_of(link, "orders-eu"), source).standing == {prefixed(allow("app", READ, "east.orders-"))}
    local = scope_of(link, "orders-eu", others=("east.orders-local",))
    assert carry(local, source).standing == {allow("app", READ, "east.orders-eu")}


def test_a_prefix_that_may_come_round_is_written_out() -> None:
    """west.orders is at east what the link back brought: it is not mirrored, and named by `w`."""
    link = link_of(".*", topic_names="prefixed")
    assert carry(scope_of(link, "water"), [prefixed(allow("app", READ, "w"))]).standing == {
        allow("app", READ, "east.water")
    }


def test_where_a_denial_is_written_out_an_allowance_is_not_wider_than_it() -> None:
    """Else a topic that is new would be open to who is denied everything, until the next pass."""
    scope = scope_of(link_of("orders-.*"), "orders-eu")
    wide = prefixed(allow("app", READ, "orders-"))
    carried = carry(scope, [wide, deny("app", READ, "*"), prefixed(allow("other", READ, "orders-"))])
    assert carried.standing == {
        allow("app", READ, "orders-eu"),
        deny("app", READ, "orders-eu"),
        prefixed(allow("other", READ, "orders-")),
    }


def test_a_denial_of_a_topic_that_is_still_to_come_is_not_lost_beneath_a_prefix() -> None:
    """The mirror makes the topic at once, and its denial comes with the next pass: meanwhile nothing wider stands."""
    scope = scope_of(link_of("orders-.*"), "orders-eu")
    carried = carry(scope, [prefixed(allow("app", READ, "orders-")), deny("app", READ, "orders-wages")])
    assert carried.standing == {allow("app", READ, "orders-eu")}
    assert carried.written_out == (prefixed(allow("app", READ, "orders-")),)


def test_what_a_freeze_made_is_nobodys_right() -> None:
    """It would close the target as the source was closed, in the middle of a switchover."""
    denial = deny("*", WRITE, "orders")
    made = WriteDenial("orders", "User:*")
    mark = denial._replace(principal=mark_of(made, "switchover-1").principal)
    other = denial._replace(principal="User:bob")
    assert without_freezes([denial, mark, other]) == {other}
    leaving = denial._replace(principal=leaving_mark_of(made, "switchover-1").principal)
    assert without_freezes([denial, leaving, other]) == {other}
    assert without_freezes([denial, other]) == {denial, other}


NAMES = ("orders-eu", "orders-us", "wages", "orders")
PRINCIPALS = ("User:a", "User:b")
acl_values = st.builds(
    Acl,
    st.sampled_from([int(AclResource.TOPIC), int(AclResource.GROUP)]),
    st.sampled_from([*NAMES, "*", "o", "orders-", "wa"]),
    st.sampled_from([int(AclPattern.LITERAL), int(AclPattern.PREFIXED)]),
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([int(one) for one in AclOperation if one not in (AclOperation.ANY,)]),
    st.sampled_from([int(AclPermission.ALLOW), int(AclPermission.DENY)]),
)


@given(
    st.frozensets(acl_values, max_size=8),
    st.sampled_from([("orders-.*",), ("orders.*",), (".*",), ("orders", "wages"), ("(?!wa).*",)]),
    st.sampled_from(["same", "prefixed"]),
)
def test_nobody_may_more_at_the_target_than_at_the_source(
    source: frozenset[Acl], topics: tuple[str, ...], topic_names: TopicNames
) -> None:
    """Held against the rules of an authorizer, with all that stands and with what is held besides."""
    link = link_of(*topics, topic_names=topic_names)
    mirrored = [name for name in NAMES if link.selects_topic(name)]
    local = [link.target_topic(name) for name in NAMES if name not in mirrored]
    scope = scope_of(link, *mirrored, others=tuple(local), groups=("orders",))
    carried = carry(scope, source)
    at_source = Acls.of(AclBinding(*acl) for acl in source)
    standing = Acls.of(AclBinding(*acl) for acl in carried.standing)
    after = Acls.of(AclBinding(*acl) for acl in carried.standing | carried.held)
    writing = sum(1 << one for one in AclOperation if one not in (READ, DESCRIBE, DESCRIBE_CONFIGS))
    for principal, host in itertools.product(PRINCIPALS, ("10.0.0.1", "10.0.0.2")):
        for name in mirrored:
            there = link.target_topic(name)
            allowed = at_source.granted(principal, host, AclResource.TOPIC, name) or 0
            assert not (standing.granted(principal, host, AclResource.TOPIC, there) or 0) & (writing | ~allowed)
            assert (after.granted(principal, host, AclResource.TOPIC, there) or 0) == allowed
        for there in (*local, "elsewhere"):
            assert not after.granted(principal, host, AclResource.TOPIC, there)
        allowed = at_source.granted(principal, host, AclResource.GROUP, "orders") or 0
        assert (after.granted(principal, host, AclResource.GROUP, "orders") or 0) == allowed
        assert not after.granted(principal, host, AclResource.GROUP, "wages")


@given(
    st.frozensets(acl_values, max_size=8),
    st.sampled_from([("orders-.*",), ("orders.*",), (".*",), ("orders", "wages")]),
    st.sampled_from(["same", "prefixed"]),
    st.sampled_from(NAMES),
    st.sampled_from(["a", "*"]),
    st.sampled_from([READ, WRITE, ALL]),
)
def test_of_a_topic_that_is_born_between_two_passes_nobody_may_more_than_at_the_source(
    some: frozenset[Acl],
    topics: tuple[str, ...],
    topic_names: TopicNames,
    born: str,
    denied: str,
    operation: AclOperation,
) -> None:
    link = link_of(*topics, topic_names=topic_names)
    source = some | {deny(denied, operation, born), prefixed(allow("a", ALL, born[:2]))}
    carried = carry(scope_of(link, *(name for name in NAMES if link.selects_topic(name) and name != born)), source)
    at_source = Acls.of(AclBinding(*acl) for acl in source)
    after = Acls.of(AclBinding(*acl) for acl in carried.standing | carried.held)
    for principal, host in itertools.product(PRINCIPALS, ("10.0.0.1", "10.0.0.2")):
        allowed = at_source.granted(principal, host, AclResource.TOPIC, born) or 0
        assert not (after.granted(principal, host, AclResource.TOPIC, link.target_topic(born)) or 0) & ~allowed
