"""Spark's Kafka source and sink at a locked broker of farshore's own, by each way in, as the audit tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from monitoring.audit.locked import kafka_options
from tests.interop.test_locked_broker import PASSWORD, RECORDS, USER, WAYS, LockedBroker
from tests.interop.test_token_broker import LISTENERS, TokenBroker
from tests.issuer import a_token

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with LockedBroker(tmp_path_factory.mktemp("locked")) as server:
        yield server


@pytest.fixture(scope="module")
def by_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with TokenBroker(tmp_path_factory.mktemp("tokens")) as server:
        yield server


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_sink_and_source(spark: Any, locked: LockedBroker, topic: str, listener: str, mechanism: str) -> None:
    tls = Tls(locked.authority.certificate, locked.client.certificate, locked.client.key)
    secret = locked.folder / "password"
    secret.write_text(PASSWORD)
    sasl = Sasl(Mechanism(mechanism), USER, Secret(file=secret)) if mechanism else None
    security = Security(tls if listener.endswith("SSL") else None, sasl)
    written_and_read(spark, topic, {"kafka.bootstrap.servers": locked.at(listener), **kafka_options(security)})


@pytest.mark.parametrize("listener", LISTENERS)
def test_sink_and_source_by_a_token(
    spark: Any, by_tokens: TokenBroker, topic: str, listener: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(a_token())
    tls = Tls(by_tokens.authority.certificate) if listener == "SASL_SSL" else None
    security = Security(tls, Sasl(Mechanism.OAUTHBEARER, "", Secret(file=tmp_path / "token")))
    written_and_read(spark, topic, {"kafka.bootstrap.servers": by_tokens.at(listener), **kafka_options(security)})


def written_and_read(spark: Any, topic: str, options: Mapping[str, str]) -> None:
    rows = spark.range(len(RECORDS)).selectExpr("concat('record ', id) value")
    rows.write.format("kafka").options(**options, topic=topic).save()
    read = spark.read.format("kafka").options(**options, subscribe=topic).load()
    assert sorted(row.value for row in read.selectExpr("cast(value as string) value").collect()) == sorted(RECORDS)
