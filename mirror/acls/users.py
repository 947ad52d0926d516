"""Which users can log in by SCRAM at a link's source, and not at its target. Pure.

Kafka tells how a password was salted, and never the salt or the keys: a credential cannot be carried over, only missed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker.client.scram_users import ScramCredential
from mirror.link import Link


@dataclass(frozen=True, slots=True)
class UserAtTarget:
    """A credential of the source, as whom its user is known at the target, and whether there is such a one there.

    `iterations_at_target` None: there is none. That there is one does not say that it is of the same password.
    """

    user: str
    mechanism: str
    iterations: int
    user_at_target: str
    iterations_at_target: int | None


def compare_users(
    link: Link, source: Collection[ScramCredential], target: Collection[ScramCredential]
) -> list[UserAtTarget]:
    """Each credential of the source, sorted; those that are missing at the target first."""
    names = dict(link.acl_principals)
    there = {(one.user, one.mechanism): one.iterations for one in target}
    found = []
    for one in sorted(source):
        principal = names.get(f"User:{one.user}", f"User:{one.user}")
        user = principal.partition(":")[2]
        found.append(UserAtTarget(*one, user, there.get((user, one.mechanism))))
    return sorted(found, key=lambda each: each.iterations_at_target is not None)
