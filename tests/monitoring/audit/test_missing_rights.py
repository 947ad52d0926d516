"""An audit says which rights it lacks: on what, where, and whose they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.errors import KafkaError, RequestTimedOut
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import AclOperation, AclResource
from monitoring.audit.document import as_document
from monitoring.audit.missing_rights import MissingRight, in_a_line, in_words, may_not_read, refused
from monitoring.audit.model import FrozenLink, FrozenSite
from monitoring.audit.ranges import plan
from monitoring.audit.report import as_html
from monitoring.audit.session import is_refusal
from monitoring.errors import NothingToCompare
from tests.monitoring.audit.test_report import EQUAL

READ, DESCRIBE, WRITE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE
LACKS = MissingRight("west", "Read", "topic", "flights")
LOGIN = Security(sasl=Sasl(Mechanism.PLAIN, "auditor", Secret(environment="PASSWORD")))


def test_of_all_answers_those_are_refusals_that_say_so() -> None:
    answers = {
        "b": KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "b at west"),
        "a": KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a at west"),
        "c": KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "c at west"),
        "d": RequestTimedOut("no answer"),
        "e": {"cleanup.policy": "delete"},
    }
    found = refused("west", AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, answers)
    assert list(found) == [MissingRight("west", "DescribeConfigs", "topic", name) for name in ("a", "b")]
    assert not list(refused("west", DESCRIBE, AclResource.GROUP, answers))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ({1: {("t", DESCRIBE), ("t", READ)}}, set()),
        ({1: {("t", DESCRIBE), ("t", WRITE)}}, {"t"}),
        ({1: {("t", DESCRIBE)}, 2: {("t", DESCRIBE), ("t", READ)}}, set()),  # one has not heard of it yet
        ({1: set()}, set()),  # it shows nothing of it, or tells no operations
        ({1: {("other", DESCRIBE)}}, set()),
    ],
)
def test_who_may_describe_a_topic_may_not_read_it_for_that(
    operations: dict[int, set[tuple[str, AclOperation]]], expected: set[str]
) -> None:
    assert may_not_read(["t"], operations) == expected


@pytest.mark.parametrize("told", ["Not authorized to access topics: [a, b]", "Topic authorization failed."])
def test_that_java_was_refused_is_known_from_what_it_says(told: str) -> None:
    assert is_refusal(f"Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: {told}")
    assert not is_refusal("org.apache.kafka.common.errors.TimeoutException: a-0")


def frozen(*missing: MissingRight) -> FrozenLink:
    east, west = (FrozenSite(name, "127.0.0.1:1", None, {}, LOGIN) for name in ("east", "west"))
    return FrozenLink("east-west", east, replace(west, security=Security()), 0, (), refused=missing)


def test_each_is_told_with_whose_it_is() -> None:
    group = MissingRight("east", "Describe", "group", "analysts")
    link = frozen(LACKS, group)
    assert in_words(link.missing_rights, link.principals) == [
        "whoever comes without a name (User:ANONYMOUS) at west lacks Read on the topic flights "
        "(TOPIC_AUTHORIZATION_FAILED)",
        "user auditor at east lacks Describe on the group analysts (GROUP_AUTHORIZATION_FAILED)",
    ]
    assert in_a_line([str(number) for number in range(7)]) == "0; 1; 2; 3; 4; and 2 more"


def test_an_audit_that_can_compare_nothing_names_them() -> None:
    with pytest.raises(NothingToCompare, match="lacks Read on the topic flights") as caught:
        plan(frozen(LACKS))
    assert "farshore link rights --command 'audit run'" in caught.value.hint
    with pytest.raises(NothingToCompare, match="it mirrors no topic yet") as caught:
        plan(frozen())
    assert "farshore status" in caught.value.hint


def test_a_document_has_them_and_not_whose_they_are() -> None:
    lacking = replace(EQUAL, frozen=replace(EQUAL.frozen, refused=(LACKS,), source=frozen().source))
    document = as_document(lacking)
    assert document["missing_rights"] == [{"site": "west", "operation": "Read", "resource": "topic", "name": "flights"}]
    page = as_html(lacking, "farshore audit run")
    assert "It lacks Read on the topic flights at west." in page
    assert "auditor" not in f"{document}{page}"
    assert "It lacks" not in as_html(EQUAL, "farshore audit run")
