"""Words to tell a story of a group in: who does what when, and what each is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from broker.groups.group import Group
from broker.groups.model import (
    Effects,
    GroupProtocol,
    GroupRules,
    JoinAsk,
    JoinResult,
    Leaver,
    SyncAsk,
    SyncResult,
)
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState

RULES = GroupRules(
    initial_rebalance_delay_ms=0,
    session_timeout_min_ms=1_000,
    session_timeout_max_ms=60_000,
    members_max=5,
    new_member_join_timeout_ms=300_000,
)


@dataclass
class Story:
    """A group and a time. `joined` and `synced` hold the last answer to each member; they are cleared by each step."""

    rules: GroupRules = RULES
    now_ms: int = 0
    stores: int = 0
    joined: dict[str, JoinResult] = field(default_factory=dict)
    synced: dict[str, SyncResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = Group("flights-readers", self.rules)
        self._ids = count(1)

    def state(self) -> GroupState:
        return self.group.state

    def _take(self, effects: Effects) -> None:
        self.joined, self.synced = dict(effects.joins), dict(effects.syncs)
        self.stores += effects.store

    def join(
        self,
        member_id: str = "",
        *,
        named: str | None = None,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"flights"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        asks_id_first: bool = False,
        skips: bool = False,
    ) -> JoinResult | None:
        """The answer, or None when the member waits."""
        ask = JoinAsk(
            member_id,
            instance,
            "client",
            "/127.0.0.1",
            protocol_type,
            tuple(GroupProtocol(*protocol) for protocol in protocols),
            session_ms,
            rebalance_ms,
            named or f"member-{next(self._ids)}",
            asks_id_first,
            skips,
        )
        outcome = self.group.join(ask, self.now_ms)
        if isinstance(outcome, JoinResult):
            self.joined, self.synced = {}, {}
            return outcome
        self._take(outcome)
        return self.joined.get(member_id or ask.new_member_id)

    def sync(
        self, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None
    ) -> SyncResult | None:
        ask = SyncAsk(member_id, None, generation_id, "consumer", None, assignments or {})
        outcome = self.group.sync(ask, self.now_ms)
        if isinstance(outcome, SyncResult):
            self.joined, self.synced = {}, {}
            return outcome
        self._take(outcome)
        return self.synced.get(member_id)

    def heartbeat(self, member_id: str, generation_id: int) -> ErrorCode:
        return self.group.heartbeat(member_id, None, generation_id, self.now_ms)

    def leave(self, member_id: str = "", instance: str | None = None) -> ErrorCode:
        (error,), effects = self.group.leave([Leaver(member_id, instance)], self.now_ms)
        self._take(effects)
        return error

    def commit(self, member_id: str, generation_id: int) -> ErrorCode:
        return self.group.check_commit(member_id, None, generation_id, self.now_ms)

    def pass_time(self, ms: int) -> None:
        """Time passes, and the timer rings whenever it is due; answers of all rings are kept."""
        until_ms = self.now_ms + ms
        joined: dict[str, JoinResult] = {}
        synced: dict[str, SyncResult] = {}
        while self.group.next_deadline_ms() <= until_ms:
            self.now_ms = max(self.now_ms, int(self.group.next_deadline_ms()))
            self._take(self.group.tick(self.now_ms))
            joined |= self.joined
            synced |= self.synced
        self.now_ms = until_ms
        self.joined, self.synced = joined, synced


def stable_pair(story: Story) -> tuple[str, str, int]:
    """Two members `a` (leader) and `b` in a stable group -> their ids and the generation."""
    first = story.join(named="a")
    assert first is not None
    story.sync("a", first.generation_id, {"a": b"all"})
    assert story.join(named="b") is None
    leader = story.join("a")
    assert leader is not None
    assert story.joined["b"].error is ErrorCode.NONE
    story.sync("b", leader.generation_id)
    story.sync("a", leader.generation_id, {"a": b"left", "b": b"right"})
    return "a", "b", leader.generation_id
