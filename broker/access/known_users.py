"""Who may log in: who stands in the broker's file, and all others as the metadata has them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Final

from broker.access.entities import USERS, Entity, entity_of
from broker.access.users import ITERATIONS, Credential, Users, Work, credential_of, of_plain
from broker.base.reloaded import AccessInvalid, Reloaded
from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism

_NOBODY: Final[Mapping[Mechanism, Credential]] = {}
_NO_FILE: Final[Users] = {}

log = logging.getLogger(__name__)


class KnownUsers:
    """The file goes first, so that nobody who may change the metadata becomes a user who stands there."""

    def __init__(self, file: Reloaded[Users] | None = None) -> None:
        self._file = file
        self.secret = secrets.token_bytes()
        """What is made up for who is not known is made of it; the cluster's, as soon as that is read."""
        self.stored: dict[str, Mapping[Mechanism, Credential]] = {}
        # Of which contents of the file; None: who is stored has changed since.
        self._plain_work: tuple[Users, Work] | None = None

    def of(self, user: str) -> Mapping[Mechanism, Credential]:
        found = self._in_file().get(user)
        return self.stored.get(user, _NOBODY) if found is None else found

    def is_in_file(self, user: str) -> bool:
        return user in self._in_file()

    def plain_work(self) -> Work:
        """What each login by PLAIN takes: of each hash as much as anybody's does. Never empty."""
        in_file = self._in_file()
        if self._plain_work is None or self._plain_work[0] is not in_file:
            most: dict[Mechanism, int] = {}
            for mechanism, one in map(of_plain, (*in_file.values(), *self.stored.values())):
                most[mechanism] = max(most.get(mechanism, 0), one.iterations)
            self._plain_work = in_file, most or {Mechanism.SCRAM_SHA_512: ITERATIONS}
        return self._plain_work[1]

    def _in_file(self) -> Users:
        return _NO_FILE if self._file is None else self._file.current()

    def take(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """What is set on users now, by ConfigResource.path."""
        self._plain_work = None
        for path, values in changed.items():
            user = _user(path)
            if user is not None:
                self.stored.pop(user, None)
                if found := _credentials(path, values):
                    self.stored[user] = found


def _user(path: str) -> str | None:
    """None: it is about another one, or about nobody by his name."""
    entity: Entity = entity_of(path) if path.startswith(f"{USERS}/") else {}
    return entity["user"] if len(entity) == 1 else None


def _credentials(path: str, values: Mapping[str, str]) -> dict[Mechanism, Credential]:
    found = {}
    for mechanism in HASHES:
        if mechanism in values:
            try:
                found[mechanism] = credential_of(mechanism, values[mechanism])
            except AccessInvalid as error:
                log.error("nobody logs in by %s of %s: %s", mechanism, path, error)  # noqa: TRY400 - the text says all
    return found
