"""Types of options that several commands share."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import click

from broker.base.address import Address, AddressInvalid, parse_address
from broker.base.durations import DurationInvalid, parse_duration_ms
from failover.errors import FailoverError
from failover.planning.to_datetime import parse_datetime
from mirror.resumption import GapName


class HostPort(click.ParamType[Address]):
    """`HOST:PORT`, or `[HOST]:PORT` for IPv6; port 0 stands for any free one where it is listened on."""

    name = "host:port"

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        try:
            return parse_address(value, port_min=0)
        except AddressInvalid:
            self.fail(f"{value!r} is not HOST:PORT, for example 127.0.0.1:9092", param, ctx)


class Moment(click.ParamType[int]):
    """A click type that gives Unix milliseconds of an ISO 8601 time with its zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_datetime(str(value))
        except FailoverError as error:
            self.fail(f"{error}; {error.hint}", param, ctx)


class GroupName(click.ParamType[str]):
    """A consumer group by its name, which is not empty and has no spaces around it."""

    name = "group"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value or value != value.strip():
            self.fail(f"{value!r} is no name of a group", param, ctx)
        return value


class PartitionName(click.ParamType[str]):
    """`TOPIC:PARTITION`."""

    name = "topic:partition"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        topic, _, partition = value.rpartition(":")
        if not (topic and partition.isascii() and partition.isdecimal()):
            self.fail(f"{value!r} is not TOPIC:PARTITION, for example flights:0", param, ctx)
        return f"{topic}:{int(partition)}"


class TopicPattern(click.ParamType[str]):
    """A regular expression that is matched with the whole of a topic's name."""

    name = "regex"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)
        if not value:
            self.fail("an empty expression names no topic", param, ctx)
        return value


class StartTime(NamedTuple):
    """Where the first record of this time or later is."""

    timestamp_ms: int


class StartOption(click.ParamType[int | StartTime]):
    """An offset, or an ISO 8601 time with its zone."""

    name = "offset|time"

    def convert(
        self, value: str | int | StartTime, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | StartTime:
        if not isinstance(value, str):
            return value
        return int(value) if value.isdecimal() else StartTime(Moment().convert(value, param, ctx))


class GapOption(click.ParamType[GapName]):
    """`TOPIC:PARTITION`, or `TOPIC:PARTITION@OFFSET` for the gap that begins at that source offset and no other."""

    name = "topic:partition[@offset]"

    def convert(self, value: str | GapName, param: click.Parameter | None, ctx: click.Context | None) -> GapName:
        if isinstance(value, GapName):
            return value
        place, at, offset = value.partition("@")
        topic, colon, partition = place.rpartition(":")
        if not (topic and colon and partition.isdecimal() and offset.isdecimal() == bool(at)):
            self.fail(
                f"{value!r} is not TOPIC:PARTITION or TOPIC:PARTITION@OFFSET, for example flights:0@800", param, ctx
            )
        return GapName(topic, int(partition), int(offset) if at else None)


class Duration(click.ParamType[int]):
    """A click type that gives milliseconds, at least `at_least_ms`, of `30s`, `2m` or `30`, which is seconds."""

    name = "duration"

    def __init__(self, at_least_ms: int) -> None:
        self._at_least_ms = at_least_ms

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "SECONDS|30s|2m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            duration_ms = parse_duration_ms(f"{value}s" if str(value).isdecimal() else str(value))
        except DurationInvalid as error:
            self.fail(str(error), param, ctx)
        if duration_ms < self._at_least_ms:
            self.fail(f"{value!r} is too short: at least {self._at_least_ms / 1000:g}s", param, ctx)
        return duration_ms
