"""What is wrong with a key of farshore.toml is told in words for that key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from deploy.config import parse
from deploy.errors import ConfigError
from deploy.values import FORMS, Table

SITES = """
[sites.east]
bootstrap_servers = "127.0.0.1:9092"
{security}
[sites.west]
bootstrap_servers = "127.0.0.1:9093"
{rest}
"""
REGION = '[sites.east.security]\nprotocol = "SASL_SSL"\nmechanism = "OAUTHBEARER"\ntoken_aws_region = "Ireland"'
SERVICE = '[sites.east.security]\nprotocol = "SASL_SSL"\nmechanism = "GSSAPI"\nkerberos_service_name = "kafka/east"'


@pytest.mark.parametrize(
    ("security", "rest", "told"),
    [
        (REGION, "", "sites.east.security.token_aws_region: write the region as AWS calls it, for example eu-west-1"),
        (SERVICE, "", "sites.east.security.kerberos_service_name: write the name alone, for example kafka: no /, @"),
        ("", '[fleet]\netcd = ["127.0.0.1:2379"]\nprefix = "ours"', "fleet.prefix: begin and end it with /, for exa"),
        ("", '[sites."a b"]\nbootstrap_servers = "127.0.0.1:1"', "sites.a b: use 1 to 64 letters, digits, `_` and `-`"),
    ],
)
def test_what_has_not_the_form_of_its_key_is_told_that_form(security: str, rest: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(SITES.format(security=security, rest=rest), Path("farshore.toml"))
    assert told in str(caught.value)


def test_each_form_has_words() -> None:
    known = {pattern for table in tables(Table) for field in table.model_fields.values() for pattern in patterns(field)}
    assert known == FORMS.keys()


def tables(table: type[Table]) -> Iterator[type[Table]]:
    for each in table.__subclasses__():
        yield each
        yield from tables(each)


def patterns(told: Any) -> Iterator[str]:
    """Of a field's own, and of what its type is made of."""
    for one in (*getattr(told, "metadata", ()), *getattr(told, "__metadata__", ())):
        if isinstance(found := getattr(one, "pattern", None), str):
            yield found
        elif hasattr(one, "metadata"):
            yield from patterns(one)
    for inner in (getattr(told, "annotation", None), *get_args(told)):
        if inner is not None and inner is not told:
            yield from patterns(inner)
