"""Listeners out of Kafka's words, and what is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.access.listeners import Listener, SecurityProtocol, named_listeners
from broker.base.address import Address
from broker.config import BrokerConfig

INTERNAL, SECURE = "INTERNAL://127.0.0.1:9092", "SECURE://0.0.0.0:9093"
PROTOCOLS = {"INTERNAL": "PLAINTEXT", "SECURE": "SASL_SSL"}

LOGGED_IN: dict[str, Any] = {
    "listeners": ("SASL_PLAINTEXT://127.0.0.1:9092",),
    "sasl_enabled_mechanisms": ("SCRAM-SHA-512",),
    "sasl_users_file": Path("users.json"),
}
OUTSIDE = {
    "listeners": ("SASL_PLAINTEXT://0.0.0.0:9092",),
    "advertised_listeners": ("SASL_PLAINTEXT://east.example:9092",),
}


def test_each_has_its_address_its_protocol_and_what_clients_are_told() -> None:
    internal, secure = named_listeners([INTERNAL, SECURE], ["SECURE://east.example:443"], PROTOCOLS)
    assert internal == Listener("INTERNAL", Address("127.0.0.1", 9092))
    assert internal.advertised(Address("127.0.0.1", 9092)) == ("127.0.0.1", 9092)
    assert (secure.name, secure.protocol) == ("SECURE", SecurityProtocol.SASL_SSL)
    assert secure.advertised(Address("0.0.0.0", 9093)) == ("east.example", 443)
    assert str(secure) == SECURE


def test_a_protocol_is_a_name_and_needs_no_entry_in_the_map() -> None:
    found = named_listeners(["SSL://127.0.0.1:1", "SASL_PLAINTEXT://[::1]:2"], [], {})
    assert [each.protocol for each in found] == ["SSL", "SASL_PLAINTEXT"]
    assert [(each.protocol.has_tls, each.protocol.has_login) for each in found] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        *((host, False) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, True) for host in ("0.0.0.0", "::", "10.0.0.1", "east.example")),
    ],
)
def test_whether_other_machines_reach_it(host: str, is_open: bool) -> None:
    assert Listener("PLAINTEXT", Address(host, 9092)).is_open_to_others is is_open


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": ("127.0.0.1:9092",)}, "listeners has '127.0.0.1:9092': write NAME://host:port"),
        ({"listeners": ("SSL://127.0.0.1",)}, "listeners has 'SSL://127.0.0.1'"),
        ({"listeners": ("IN://127.0.0.1:1",)}, "listener_security_protocol_map lacks IN"),
        ({"listeners": ("SSL://h:1", "SSL://h:2")}, "listeners has SSL twice"),
        ({"listeners": ("SSL://h:1", "PLAINTEXT://h:1")}, "listeners has port 1 twice"),
        ({"listeners": ("SSL://0.0.0.0:1",)}, "advertised_listeners lacks SSL: 0.0.0.0 cannot be told"),
        (
            {"listeners": ("SSL://h:1",), "advertised_listeners": ("SSL://0.0.0.0:1",)},
            "advertised_listeners has 0.0.0.0:1 for SSL",
        ),
        (
            {"listeners": ("SSL://h:1",), "advertised_listeners": ("OUT://h:1",)},
            "advertised_listeners names OUT, which is none of the listeners: SSL",
        ),
        (
            {"listeners": ("IN://h:1",), "listener_security_protocol_map": {"IN": "TLS"}},
            "listener_security_protocol_map has 'TLS' for IN",
        ),
        (
            {"listeners": ("SSL://h:1",), "listener_security_protocol_map": {"OUT": "SSL"}},
            "listener_security_protocol_map names OUT",
        ),
        ({"advertised_listeners": ("PLAINTEXT://h:1",)}, "advertised_listeners is there without listeners"),
        ({"listeners": ("PLAINTEXT://h:1",), "listen_port": 9}, "listen and listeners are both there"),
        ({"listeners": ("PLAINTEXT://h:1",), "advertised_host": "h"}, "give advertised_listeners"),
        (
            {
                "listeners": ("INTERNAL://h:1",),
                "listener_security_protocol_map": {"INTERNAL": "PLAINTEXT"},
                "zookeeper": "zk:2181",
            },
            "listeners has INTERNAL",
        ),
    ],
)
def test_what_is_no_listener_is_told_by_its_setting(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        BrokerConfig(tmp_path, **given)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"zookeeper": "zk:2181", **LOGGED_IN, **OUTSIDE},
            "0.0.0.0:0 between the brokers would ask nobody who he is, and clients are asked elsewhere",
        ),
        (
            {
                "zookeeper": "zk:2181",
                **LOGGED_IN,
                "inter_broker_listen_host": "10.0.0.1",
                "inter_broker_listen_port": 9,
            },
            "10.0.0.1:9 between the brokers would ask nobody",
        ),
        (
            {
                "zookeeper": "zk:2181",
                "listeners": ("PLAINTEXT://127.0.0.1:1", "SSL://10.0.0.1:2"),
                "inter_broker_listen_host": "10.0.0.1",
                "ssl_certificate_file": Path("east.pem"),
                "ssl_client_ca_file": Path("ca.pem"),
                "ssl_client_auth": "requested",
            },
            "10.0.0.1:0 between the brokers would ask nobody",
        ),
    ],
)
def test_brokers_that_would_believe_strangers_do_not_start(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    """Other commands read such settings, and go on: nobody would fail over before a file was edited."""
    config = BrokerConfig(tmp_path, **given)
    with pytest.raises(ValueError, match=r"^") as caught:
        config.check_start()
    assert told in str(caught.value)
    assert all(
        word in str(caught.value)
        for word in (
            *(
                'security_inter_broker_protocol = "SSL"',
                "ssl_certificate_file",
                "ssl_key_file",
                "ssl_client_ca_file",
                "stop all brokers",
            ),
            "inter_broker_plaintext_beside_logins = true",
        )
    )
    replace(config, inter_broker_plaintext_beside_logins=True).check_start()


@pytest.mark.parametrize(
    "given",
    [
        {"zookeeper": "zk:2181", **LOGGED_IN},
        {"zookeeper": "zk:2181", **LOGGED_IN, **OUTSIDE, "inter_broker_listen_host": "127.0.0.1"},
        {"zookeeper": "zk:2181", "inter_broker_listen_host": "10.0.0.1"},
        {**LOGGED_IN, **OUTSIDE},
    ],
)
def test_brokers_need_no_tls_where_nobody_else_reaches_them_or_nobody_is_asked(
    given: dict[str, Any], tmp_path: Path
) -> None:
    config = BrokerConfig(tmp_path, **given)
    config.check_start()
    assert not config.has_inter_broker_tls


def test_the_old_settings_are_one_listener(tmp_path: Path) -> None:
    config = BrokerConfig(tmp_path, listen_host="0.0.0.0", listen_port=9, advertised_host="east")
    only = Listener("PLAINTEXT", Address("0.0.0.0", 9), SecurityProtocol.PLAINTEXT, "east")
    assert config.client_listeners() == (only,)
