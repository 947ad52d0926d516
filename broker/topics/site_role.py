"""The site's role as its brokers go by it: who may change it, and what it refuses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from broker.errors import BrokerError
from broker.topics.errors import InvalidTopicRequest, TopicError
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SITE_CONFIGS, SITE_EPOCH, SITE_STANDBY, SITE_TOPICS, SiteStanding


class SiteFrozen(TopicError):
    """Records of clients are not taken; what all clients do with this code is wait and send them again."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    retriable = True
    hint = "write at the active site; `farshore site role` says which that is, `farshore site thaw` lets writes in here"


class SiteRoleMoved(BrokerError):
    """The role was changed since it was read, or is not changed as one."""

    error_code = ErrorCode.INVALID_UPDATE_VERSION
    hint = "read the role again; `farshore site` changes it"


def site_standing(configs: Mapping[str, str]) -> SiteStanding:
    """The role that these configs of all brokers say. What others wrote past the brokers counts as not written, and
    topics that cannot be told are all.
    """
    for untold in ((), (SITE_STANDBY,), (SITE_TOPICS,), (SITE_STANDBY, SITE_TOPICS)):
        with suppress(ValueError):
            return SiteStanding.of({name: value for name, value in configs.items() if name not in untold})
    return SiteStanding()


def check_site_change(before: Mapping[str, str], after: Mapping[str, str], *, default: bool) -> None:
    """`default`: these are the configs of all brokers. Raises SiteRoleMoved, InvalidTopicRequest."""
    if all(before.get(name) == after.get(name) for name in SITE_CONFIGS):
        return
    if not default:
        raise InvalidTopicRequest("A site's role is that of all its brokers: name none of them.")
    known = site_standing(before)
    if after.get(SITE_EPOCH) != str(known.epoch + 1):
        raise SiteRoleMoved(
            f"The site is {known.role} in epoch {known.epoch}: a change of that comes with epoch {known.epoch + 1}."
        )
    try:
        SiteStanding.of(after)
    except ValueError as error:
        raise InvalidTopicRequest(f"That is no role of a site: {error}") from error
