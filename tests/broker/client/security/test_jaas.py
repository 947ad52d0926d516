"""`sasl.jaas.config`; what is expected here is what Kafka's own clients make of the same text."""

from __future__ import annotations

import pytest

from broker.client.security.jaas import JaasLogin, JaasMalformed, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (" required;", {}),
        (' required username="farshore" password="pencil";', {"username": "farshore", "password": "pencil"}),
        (" REQUIRED username = farshore\n  password='a \"b\" c' ; ", {"username": "farshore", "password": 'a "b" c'}),
        (' sufficient p="a\\"b\\\\c\\td\\101\\q;=";', {"p": 'a"b\\c\tdAq;='}),
        (' optional /* password="x" */ a="b" // c="d"\n e="f";', {"a": "b", "e": "f"}),
        (' required a="1" a="2" ssl.truststore.type=PEM;', {"a": "2", "ssl.truststore.type": "PEM"}),
        (' required password="";', {"password": ""}),
    ],
)
def test_as_kafka_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(MODULE + text) == JaasLogin(MODULE, options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with no class"),
        (MODULE, "begins with no class"),
        (f'{MODULE} username="hunter2";', "begins with no class"),
        (f'{MODULE} required username="hunter2"', "semicolon"),
        (f"{MODULE} required username hunter2;", "behind the class"),
        (f'{MODULE} required username="a" password=;', "behind username"),
        (f"{MODULE} required password=7hunter2;", "belong into quotes"),
        (f'{MODULE} required password="hunter2;', "a quote that does not end"),
        (f'{MODULE} required password="hunter2\n";', "a quote that does not end"),
        (f"{MODULE} required; {MODULE} required;", "more than one login"),
    ],
)
def test_what_kafka_refuses_is_named_and_not_shown(text: str, words: str) -> None:
    with pytest.raises(JaasMalformed, match=words) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)
