"""What is asked of etcd, as its messages. Each call blocks, and raises grpc.RpcError.

Who asks is told as metadata: grpc refuses call credentials, etcd3's way, where the connection is not encrypted.
"""

from __future__ import annotations

from typing import Any, Final

import etcd3
from etcd3 import etcdrpc

from mirror.fleet.store import Change, Commit, Item, Put, Snapshot

CALL_TIMEOUT_S: Final = 5.0
"""A write waits for the disks of most servers."""
PAGE_KEYS: Final = 5_000
"""Of one answer, so that no other waits long for it."""


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    key = prefix.encode()
    return key, key[:-1] + bytes([key[-1] + 1])


def read_prefix(client: etcd3.Etcd3Client, prefix: str) -> Snapshot:
    key, end = prefix_range(prefix)
    items: dict[str, Item] = {}
    revision = 0
    while True:
        request = etcdrpc.RangeRequest(key=key, range_end=end, limit=PAGE_KEYS, revision=revision)
        answer = client.kvstub.Range(request, CALL_TIMEOUT_S, metadata=client.metadata)
        revision = revision or answer.header.revision
        items.update((kv.key.decode(errors="replace"), _item(kv)) for kv in answer.kvs)
        if not answer.more:
            return Snapshot(revision, items)
        key = answer.kvs[-1].key + b"\0"


def commit_once(client: etcd3.Etcd3Client, commit: Commit) -> int | None:
    compare = [
        etcdrpc.Compare(
            key=key.encode(),
            target=etcdrpc.Compare.CREATE,
            result=etcdrpc.Compare.EQUAL,
            create_revision=created,
        )
        for key, created in commit.created.items()
    ]
    compare += [
        etcdrpc.Compare(
            key=key.encode(), target=etcdrpc.Compare.VALUE, result=etcdrpc.Compare.EQUAL, value=value.encode()
        )
        for key, value in commit.values.items()
    ]
    request = etcdrpc.TxnRequest(compare=compare, success=[_operation(key, put) for key, put in commit.puts.items()])
    answer = client.kvstub.Txn(request, CALL_TIMEOUT_S, metadata=client.metadata)
    return int(answer.header.revision) if answer.succeeded else None


def _operation(key: str, put: Put | None) -> Any:
    if put is None:
        return etcdrpc.RequestOp(request_delete_range=etcdrpc.DeleteRangeRequest(key=key.encode()))
    request = etcdrpc.PutRequest(key=key.encode(), value=put.value.encode(), lease=put.lease_id)
    return etcdrpc.RequestOp(request_put=request)


def grant_lease(client: etcd3.Etcd3Client, lease_seconds: int) -> tuple[int, int]:
    request = etcdrpc.LeaseGrantRequest(TTL=lease_seconds)
    answer = client.leasestub.LeaseGrant(request, CALL_TIMEOUT_S, metadata=client.metadata)
    return int(answer.ID), int(answer.TTL)


def revoke_lease(client: etcd3.Etcd3Client, lease_id: int) -> None:
    request = etcdrpc.LeaseRevokeRequest(ID=lease_id)
    client.leasestub.LeaseRevoke(request, CALL_TIMEOUT_S, metadata=client.metadata)


def _item(kv: Any) -> Item:
    return Item(kv.value.decode(errors="replace"), int(kv.create_revision))


def change_of(event: Any) -> Change:
    is_delete = event.type == event.DELETE
    return Change(event.kv.key.decode(errors="replace"), None if is_delete else _item(event.kv))
