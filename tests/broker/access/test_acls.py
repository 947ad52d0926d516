"""What ACLs allow, held against one that goes over all of them, and what each of Kafka's rules comes to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.acls import (
    AclBinding,
    AclFilter,
    AclInvalid,
    Acls,
    ResourcePattern,
    check_binding,
    check_filter,
    host_of,
)
from broker.wire.vocabulary import (
    ANY_HOST,
    CLUSTER_NAME,
    EVERYBODY,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

SHOP, HOST = "User:shop", "10.0.0.1"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
OPERATIONS = [one for one in AclOperation if one not in (AclOperation.ANY, AclOperation.ALL)]
IMPLIES = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def acl(
    name: str = "flights",
    operation: AclOperation = AclOperation.READ,
    permission: AclPermission = ALLOW,
    pattern: AclPattern = LITERAL,
    principal: str = SHOP,
    host: str = ANY_HOST,
    kind: AclResource = AclResource.TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def is_about(one: AclBinding, kind: int, name: str) -> bool:
    if one.resource_type != kind:
        return False
    if one.pattern_type == PREFIXED:
        return name.startswith(one.resource_name)
    return one.resource_name in ("*", name)


def naive(acls: Iterable[AclBinding], principal: str, host: str, operation: AclOperation, name: str) -> bool | None:
    """As Kafka's StandardAuthorizer says it, word for word; None: there is no ACL about the topic."""
    about = [one for one in acls if is_about(one, AclResource.TOPIC, name)]
    mine = [one for one in about if one.principal in (principal, EVERYBODY) and one.host in (host, ANY_HOST)]
    exact = {operation, AclOperation.ALL}
    if any(one.permission_type == DENY and one.operation in exact for one in mine):
        return False
    wide = exact | IMPLIES.get(operation, set())
    if any(one.permission_type == ALLOW and one.operation in wide for one in mine):
        return True
    return False if about else None


NAMES = st.sampled_from(["a", "ab", "abc", "abd", "b", "ba", "*"])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([SHOP, "User:other", EVERYBODY]),
    st.sampled_from([HOST, "10.0.0.2", ANY_HOST]),
    st.sampled_from([one for one in AclOperation if one is not AclOperation.ANY]),
    st.sampled_from([ALLOW, DENY]),
)


@given(st.lists(BINDINGS, max_size=12), NAMES, st.sampled_from([HOST, "10.0.0.3"]))
def test_it_decides_as_one_that_goes_over_all_of_them(bindings: list[AclBinding], name: str, host: str) -> None:
    granted = Acls.of(bindings).granted(SHOP, host, AclResource.TOPIC, name)
    for operation in OPERATIONS:
        expected = naive(bindings, SHOP, host, operation, name)
        assert (None if granted is None else bool(granted >> operation & 1)) == expected, operation


def naive_somewhere(acls: Iterable[AclBinding], operation: AclOperation) -> bool:
    """Kafka's Authorizer.authorizeByResourceType, without what it asks first."""
    exact = (operation, AclOperation.ALL)
    mine = [
        one
        for one in acls
        if one.resource_type == AclResource.TOPIC
        and one.principal in (SHOP, EVERYBODY)
        and one.host in (HOST, ANY_HOST)
        and one.operation in exact
    ]
    denied = {(one.pattern_type, one.resource_name) for one in mine if one.permission_type == DENY}
    if (LITERAL, "*") in denied:
        return False
    for one in mine:
        if one.permission_type == DENY:
            continue
        name = one.resource_name
        if one.pattern_type == LITERAL and name == "*":
            return True
        if one.pattern_type == LITERAL and (LITERAL, name) in denied:
            continue
        if not any((PREFIXED, name[: end + 1]) in denied for end in range(len(name))):
            return True
    return False


@given(st.lists(BINDINGS, max_size=8))
def test_whether_something_is_allowed_anywhere(bindings: list[AclBinding]) -> None:
    found = Acls.of(bindings).grants_somewhere(SHOP, HOST, AclOperation.WRITE, AclResource.TOPIC)
    assert found is naive_somewhere(bindings, AclOperation.WRITE)


@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, max_size=12))
def test_a_change_leaves_what_it_changes_and_all_else(before: list[AclBinding], after: list[AclBinding]) -> None:
    acls, wanted = Acls.of(before), Acls.of(after)
    changed = {one.pattern: wanted.at(one.pattern) for one in (*before, *after) if one.resource_name != "b"}
    other = acls.replaced(changed)
    assert set(acls) == set(before), "the one that was there is as it was"
    kept = {one for one in before if one.resource_name == "b"}
    assert set(other) == kept | {one for one in after if one.resource_name != "b"}
    for name in ("a", "abc", "b"):
        whole = Acls.of(other)
        assert other.granted(SHOP, HOST, 2, name) == whole.granted(SHOP, HOST, 2, name)


def allows(acls: Iterable[AclBinding], operation: AclOperation, name: str = "flights", host: str = HOST) -> bool:
    return bool((Acls.of(acls).granted(SHOP, host_of(host), AclResource.TOPIC, name) or 0) >> operation & 1)


