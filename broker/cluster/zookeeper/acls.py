"""ACLs in Apache Kafka 3.9's znodes: one for each pattern of resources, and notifications of those that changed.

Kafka keeps literal patterns, which it had first, apart from prefixed ones, and so are their notifications.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from broker.access.acls import AclBinding, AclInvalid, ResourcePattern
from broker.cluster.metadata import UNWRITTEN, PatternAcls
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import BadVersion, NodeExists, NoNode
from broker.cluster.zookeeper.requests import sweep_changes
from broker.cluster.zookeeper.session import Create, Delete, Operation, SetData, ZooKeeper, catch_up
from broker.cluster.zookeeper.topics import read_each
from broker.cluster.zookeeper.values import as_text
from broker.wire.vocabulary import RESOURCE_OPERATIONS, AclOperation, AclPattern, AclPermission, AclResource

_FOLDERS: Final = {AclPattern.LITERAL: "/kafka-acl", AclPattern.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Final = {AclPattern.LITERAL: "/kafka-acl-changes", AclPattern.PREFIXED: "/kafka-acl-extended-changes"}
_CHANGE_PREFIX: Final = "acl_changes_"
_VERSION: Final = 1
PATTERNS_AT_ONCE: Final = 100
ACLS_AT_ONCE: Final = 1_000
"""In one transaction."""


def _word(name: str) -> str:
    """TRANSACTIONAL_ID is TransactionalId."""
    return "".join(part.capitalize() for part in name.split("_"))


_KINDS: Final = [_word(kind.name) for kind in AclResource if kind is not AclResource.ANY]
_OPERATIONS: Final = {_word(one.name): one for one in AclOperation if one is not AclOperation.ANY}
_PERMISSIONS: Final = {_word(one.name): one for one in AclPermission if one is not AclPermission.ANY}
_UNSTORABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff/]|^\.{1,2}\Z")

ACL_PATHS: Final = (
    "/kafka-acl-extended",
    *_FOLDERS.values(),
    *CHANGES.values(),
    *(f"{folder}/{kind}" for folder in _FOLDERS.values() for kind in _KINDS),
)
"""Parents first."""


def _path(pattern: ResourcePattern) -> str:
    kind = _word(AclResource(pattern.resource_type).name)
    return f"{_FOLDERS[AclPattern(pattern.pattern_type)]}/{kind}/{pattern.name}"


async def read_acls(zk: ZooKeeper, patterns: Collection[ResourcePattern] | None) -> dict[ResourcePattern, PatternAcls]:
    await catch_up(zk)
    listed = [each async for each in _listed(zk)] if patterns is None else list(patterns)
    found = await read_each(listed, lambda pattern: _read(zk, pattern))
    there = zip(listed, found, strict=True)
    return {pattern: acls for pattern, acls in there if patterns is not None or acls.version != UNWRITTEN}


async def _listed(zk: ZooKeeper) -> Any:
    for pattern_type, folder in _FOLDERS.items():
        for kind in RESOURCE_OPERATIONS:
            word = _word(kind.name)
            for name in await zk.children(f"{folder}/{word}"):
                yield ResourcePattern(kind, name, pattern_type)


async def _read(zk: ZooKeeper, pattern: ResourcePattern) -> PatternAcls:
    if _UNSTORABLE.search(pattern.name) or pattern.resource_type not in RESOURCE_OPERATIONS:
        return PatternAcls()
    path = _path(pattern)
    try:
        data, stat = await zk.get(path)
    except NoNode:
        return PatternAcls()
    try:
        return PatternAcls(frozenset(_decoded(path, data, pattern)), stat.version)
    except MetadataUnreadable as error:
        return PatternAcls(version=stat.version, damage=str(error))


def _decoded(path: str, data: bytes, pattern: ResourcePattern) -> Iterator[AclBinding]:
    """Raises MetadataUnreadable."""
    document = layout.decode(data, path)
    with layout.reading(path):
        for acl in document["acls"]:
            binding = AclBinding(
                *pattern,
                as_text(acl["principal"]),
                as_text(acl["host"]),
                _OPERATIONS[acl["operation"]],
                _PERMISSIONS[acl["permissionType"]],
            )
            yield binding


def _encoded(bindings: Collection[AclBinding]) -> bytes:
    acls = [
        {
            "principal": acl.principal,
            "permissionType": _word(AclPermission(acl.permission_type).name),
            "operation": _word(AclOperation(acl.operation).name),
            "host": acl.host,
        }
        for acl in sorted(bindings)
    ]
    return layout.encode({"version": _VERSION, "acls": acls})


async def set_acls(
    zk: ZooKeeper, changed: Mapping[ResourcePattern, PatternAcls], now_ms: int, again: bool
) -> frozenset[ResourcePattern]:
    """Notifications that everybody has seen go."""
    for pattern in changed:
        if _UNSTORABLE.search(pattern.name):
            raise AclInvalid(f"ZooKeeper can keep no ACLs of {pattern.name!r}: it has no such names")
    refused: set[ResourcePattern] = set()
    for chunk in _chunks(changed.items()):
        refused |= await _refused(zk, chunk, again)
    for kind in {pattern.pattern_type for pattern in changed}:
        await sweep_changes(zk, CHANGES[AclPattern(kind)], now_ms)
    return frozenset(refused)


_Changed = tuple[ResourcePattern, PatternAcls]


def _chunks(changed: Iterable[_Changed]) -> Iterator[list[_Changed]]:
    """As many as one transaction may have: ZooKeeper takes 1 MiB."""
    chunk: list[_Changed] = []
    acls = 0
    for each in changed:
        if chunk and (len(chunk) >= PATTERNS_AT_ONCE or acls + len(each[1].bindings) > ACLS_AT_ONCE):
            yield chunk
            chunk, acls = [], 0
        chunk.append(each)
        acls += len(each[1].bindings)
    if chunk:
        yield chunk


async def _refused(zk: ZooKeeper, changed: Sequence[_Changed], again: bool) -> set[ResourcePattern]:
    """Each with its notification; where one is refused each by itself."""
    operations = [operation for each in changed for operation in _operations(*each)]
    try:
        if operations:
            await zk.multi(operations)
    except (BadVersion, NoNode, NodeExists) as error:
        if isinstance(error, NoNode) and isinstance(operations[error.operation or 0], Create):
            raise  # what it was to be made in is missing
        if len(changed) > 1:
            return {pattern for each in changed for pattern in await _refused(zk, [each], again)}
        pattern, acls = changed[0]
        return set() if again and (await _read(zk, pattern)).bindings == acls.bindings else {pattern}
    return set()


def _operations(pattern: ResourcePattern, acls: PatternAcls) -> list[Operation]:
    path = _path(pattern)
    if acls.bindings:
        data = _encoded(acls.bindings)
        change = Create(path, data) if acls.version == UNWRITTEN else SetData(path, data, acls.version)
        return [change, _notification(pattern)]
    return [] if acls.version == UNWRITTEN else [Delete(path, acls.version), _notification(pattern)]


def _notification(pattern: ResourcePattern) -> Create:
    kind, name = AclResource(pattern.resource_type).name, pattern.name
    if pattern.pattern_type == AclPattern.LITERAL:
        data = f"{kind}:{name}".encode()
    else:
        extended = {"resourceType": kind, "name": name, "patternType": AclPattern(pattern.pattern_type).name}
        data = layout.encode({"version": _VERSION, **extended})
    return Create(f"{CHANGES[AclPattern(pattern.pattern_type)]}/{_CHANGE_PREFIX}", data, sequence=True)


def decode_change(data: bytes, path: str) -> str:
    """The ResourcePattern.text of a notification. Raises MetadataUnreadable."""
    if path.startswith(CHANGES[AclPattern.LITERAL] + "/"):
        with layout.reading(path):
            kind, name = data.decode().split(":", 1)
            return _pattern(kind, name, AclPattern.LITERAL).text
    document = layout.decode(data, path)
    with layout.reading(path):
        pattern_type = AclPattern[as_text(document["patternType"]).upper()]
        return _pattern(as_text(document["resourceType"]), as_text(document["name"]), pattern_type).text


def _pattern(kind: str, name: str, pattern_type: AclPattern) -> ResourcePattern:
    """Raises KeyError, ValueError for what no ACL is about."""
    if pattern_type not in _FOLDERS or not name:
        raise ValueError(f"{pattern_type.name} {name!r} is no pattern")
    return ResourcePattern(AclResource[kind.upper()], name, pattern_type)
