"""aiokafka's clients, as they are told to reach a site."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.access.users import new_credentials, write_users
from broker.client.applications import client_options
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from tests.broker.running import running_server
from tests.secrets_shown import shown

USER, PASSWORD = "shop", "canary-secret-7Qw"


async def test_a_login_by_plain_stands_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka logs each request under DEBUG, and the one of the login had the password in it."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="aiokafka")
    write_users(tmp_path / "users.json", {USER: new_credentials(PASSWORD)})
    (tmp_path / "password").write_text(PASSWORD)
    security = Security(None, Sasl(Mechanism.PLAIN, USER, Secret(file=tmp_path / "password")))
    async with running_server(
        tmp_path / "data",
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("PLAIN",),
        sasl_users_file=tmp_path / "users.json",
    ) as server:
        producer = AIOKafkaProducer(**await client_options(Site("east", server.address, security=security)))
        await producer.start()
        await producer.stop()
    told = [line.getMessage() for line in caplog.records if line.name.startswith("aiokafka")]
    assert any(line.startswith("Received cluster metadata") for line in told), "all is logged"
    assert f"Authenticated as {USER} via PLAIN" in told
    assert not shown({"the password": PASSWORD}, {"the log": caplog.text})
