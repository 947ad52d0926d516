"""Topics that a site hides from farshore, which may deny to write to them all the same, and see whether it did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.acl_bindings import Acl, create_acls
from broker.client.acls import WriteDenial, known_denials
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource
from failover.freezing.acl_freeze import AclFreeze
from failover.freezing.acl_rights import denials_to_make, named_topics
from failover.observing.elsewhere import takes_writes
from failover.observing.observe import observe
from failover.running.aborting import is_denied
from mirror.link import Link
from tests.failover.freezing.test_own_authorizer import PASSWORD, authorizing
from tests.mirror.harness import link_between, make_topic

SEEN, HIDDEN, GONE = "flights", "orders", "trips"
TOPICS = (SEEN, HIDDEN, GONE)


@dataclass
class Hiding:
    """A site as one sees it who may make ACLs and describe all topics but HIDDEN; there is no topic GONE."""

    limited: Cluster
    owner: Cluster
    link: Link


@asynccontextmanager
async def hiding(folder: Path) -> AsyncIterator[Hiding]:
    (folder / "secret").write_text(PASSWORD)

    def site(address: str, user: str) -> Site:
        login = Sasl(Mechanism.PLAIN, user, Secret(file=folder / "secret"))
        return Site("east", address, freeze_principals=("User:writer",), security=Security(None, login))

    async with authorizing(folder / "east") as east:
        limited = site(east.address, "shop")
        async with Cluster(limited) as seen, Cluster(site(east.address, "farshore")) as owner:
            for topic in (SEEN, HIDDEN):
                await make_topic(owner, topic)
            allowed = [(AclResource.CLUSTER, CLUSTER_NAME, one) for one in (AclOperation.ALTER, AclOperation.DESCRIBE)]
            allowed += [(AclResource.TOPIC, topic, AclOperation.WRITE) for topic in (SEEN, GONE)]
            allow, literal = AclPermission.ALLOW, AclPattern.LITERAL
            acls = [Acl(kind, name, literal, "User:shop", "*", one, allow) for kind, name, one in allowed]
            acls.append(Acl(AclResource.TOPIC, "__", AclPattern.PREFIXED, "User:shop", "*", AclOperation.READ, allow))
            assert await create_acls(owner, acls) == {}
            yield Hiding(seen, owner, replace(link_between("", "", [SEEN, HIDDEN]), source=limited))


async def test_a_freeze_closes_what_is_hidden_and_named(tmp_path: Path) -> None:
    """It went by the list of topics, left the hidden one open, and its move was called verified."""
    async with hiding(tmp_path) as there:
        assert await named_topics(there.limited, TOPICS) == [SEEN, HIDDEN]
        assert await named_topics(there.limited, [".*"]) == [SEEN]
        assert await named_topics(there.limited, [".*"], [HIDDEN, GONE]) == [SEEN, HIDDEN]
        denials = await denials_to_make(there.limited, [".*"], [HIDDEN, GONE])
        assert denials is not None
        assert denials.hidden == (HIDDEN,)
        freeze = AclFreeze(there.limited, "one")
        await freeze.close(denials, [".*"])
        found = (await known_denials(there.owner)).by_all
        assert {WriteDenial(topic, "User:writer") for topic in (SEEN, HIDDEN)} <= found
        await freeze.undo()
        assert not (await known_denials(there.owner)).by_any


async def test_a_look_names_what_is_hidden_and_was_never_mirrored(tmp_path: Path) -> None:
    """A switchover of a link that names it was verified without it."""
    async with hiding(tmp_path) as there:
        with pytest.raises(KafkaError, match=f"{HIDDEN}.*TOPIC_AUTHORIZATION_FAILED"):
            await observe(there.link, there.limited, there.owner, (), 0)


async def test_what_is_hidden_and_not_closed_may_be_written_to(tmp_path: Path) -> None:
    """A site of which only the topics that are shown were closed counted as closed."""
    async with hiding(tmp_path) as there:
        seen_alone = await denials_to_make(there.limited, [SEEN])
        assert seen_alone is not None
        await AclFreeze(there.limited, "one").close(seen_alone, [SEEN])
        assert await is_denied(there.limited, [there.link]) == (None, (HIDDEN,))
        assert await is_denied(there.limited, [replace(there.link, topics=(".*",))]) == (True, ())
        assert await is_denied(there.limited, [replace(there.link, topics=(".*",))], [HIDDEN]) == (None, (HIDDEN,))
        assert await takes_writes(there.limited, frozenset({SEEN, GONE})) is False
        unknown = await takes_writes(there.limited, frozenset({SEEN, HIDDEN}))
        assert "TOPIC_AUTHORIZATION_FAILED" in str(unknown)
        both = await denials_to_make(there.limited, [HIDDEN])
        assert both is not None
        await AclFreeze(there.limited, "one").close(both, [HIDDEN])
        assert await is_denied(there.limited, [there.link]) == (True, ())
        assert await takes_writes(there.limited, frozenset({SEEN, HIDDEN})) is False
