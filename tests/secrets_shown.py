"""Looks for secrets in whatever farshore shows or keeps: what it said, files, the records of its own topics.

A place is a name, for the test that fails, and what stands there.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.batch import BatchHeader
from broker.wire.errors import WireError
from broker.wire.records import decode_records
from broker.wire.vocabulary import TopicPartition
from tests.interop.servers import ROOT

Places = Mapping[str, str | bytes]

OWN_TOPICS: Final = "__farshore-"
LOGS_ALL: Final = "import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.debug('all is logged')\n"
CRASHES: Final = """\
import faulthandler, sys, threading

def crash(frame, event, _argument):
    if frame.f_code.co_name != "{function}" or not frame.f_code.co_filename.endswith("{file}"):
        return None
    if event == "return":
        faulthandler.dump_traceback()
        raise RuntimeError("a crash that was asked for")
    return crash

threading.settrace(crash)
sys.settrace(crash)
"""
"""A bug, at the end of a function that has secrets in its variables by then."""


def shown(secrets: Mapping[str, str], places: Places) -> list[str]:
    """Which of them, by their names, stand where, as they are or by a usual encoding."""
    forms = {which: forms_of(secret) for which, secret in secrets.items()}
    found = []
    for where, what in places.items():
        there = what.encode() if isinstance(what, str) else what
        found += [f"{which} in {where}" for which, looks in forms.items() if any(look in there for look in looks)]
    return found


def forms_of(secret: str) -> frozenset[bytes]:
    """As text, escaped for other texts, in hexadecimal, and within something that is encoded by base64."""
    told = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""), quote_plus(secret)}
    raw = secret.encode()
    encoded = {raw.hex()}
    for before in range(3):  # of bytes ahead of it, which share its first digits
        digits = slice(-(-before * 8 // 6), (before + len(raw)) * 8 // 6)
        filled = bytes(before) + raw
        encoded |= {base64.b64encode(filled).decode()[digits], base64.urlsafe_b64encode(filled).decode()[digits]}
    return frozenset(text.encode() for text in told | encoded | {html.escape(secret)})


def files_in(folder: Path, is_kept_secret: Callable[[Path], bool] = lambda _file: False) -> Places:
    """All of them, but for those that the secrets are to stand in."""
    files = [file for file in folder.rglob("*") if file.is_file() and not is_kept_secret(file)]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


async def own_records(sites: Iterable[Site]) -> Places:
    """Of every topic that farshore keeps at these sites: keys, values and headers of all its records."""
    found: dict[str, bytearray] = {}
    for site in sites:
        async with Cluster(site) as cluster:
            topics = [topic for topic in (await list_topics(cluster)).values() if topic.name.startswith(OWN_TOPICS)]
            logs = [TopicPartition(topic.name, at.partition) for topic in topics for at in topic.partitions]
            ends = await log_end_offsets(cluster, logs)
            spans = {where: OffsetSpan(0, end) for where, end in ends.items()}
            await scan_batches(cluster, spans, partial(_take, site.name, found))
    return {where: bytes(there) for where, there in found.items()}


def _take(
    site: str, found: dict[str, bytearray], where: TopicPartition, header: BatchHeader, batch: memoryview
) -> None:
    there = found.setdefault(f"{where.topic} at {site}", bytearray())
    try:
        records = [] if header.is_control else decode_records(batch)
    except WireError:  # servers are shared, and some tests damage what they find there
        records = []
        there += batch
    for record in records:
        parts = [record.key, record.value, *(part for name, value in record.headers for part in (name.encode(), value))]
        there += b"\n".join(bytes(part or b"") for part in parts) + b"\n"


def python_path(folder: Path, *programs: str) -> str:
    """A PYTHONPATH by which every Python that is started, also by one that was, runs these first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("\n".join(programs))
    return f"{folder}:{ROOT}"
