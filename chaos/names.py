"""What a run makes is called after it: topics, link, proxies and folder, so that nothing else is ever removed."""

from __future__ import annotations

import re
import uuid
from typing import Final

from mirror.api import CHAOS_PREFIX

PROXY_PREFIX: Final = "farshore-chaos-"
FOLDER_PREFIX: Final = "farshore-chaos-"
LINK_PREFIX: Final = "farshore-chaos-"
OWN_PREFIXES: Final = ("__farshore-offsets-", "__farshore-ends-")
"""Before the name of a run's link: topics that its mirror made at the target."""
_RUN: Final = "(?P<run>[0-9a-f]{8})"
_SITE: Final = r"(?:[a-zA-Z0-9_-]{1,64}\.)?"
_OWN: Final = "|".join(re.escape(prefix + LINK_PREFIX) for prefix in OWN_PREFIXES)
_TOPIC: Final = re.compile(f"(?:{_SITE}{re.escape(CHAOS_PREFIX)}|{_OWN}){_RUN}")
_PROXY: Final = re.compile(rf"{re.escape(PROXY_PREFIX)}{_RUN}-[0-9]+")
_FOLDER: Final = re.compile(rf"{re.escape(FOLDER_PREFIX)}{_RUN}")


def new_run_id() -> str:
    """Eight hexadecimal digits that no other run has."""
    return uuid.uuid4().hex[:8]


def topic_of(run_id: str) -> str:
    """The run's topic at the source. No link selects it but the run's own: see `Link.selects_topic`."""
    return f"{CHAOS_PREFIX}{run_id}"


def link_of(run_id: str) -> str:
    return f"{LINK_PREFIX}{run_id}"


def proxy_of(run_id: str, number: int) -> str:
    return f"{PROXY_PREFIX}{run_id}-{number}"


def folder_of(run_id: str) -> str:
    return f"{FOLDER_PREFIX}{run_id}"


def run_of_topic(name: str) -> str | None:
    """The run that made the topic, at either site (with a site's prefix, and its link's state); None: no run did."""
    found = _TOPIC.fullmatch(name)
    return found["run"] if found else None


def run_of_proxy(name: str) -> str | None:
    found = _PROXY.fullmatch(name)
    return found["run"] if found else None


def run_of_folder(name: str) -> str | None:
    found = _FOLDER.fullmatch(name)
    return found["run"] if found else None