def test_a_denial_goes_before_whatever_allows() -> None:
    allowed = [acl(), acl("*", AclOperation.ALL), acl("fl", pattern=PREFIXED, principal=EVERYBODY)]
    assert allows(allowed, AclOperation.READ)
    for denial in (acl(permission=DENY), acl("*", AclOperation.ALL, DENY), acl("f", permission=DENY, pattern=PREFIXED)):
        assert not allows([*allowed, denial], AclOperation.READ)
    assert allows([*allowed, acl(permission=DENY)], AclOperation.DESCRIBE), "a denied READ denies nothing else"
    assert allows([*allowed, acl(operation=AclOperation.DESCRIBE, permission=DENY)], AclOperation.READ)


def test_a_prefix_is_a_prefix_to_the_letter() -> None:
    acls = [acl("flig", pattern=PREFIXED)]
    assert allows(acls, AclOperation.READ, "flig")
    assert allows(acls, AclOperation.READ, "flights")
    assert not allows(acls, AclOperation.READ, "fli")
    assert not allows(acls, AclOperation.READ, "flog")
    assert not allows([acl("*", pattern=PREFIXED)], AclOperation.READ), "a prefix * is of names that begin with one"


def test_an_address_is_one_however_it_is_written() -> None:
    of_mapped = [acl(host="::ffff:10.0.0.1")]
    assert allows(of_mapped, AclOperation.READ)
    assert allows([acl(host=HOST)], AclOperation.READ, host="::ffff:10.0.0.1")
    assert allows([acl(host="0:0:0:0:0:0:0:1")], AclOperation.READ, host="::1"), "as Java writes it"
    assert allows([acl(host="fe80::1")], AclOperation.READ, host="fe80::1%eth0")
    assert not allows([acl(host="10.0.0.2")], AclOperation.READ)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (acl(kind=AclResource.DELEGATION_TOKEN), "DELEGATION_TOKEN"),
        (acl(kind=AclResource.USER), "USER"),
        (acl(kind=AclResource.ANY), "ANY"),
        (acl()._replace(resource_type=77), "77"),
        (acl(pattern=AclPattern.MATCH), "MATCH"),
        (acl(pattern=AclPattern.ANY), "ANY"),
        (acl(""), "empty resource name"),
        (acl("other", kind=AclResource.CLUSTER), CLUSTER_NAME),
        (acl(operation=AclOperation.ANY), "operation ANY"),
        (acl()._replace(operation=13), "operation 13"),
        (acl(permission=AclPermission.ANY), "permissionType ANY"),
        (acl(principal="shop"), "User:NAME"),
        (acl(host=""), "host"),
    ],
)
def test_what_is_no_acl_is_refused_in_words(wrong: AclBinding, told: str) -> None:
    with pytest.raises(AclInvalid, match=told):
        check_binding(wrong)


def test_what_is_one_is_not_refused() -> None:
    check_binding(acl())
    check_binding(acl(CLUSTER_NAME, AclOperation.ALL, DENY, kind=AclResource.CLUSTER))
    check_binding(acl("tx", AclOperation.WRITE, pattern=PREFIXED, kind=AclResource.TRANSACTIONAL_ID))
    check_filter(AclFilter(1, None, 1, None, None, 1, 1))
    for place in (0, 2, 5, 6):
        given_codes: list[object] = [1, None, 1, None, None, 1, 1]
        given_codes[place] = 99
        with pytest.raises(AclInvalid, match="99"):
            check_filter(AclFilter(*given_codes))  # type: ignore[arg-type]


def test_filters_take_what_they_name() -> None:
    acls = Acls.of([acl(), acl("*"), acl("fl", pattern=PREFIXED), acl("orders"), acl(permission=DENY)])

    def taken(name: str | None, pattern: AclPattern, permission: AclPermission = AclPermission.ANY) -> list[str]:
        wanted = AclFilter(AclResource.TOPIC, name, pattern, None, None, AclOperation.ANY, permission)
        return [f"{at.name} {AclPattern(at.pattern_type).name}" for at in acls.taken_by(wanted)]

    assert taken("flights", LITERAL) == ["flights LITERAL"]
    assert taken("flights", AclPattern.ANY) == ["flights LITERAL"]
    assert taken("flights", AclPattern.MATCH) == ["* LITERAL", "fl PREFIXED", "flights LITERAL"]
    assert taken("fl", PREFIXED) == ["fl PREFIXED"]
    assert taken(None, PREFIXED) == ["fl PREFIXED"]
    assert taken("flights", AclPattern.MATCH, DENY) == ["flights LITERAL"]
    assert not acls.taken_by(AclFilter(AclResource.GROUP, None, AclPattern.ANY, None, None, 1, 1))
    assert ResourcePattern.of_text(ResourcePattern(2, "a:b", 4).text) == ResourcePattern(2, "a:b", 4)


def test_ten_thousand_acls_are_not_gone_over() -> None:
    few = Acls.of([acl(f"topic-{n}", pattern=PREFIXED) for n in range(10)])
    many = Acls.of(
        [acl(f"topic-{n}", pattern=PREFIXED if n % 2 else LITERAL) for n in range(5_000)]
        + [acl("flights", principal=f"User:{n}") for n in range(5_000)]
    )

    def shortest_s(acls: Acls) -> float:
        def once() -> float:
            start = time.perf_counter()
            for _ in range(100):
                acls.granted(SHOP, HOST, AclResource.TOPIC, "topic-4711")
                acls.granted(SHOP, HOST, AclResource.TOPIC, "flights")
            return time.perf_counter() - start

        return min(islice(iter(once, None), 5))

    assert shortest_s(many) < 10 * shortest_s(few)
