"""A link the other way that farshore.toml lacks: how it is called and what is added. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mirror.api import Link


def name_back(link: Link, links: Sequence[Link]) -> str:
    """One that no other link has, or would get, too."""
    here, there = link.source.name, link.target.name
    alike = [one for one in links if (one.source.name, one.target.name) == (here, there)]
    name = f"{there}-{here}"
    is_taken = name == link.name or any(one.name == name for one in links)
    return f"{link.name}-back" if len(alike) > 1 or is_taken else name


def table_back(link: Link, name: str) -> str:
    """The link the other way; what it says of names and groups is what the link itself says."""
    written = {
        "name": name,
        "source": link.target.name,
        "target": link.source.name,
        "topics": link.topics,
        "topic_names": link.topic_names,
        "groups": link.groups,
        **({"sync_acls": True} if link.sync_acls else {}),
    }
    lines = ["[[links]]", *(f"{key} = {json.dumps(value)}" for key, value in written.items())]
    back = {there: here for here, there in link.acl_principals}
    if link.sync_acls and back and len(back) == len(link.acl_principals):  # two who are one at the target stay so
        pairs = (f"{json.dumps(there)} = {json.dumps(here)}" for there, here in sorted(back.items()))
        lines.append(f"acl_principals = {{ {', '.join(pairs)} }}")
    return "\n".join(lines)
