"""Two sites that ask for rights, ours or Kafka's; a user has what `farshore link rights` prints, or all but one."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from broker.client.acl_bindings import describe_acls
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource, TopicPartition
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.forking import ForkedProcess, start_farshore
from tests.interop.locked import PASSWORD, USER, AuthorizingBroker, AuthorizingKafkaServer
from tests.interop.servers import ROOT, wait_until
from tests.mirror.harness import eventually, make_topic, some_records, write

Brokers = AuthorizingBroker | AuthorizingKafkaServer
Pair = tuple[Callable[[Path], Brokers], Callable[[Path], Brokers]]
"""What makes source and target."""
OURS: Final[Pair] = (AuthorizingBroker, AuthorizingBroker)
_KAFKA_39, _KAFKA_43 = (partial(AuthorizingKafkaServer, version) for version in ("3.9.1", "4.3.0"))
KAFKAS: Final[Mapping[str, Pair]] = {"3.9 to 4.3": (_KAFKA_39, _KAFKA_43), "4.3 to 3.9": (_KAFKA_43, _KAFKA_39)}
"""With their StandardAuthorizer."""
PAIRS: Final = [
    pytest.param(OURS, id="ours"),
    *(pytest.param(p, id=i, marks=pytest.mark.slow) for i, p in KAFKAS.items()),
]
LIMITED = "limited"
RECORDS = 20
DEADLINE_S = 90.0
T = TypeVar("T")


class Right(NamedTuple):
    """One operation that a printed line gives, at a site."""

    site: str
    operation: AclOperation
    resource: AclResource
    name: str
    pattern: AclPattern

    def __str__(self) -> str:
        return f"{self.site}: {self.operation.name} {self.resource.name} {self.name}"

    def acl(self, principal: str) -> AclCreation:
        allow = AclPermission.ALLOW
        return AclCreation(self.resource, self.name, self.pattern, principal, "*", self.operation, allow)


def names(right: Right, text: str) -> bool:
    """Whether it is said what is refused, and on what."""
    refused = f"{right.resource.name}_AUTHORIZATION_FAILED"
    return refused in text and (right.name in text or right.resource is AclResource.CLUSTER)


def printed_rights(site: str, line: str) -> Iterator[Right]:
    """What a line of kafka-acls gives."""
    tool, *words = shlex.split(line)
    assert tool == "kafka-acls"
    assert "--add" in words
    words.remove("--add")
    operations: list[AclOperation] = []
    resource, name, pattern = AclResource.CLUSTER, CLUSTER_NAME, AclPattern.LITERAL
    while words:
        option = words.pop(0)
        match option:
            case "--cluster":
                continue
            case "--operation":
                by_word = {each.name.replace("_", "").lower(): each for each in AclOperation}
                operations.append(by_word[words.pop(0).lower()])
            case "--topic" | "--group" | "--transactional-id":
                resource, name = AclResource[option[2:].replace("-", "_").upper()], words.pop(0)
            case "--resource-pattern-type":
                pattern = AclPattern[words.pop(0).upper()]
            case "--allow-principal":
                assert words.pop(0) == f"User:{LIMITED}"
            case _:
                assert option == "--bootstrap-server", option
                words.pop(0)
    for operation in operations:
        yield Right(site, operation, resource, name, pattern)


async def _hold(cluster: Cluster, given: Iterable[AclCreation]) -> bool:
    """Whether the user has these, and no other: Kafka's brokers hear of ACLs later than who made them."""
    known = await describe_acls(cluster, [AclResource.ANY])
    held = {(acl.resource_name, acl.operation) for acl in known if acl.principal == f"User:{LIMITED}"}
    return held == {(acl.resource_name, acl.operation) for acl in given}


