"""Whose right is missing: of the site that the error names, or of all at which farshore logs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.errors import KafkaError
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from deploy.cli.principals import told_principals

LOGIN = Security(sasl=Sasl(Mechanism.PLAIN, "shop", Secret(environment="P")))
SITES = {
    "east": Site("east", "127.0.0.1:1", security=LOGIN),
    "west": Site("west", "127.0.0.1:2", security=Security(tls=Tls(certificate_file=Path("mirror.pem")))),
    "north": Site("north", "127.0.0.1:3"),
}


@pytest.mark.parametrize(
    ("code", "what", "expected"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "configs of flights at east", "user shop at east"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g at west", "the subject of mirror.pem at west"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ACLs", "user shop at east, the subject of mirror.pem at west"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t at north", "whoever comes without a name (User:ANONYMOUS) at north"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "flights at east", ""),
    ],
)
def test_whose_right_is_missing(code: ErrorCode, what: str, expected: str) -> None:
    assert told_principals([KafkaError(code, what)], lambda: SITES) == expected
