"""The folder, the table and the ApiVersions reply say the same."""

from __future__ import annotations

from pathlib import Path

import broker.handlers as folder
from broker.handlers.table import HANDLERS, INTER_BROKER_HANDLERS, LOGIN_HANDLERS
from broker.wire.api import API, ApiKey
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.running import running_broker
from tests.broker.wire_client import connect


def test_every_module_of_the_folder_is_the_handler_of_its_name() -> None:
    modules = {path.stem for path in Path(folder.__path__[0]).glob("*.py")} - {
        "__init__",
        "altering",
        "handler",
        "ordered",
        "table",
    }
    served = [*INTER_BROKER_HANDLERS.values(), *LOGIN_HANDLERS.values()]
    assert {handler.api.name.lower() for handler in served} == modules
    assert all(int(handler.api) == key for key, handler in INTER_BROKER_HANDLERS.items())
    assert HANDLERS.items() <= INTER_BROKER_HANDLERS.items()


def test_only_versions_are_served_that_the_messages_have() -> None:
    for key, handler in INTER_BROKER_HANDLERS.items():
        low, high = handler.versions
        assert API[key].min_version <= low <= high <= API[key].max_version, handler.api.name


async def test_api_versions_promises_exactly_what_is_in_the_table(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        for version in range(5):
            response = await client.ask(ApiVersionsRequest("farshore-test", "1.0"), version, ApiVersionsResponse)
            promised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            assert promised == {key: handler.versions for key, handler in HANDLERS.items()}
            assert all(low <= high for low, high in promised.values())
            # Alone, `transaction.version` would switch Java to a protocol that is not served.
            assert not response.supported_features
            assert not response.finalized_features


def test_older_librdkafka_needs_produce_from_zero_and_some_clients_topic_ids() -> None:
    assert HANDLERS[ApiKey.PRODUCE].versions == (0, 13)
    assert HANDLERS[ApiKey.FETCH].versions == (4, 17)


async def test_a_software_name_out_of_kafkas_pattern_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        for name, version in (("-x", "1"), ("", "1"), ("ok", "1."), ("a b", "1")):
            response = await client.ask(ApiVersionsRequest(name, version), 3, ApiVersionsResponse)
            assert response.error_code == 42
