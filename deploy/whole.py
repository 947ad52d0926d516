"""The whole of a configuration file as it holds, by its own keys: what it leaves out stands there with its default.

Secrets do not stand in the file, and the words of a program that is to be run may be some: of these, and of an
address's query, it is shown that they are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from broker.base.address import Address
from broker.base.documents import HIDDEN
from broker.client.security.settings import TlsVersion, shown_address
from broker.config import BrokerConfig
from deploy.config import Configuration
from deploy.defaults import MONITOR_LISTEN, SPARK_MASTER
from deploy.security import PathOf
from deploy.values import Table

_PROGRAMS: Final = ("_command", "_hook")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def whole_configuration(configuration: Configuration) -> dict[str, Any]:
    """As JSON or TOML has it. Paths hold in every folder; what has no default, and is not there, is left out."""
    path = configuration.path
    whole = _shown_table(configuration.model, path)
    whole["monitor"].setdefault("listen", MONITOR_LISTEN)
    whole["audit"].setdefault("master", SPARK_MASTER)
    for name, site in configuration.model.sites.items():
        shown = whole["sites"][name]
        if site.security is not None and site.security.has_tls:
            shown["security"].setdefault("tls_version_min", TlsVersion.TLS_1_2.value)
        if site.broker is not None:
            config = configuration.broker_config(name)
            shown["broker"] |= _defaults(site.broker, config, path)
            if not config.listeners:
                shown["broker"]["listen"] = str(Address(config.listen_host, config.listen_port))
        if site.cluster is not None:
            config = configuration.broker_config(name, site.brokers[0].node_id)
            shown["cluster"] |= _defaults(site.cluster, config, path)
    return whole


def _defaults(table: Table, config: BrokerConfig, path: PathOf) -> dict[str, Any]:
    """Of the keys that are not in this table. An empty one is as good as none, and some may not be written so."""
    missing = [key for key in type(table).model_fields if getattr(table, key) is None and hasattr(config, key)]
    found = {key: _shown(key, getattr(config, key), path) for key in missing}
    return {key: value for key, value in found.items() if value not in (None, [], {})}


def _shown_table(table: Table, path: PathOf) -> dict[str, Any]:
    given = {key: getattr(table, key) for key in type(table).model_fields}
    return {key: _shown(key, value, path) for key, value in given.items() if value is not None}


def _shown(key: str, value: Any, path: PathOf) -> Any:
    if isinstance(value, Table):
        return _shown_table(value, path)
    if isinstance(value, Mapping):
        return {name: _shown(name, each, path) for name, each in value.items()}
    if isinstance(value, Path):
        return str(path(value).absolute())
    if isinstance(value, Enum):
        return value.value
    if key == "pins":
        return sorted(f"{topic}:{partition}" for topic, partition in value)
    if isinstance(value, tuple):
        is_program = key.endswith(_PROGRAMS)
        return [HIDDEN if is_program and at else _shown(key, each, path) for at, each in enumerate(value)]
    if key == "token_endpoint":
        return shown_address(value)
    return value


def toml_of(whole: Mapping[str, Any]) -> str:
    """Tables below each other, as a file has them."""
    return "\n".join(_lines(whole, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    below = {key: value for key, value in table.items() if _has_tables(value)}
    for key, value in table.items():
        if key not in below:
            yield f"{_key_text(key)} = {json.dumps(value, ensure_ascii=False)}"  # whose texts and lists are TOML's, too
    for key, value in below.items():
        name = ".".join(map(_key_text, (*path, key)))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(value, list) or not all(map(_has_tables, each.values())):
                yield from ("", f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            yield from _lines(each, (*path, key))


def _has_tables(value: object) -> bool:
    return bool(value) and (isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)))


def _key_text(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
