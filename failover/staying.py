"""Links that an operation goes on without, and how many groups stay where they are with each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StayingLink:
    """`groups`: so many that were asked for have offsets in its topics, or read them; None: that is not known."""

    link: str
    groups: int | None


def staying_links(planned: Mapping[str, Any], given_up: Iterable[str]) -> tuple[StayingLink, ...]:
    """Those that were refused by the plan, which the first entry of a journal has (`planned`), and those `given_up`
    since. Of a link of which it says nothing that can be read nothing is known.
    """
    counts: dict[str, int | None] = {}
    with suppress(KeyError, TypeError, AttributeError):
        counts |= {str(one["link"]): one["groups"] for one in planned.get("staying_links", [])}
        counts |= {plan["snapshot"]["link"]: len(plan["snapshot"]["groups"]) for plan in planned.get("plans", [])}
    names = dict.fromkeys([*planned["intent"]["refused_links"], *given_up])
    return tuple(StayingLink(name, counts.get(name)) for name in names)