@dataclass
class RightsStage:
    """`farshore` as a super user and as one who has what he is given."""

    folder: Path
    east: Brokers
    west: Brokers
    files: dict[str, Path] = field(default_factory=dict)
    link: str = ""

    def declare(self, link: str, topics: str, group: str) -> None:
        """A link, in a file for each user; `printed` is of the last one."""
        self.link = link
        for user in (USER, LIMITED):
            text = "".join(
                f'[sites.{name}]\nbootstrap_servers = "{server.at("WORDS")}"\n[sites.{name}.security]\n'
                f'protocol = "SASL_PLAINTEXT"\nmechanism = "PLAIN"\nusername = "{user}"\npassword_file = "password"\n'
                for name, server in (("east", self.east), ("west", self.west))
            )
            text += f'[[links]]\nname = "{link}"\nsource = "east"\ntarget = "west"\ntopics = ["{topics}"]\n'
            self.files[user] = self.folder / f"{user}.toml"
            self.files[user].write_text(text + f'groups = ["{group}"]\n')
        (self.folder / "password").write_text(PASSWORD)

    def run(self, line: str, user: str = LIMITED) -> Said:
        return warm_commands().run(["--config", str(self.files[user]), *shlex.split(line)])

    def json(self, line: str, user: str = USER) -> dict[str, Any]:
        said = self.run(f"{line} -o json", user)
        document = json.loads(said.out)
        assert isinstance(document, dict)
        return document

    def printed(self, *commands: str) -> list[Right]:
        chosen = "".join(f" --command '{command}'" for command in commands)
        items = self.json(f"link rights --link {self.link}{chosen}", LIMITED)["items"]
        return [right for item in items for right in printed_rights(item["site"], item["command"])]

    def give(self, rights: Iterable[Right], sites: Iterable[str] = ("east", "west")) -> None:
        """These, and no other, at sites that are there."""
        given = list(rights)

        async def at(cluster: Cluster) -> None:
            mine = [right.acl(f"User:{LIMITED}") for right in given if right.site == cluster.site.name]
            connection = await cluster.any_connection()
            everything = DeleteAclsFilter(1, None, 1, f"User:{LIMITED}", None, 1, 1)
            await connection.request(DeleteAclsRequest([everything]))
            answer = await connection.request(CreateAclsRequest(mine))
            assert not any(each.error_code for each in answer.results), answer
            await eventually(lambda: _hold(cluster, mine), "the broker to go by its new ACLs")

        for site in sites:
            self.at(site, at)

    def at(self, site: str, do: Callable[[Cluster], Awaitable[T]]) -> T:
        """As a super user."""

        async def run() -> T:
            server = self.east if site == "east" else self.west
            async with Cluster(Site(site, server.bootstrap)) as cluster:
                return await do(cluster)

        return asyncio.run(run())

    def fill(self, topic: str, group: str, *, partitions: int = 2, **configs: str) -> None:
        async def at(cluster: Cluster) -> None:
            await make_topic(cluster, topic, partitions, **configs)
            for number in range(partitions):
                await write(cluster, TopicPartition(topic, number), some_records(0, RECORDS))
            await commit_offsets(cluster, group, {TopicPartition(topic, 0): CommittedOffset(RECORDS // 2)})

        self.at("east", at)

    @contextmanager
    def mirror(self, user: str = USER) -> Iterator[Path]:
        """`farshore mirror run`, for a while -> its log."""
        log = self.folder / "mirror.log"
        log.write_bytes(b"")
        process: ForkedProcess = start_farshore(["--config", str(self.files[user]), "mirror", "run"], ROOT, log)
        try:
            yield log
        finally:
            process.terminate()
            process.wait(60)

    def await_mirrored(self) -> None:
        """Until all is there, groups too."""
        wait_until(self._is_mirrored, DEADLINE_S, "the mirror to catch up")

    def _is_mirrored(self) -> bool:
        said = self.run("switchover --dry-run -o json", USER)
        if said.code:
            return False
        plan = json.loads(said.out)
        is_synced = any(
            at["target_offset"] is not None for view in plan["snapshot"]["groups"] for at in view["partitions"]
        )
        return is_synced and not any(loss["offsets"] for loss in plan["losses"])


@contextmanager
def rights_stage(folder: Path, pair: Pair) -> Iterator[RightsStage]:
    """Both sites run."""
    source, target = pair
    with source(folder / "east") as east, target(folder / "west") as west:
        yield RightsStage(folder, east, west)
