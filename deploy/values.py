"""The values that keys of farshore.toml have, and what is wrong with those that are none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from broker.base.address import AddressInvalid, parse_address
from mirror.link import Pin

# Site names become prefixes of topics and parts of topic names, so they are of Kafka's alphabet; the dot separates.
NAME_PATTERN: Final = r"^[a-zA-Z0-9_-]{1,64}$"
AWS_REGION_PATTERN: Final = r"^[a-z]+(-[a-z0-9]+)+$"
KERBEROS_SERVICE_PATTERN: Final = r"^[^/@\s]+$"
ETCD_PREFIX_PATTERN: Final = r"^/(.+/)?$"
FORMS: Final = {
    NAME_PATTERN: "use 1 to 64 letters, digits, `_` and `-`",
    AWS_REGION_PATTERN: "write the region as AWS calls it, for example eu-west-1",
    KERBEROS_SERVICE_PATTERN: "write the name alone, for example kafka: no /, @ and blanks",
    ETCD_PREFIX_PATTERN: "begin and end it with /, for example /farshore/",
}
"""What has not the form of its key is told this."""


def _address(text: str) -> str:
    try:
        parse_address(text)
    except AddressInvalid as error:
        raise ValueError(str(error)) from error
    return text


def addresses(text: str) -> str:
    for server in text.split(","):
        _address(server)
    return text


def zookeeper(text: str) -> str:
    """ "host:port,host:port/chroot"."""
    servers, slash, chroot = text.partition("/")
    addresses(servers)
    if slash and (not chroot or not {"", ".", ".."}.isdisjoint(chroot.split("/"))):
        raise ValueError(f"{text!r}: write a chroot as /NAME or /NAME/NAME, or none")
    if "," in chroot:
        raise ValueError(f"{text!r}: the chroot is the same at all servers, and stands once, behind the last of them")
    return text


def _path(given: object) -> object:
    if given == "":
        raise ValueError("a path cannot be empty; name the file or the folder")
    return given


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f'{text!r}: write a principal as "User:NAME", or "User:*" for everybody but super users')
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _pin(given: object) -> object:
    """A partition's name as the topic and the number."""
    if not isinstance(given, str):
        return given
    topic, _, partition = given.rpartition(":")
    if not (topic and partition.isascii() and partition.isdecimal()):
        raise ValueError(f'{given!r}: write a partition as "TOPIC:PARTITION", for example "flights:0"')
    return topic, int(partition)


Regex = Annotated[str, AfterValidator(_regex)]
Principal = Annotated[str, AfterValidator(_principal)]
AddressText = Annotated[str, AfterValidator(_address)]
PinText = Annotated[Pin, BeforeValidator(_pin)]
FilePath = Annotated[Path, BeforeValidator(_path)]


class Table(BaseModel):
    """A table of the file: unknown keys are refused, so that a typing error is not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
