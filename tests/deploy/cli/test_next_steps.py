"""What a switchover or failover says at its end: the loss in words, and how to go on and come back. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from broker.client.site import Site
from deploy.cli.failover_tables import summary
from deploy.cli.late_lines import late_commits_line, read_on_line, stranded_line, unwatched_line
from deploy.cli.links_to_add import name_back
from deploy.cli.next_steps import back_at_once, for_refused, merged, next_steps
from failover.losses.statements import Certainty, LossTotal, PartitionLoss
from failover.losses.stranded import StrandedRange
from failover.observing.contact import SiteFinding
from failover.planning.intent import Intent
from failover.planning.left import LeftPartition
from failover.planning.moves import GroupMove, MoveKind
from failover.running.late_commits import LateCommit
from failover.running.read_on import ReadOn
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.verification import DifferenceKind, VerificationDifference
from mirror.link import Link
from mirror.status import LinkCondition

LINK = Link("there", Site("east", "e:1"), Site("west", "w:1"), ("flights", r"a\.b"), groups=(".*",))
BACK = replace(LINK, name="back", source=LINK.target, target=LINK.source)
LOSS = LossTotal(0, 0, 0, Certainty.EXACT)
MOVED = OperationResult("op", Operation.SWITCHOVER, LINK.name, "east", "west", True, 1.0, (), (), (), LOSS)
LOST = replace(MOVED, operation=Operation.FAILOVER)
RESUME = "link resume --link there"
SEEN_AT_MS = 1_700_000_000_000


def commands(result: OperationResult, *back: Link, **conditions: LinkCondition) -> list[str]:
    return [step.command.removeprefix("farshore ") for step in next_steps(result, LINK, back, conditions)]


def test_a_declared_link_back_is_run_or_resumed_and_switched_over() -> None:
    way_back = ["switchover --link back", RESUME]
    assert commands(MOVED, BACK) == ["", "mirror run --link back", *way_back]
    assert commands(MOVED, BACK, back=LinkCondition.RUNNING) == ["", "mirror run --link back", *way_back]
    assert commands(MOVED, BACK, back=LinkCondition.PROMOTED) == ["", "link resume --link back", *way_back]
    back_from_loss = ["stranded list --link there", "mirror run --link back", "failback --link there"]
    assert commands(LOST, BACK) == ["", *back_from_loss]
    told = [step.what for step in next_steps(LOST, LINK, (BACK,), {}) if "link back" in step.what]
    assert told == [
        "then, so that east gets what is written at west, unless link back runs; if it was promoted or "
        "paused, first `farshore link resume --link back`"
    ], "its state is at the site that is lost"
    assert commands(LOST, BACK, back=LinkCondition.PROMOTED)[2] == "link resume --link back"


def test_a_lost_source_that_could_refuse_writes_is_to_do_so_before_a_producer_comes() -> None:
    steps = next_steps(replace(LOST, takes_writes=True), LINK, (BACK,), {}, is_own_source=True)
    assert steps[1].command == "farshore site standby --site east"
    by_acls = replace(LINK, source=replace(LINK.source, freeze_principals=("User:*",)))
    lost_some = replace(LOST, takes_writes=True, moved_topics=("flights", "o-.*"))
    of_some = next_steps(lost_some, by_acls, (BACK,), {})
    assert "farshore site standby --site east --topic flights --topic 'o-.*'" in [step.command for step in of_some]
    moved = next_steps(replace(MOVED, takes_writes=True), LINK, (BACK,), {})
    assert all("standby" not in step.command for step in moved)


def test_a_lost_source_that_nothing_is_known_to_close_is_kept_from_producers_by_other_means() -> None:
    """Apache Kafka without freeze_principals: the command that was named there ended with an error."""
    lost = replace(LOST, takes_writes=True, moved_topics=("flights",))
    keep = next_steps(lost, LINK, (BACK,), {})[1]
    assert (keep.command, keep.what) == (
        "",
        "keep producers away from east when it is back: nothing in farshore.toml closes it to them (are its brokers "
        "farshore's own, `farshore site standby --site east --topic flights` does, as soon as it answers)",
    )
    stands_by = next_steps(replace(lost, takes_writes=False), LINK, (BACK,), {}, is_own_source=True)
    assert not any("as soon as" in step.what or "keep producers" in step.what for step in stands_by)


def test_a_source_that_answers_is_not_spoken_of_as_if_it_was_away() -> None:
    """What only it has can be listed now, and the wait for it to be back had no end."""
    there = replace(LOST, source_finding=SiteFinding.ALIVE, is_source_open=True, takes_writes=True)
    by_acls = replace(LINK, source=replace(LINK.source, freeze_principals=("User:*",)))
    told = {step.command: step.what for step in next_steps(there, by_acls, (BACK,), {})}
    assert told["farshore site standby --site east"] == "before a producer reaches east, which answers"
    assert told["farshore stranded list --link there"] == "what only east has, which answers"
    keep = next_steps(there, LINK, (BACK,), {})[2]
    assert keep.what == (
        "keep producers away from east, which answers: nothing in farshore.toml closes it to them (are its brokers "
        "farshore's own, `farshore site standby --site east` does)"
    )
    for away in (
        replace(there, is_unwatched=True),
        replace(there, source_finding=SiteFinding.PARTLY_THERE),
        replace(there, source_finding=SiteFinding.UNREACHABLE, seen_by=("there",)),
    ):
        assert any("when east is back, before" in step.what for step in next_steps(away, LINK, (BACK,), {}))


def test_rights_that_were_held_back_are_given_before_applications_start() -> None:
    link = replace(LINK, sync_acls=True)
    for result in (MOVED, LOST):
        first, second, *_ = next_steps(result, link, (BACK,), {})
        assert first.command == "farshore acls apply --link there --promote"
        assert second.what.startswith("start producers and consumers at west")
    assert all("acls" not in step.command for step in next_steps(LOST, LINK, (BACK,), {}))


def test_a_link_back_that_is_to_be_declared_carries_acls_as_this_one_does() -> None:
    link = replace(LINK, sync_acls=True, acl_principals=(("User:a", "User:a2"), ("User:b", 'User:b"2')))
    (table,) = [step.toml for step in next_steps(MOVED, link, (), {}) if step.toml]
    (declared,) = tomllib.loads(table)["links"]
    assert (declared["sync_acls"], declared["acl_principals"]) == (True, {"User:a2": "User:a", 'User:b"2': "User:b"})
    joined = replace(link, acl_principals=(("User:a", "User:c"), ("User:b", "User:c")))
    (table,) = [step.toml for step in next_steps(MOVED, joined, (), {}) if step.toml]
    assert "acl_principals" not in tomllib.loads(table)["links"][0], "who of the two User:c is nobody knows"


def test_what_is_stranded_is_told_before_anything_is_started() -> None:
    stranded = replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 53, 3), StrandedRange("a.b", 1, 7, 9, None)))
    assert stranded_line(stranded) == (
        "3 records came to east after the fence, and are only there: flights-0 [50, 53); of what is in a.b-1 [7, 9) it "
        "could not be counted whether any is only there"
    )
    open_one = replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 53, None, 52),))
    assert open_one.has_findings
    assert stranded_line(open_one).startswith("of what is in flights-0 [50, 53) that came to east after the fence")
    assert stranded_line(open_one).endswith(
        "; in a transaction that has not ended, and may still be committed: flights-0 from 52"
    )
    unshown = replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 53, None, is_shown=False),))
    assert unshown.has_findings
    assert stranded_line(unshown) == (
        "at east after the fence nobody is shown flights-0 from offset 50 on, which not all replicas in sync have, or "
        "fewer than min.insync.replicas: what that is is not known"
    )
    assert next_steps(unshown, LINK, (BACK,), {})[1].what.startswith("bring back the brokers of east")
    told = next_steps(open_one, LINK, (BACK,), {})
    assert told[0].what.startswith("stop what writes at east")
    assert told[1].what.startswith("end the transactions that are open at east")
    assert summary(stranded) == stranded_line(stranded)
    assert next_steps(stranded, LINK, (BACK,), {})[0].what.startswith("stop what writes at east")


def test_a_source_that_was_left_and_may_take_writes_is_told_with_the_loss_and_is_to_be_stopped_first() -> None:
    left_open = replace(LOST, is_source_open=True)
    told = "east answers, and is not known to refuse writes: what clients write there from now on is only there"
    assert summary(left_open) == f"{summary(LOST)}; {told}"
    assert next_steps(left_open, LINK, (BACK,), {})[0].what.startswith("stop what writes at east")
    assert summary(replace(left_open, seen_by=("there",))).endswith(
        "; east answered the worker of there, though not this machine, and is not known to refuse writes: what clients "
        "write there from now on is only there"
    )


def test_who_read_on_at_the_target_since_it_was_verified_is_told_and_is_no_finding() -> None:
    result = replace(MOVED, read_on=(ReadOn("a", "flights", 0, 33, 36), ReadOn("a", "flights", 1, 4, 9)))
    assert read_on_line(result) == (
        "1 group stood at west as promised, when this operation first verified them or left them as they were, and "
        "further on now; applications could read there meanwhile, so that this is taken for what they read: "
        "a on flights-0 33 -> 36, "
        "a on flights-1 4 -> 9"
    )
    assert (summary(result), result.has_findings) == (summary(MOVED), False)


def test_who_read_on_is_told_with_the_command_that_moves_it_again() -> None:
    late = (LateCommit("a", "flights", 0, 862, 1072), LateCommit("b c", "flights", 1, None, 7))
    read_on = replace(MOVED, late_commits=late)
    line = "2 groups read on at east after they were moved: a on flights-0 862 -> 1072, b c on flights-1 none -> 7"
    assert summary(read_on) == late_commits_line(read_on) == line
    stranded = StrandedRange("flights", 0, 50, 53, 3)
    both = replace(read_on, stranded=(stranded,))
    assert summary(both) == f"{stranded_line(both)}; {line}"
    first, second, *_ = next_steps(read_on, LINK, (BACK,), {})
    assert first.what.startswith("stop what reads at east")
    assert first.command == "farshore switchover --link there --group a --group 'b c'"
    assert second.what.startswith("start producers and consumers at west")


def test_a_source_that_died_before_it_could_be_watched_is_looked_at_when_it_is_back() -> None:
    unwatched = replace(MOVED, is_unwatched=True)
    assert unwatched.has_findings
    assert summary(unwatched) == unwatched_line(unwatched)
    assert unwatched_line(unwatched).startswith("east did not tell whether")
    assert commands(unwatched, BACK)[:2] == ["", "stranded list --link there"]


def test_groups_that_were_left_at_the_target_are_moved_before_they_start() -> None:
    place = LeftPartition("flights", 0, "flights", "no leader", ("b c",), is_fenced=False)
    places = (place, replace(place, topic="quiet", groups=()))
    left = replace(LOST, left_partitions=places, unanswered_groups=("a",))
    assert left.has_findings
    start, first, *_ = next_steps(left, LINK, (BACK,), {})
    assert start.what.startswith("start producers and consumers at west")
    assert first.command == "farshore failover --link there --group a --group 'b c' --allow-data-loss"
    only_named = replace(left, left_partitions=left.left_partitions[1:], unanswered_groups=())
    assert only_named.has_findings
    assert all("--group" not in step.command for step in next_steps(only_named, LINK, (BACK,), {}))


def test_groups_that_alone_were_not_moved_are_moved_alone() -> None:
    again = "it was not verified: when what was found is seen to, run the same command again"
    unknown = [
        GroupMove(group, "flights", at, "flights", MoveKind.UNKNOWN, 3, None, "")
        for group, at in (("a b", 0), ("a b", 1), ("left", 0))
    ]
    unmoved = [
        VerificationDifference(DifferenceKind.GROUP_NOT_MOVED, "a b on flights", at, None, None) for at in (0, 1)
    ]
    found = replace(MOVED, verified=False, moves=tuple(unknown), differences=tuple(unmoved))
    assert commands(found, BACK) == ["switchover --link there --group 'a b'"]
    lost = replace(found, operation=Operation.FAILOVER)
    assert commands(lost, BACK) == ["failover --link there --group 'a b' --allow-data-loss"]
    more = VerificationDifference(DifferenceKind.LAST_RECORD, "flights", 0, 1, 2)
    steps = next_steps(replace(found, differences=(*unmoved, more)), LINK, (BACK,), {})
    assert [step.what for step in steps][1:] == [again]
    assert [step.what for step in next_steps(replace(found, differences=(more,)), LINK, (BACK,), {})] == [again]


def test_one_that_is_not_declared_is_written_out_as_the_file_takes_it() -> None:
    assert commands(MOVED)[1:] == ["", *(f"{verb} --link west-east" for verb in ("mirror run", "switchover")), RESUME]
    (table,) = [step.toml for step in next_steps(MOVED, LINK, (), {}) if step.toml]
    (declared,) = tomllib.loads(table)["links"]
    assert (declared["name"], declared["source"], declared["target"]) == ("west-east", "west", "east")
    assert (declared["topics"], declared["groups"]) == (list(LINK.topics), list(LINK.groups))


def test_no_way_back_is_promised_that_is_none() -> None:
    prefixed = replace(LINK, topic_names="prefixed")
    assert [step.command for step in next_steps(MOVED, prefixed, (), {})] == ["", f"farshore {RESUME}"]
    (only,) = next_steps(replace(MOVED, verified=False), LINK, (BACK,), {})
    assert "not verified" in only.what


def test_a_failback_wants_one_link_back_that_leaves_out_nothing() -> None:
    other = replace(BACK, name="other", topics=(r"a\.b",))
    steps = next_steps(LOST, LINK, (BACK, other), {})
    assert steps[-1].command == "farshore failback --link there"
    assert steps[-1].what.startswith("have one link carry back what there mirrors, not back and other a part each")
    told = [step.what for step in next_steps(LOST, LINK, (BACK,), {}, not_carried=["a.b"])]
    assert "no link brings back a.b: add it in farshore.toml to the topics of one of these" in told


def test_what_stays_with_another_link_of_the_move_is_not_started_with_the_others() -> None:
    steps = next_steps(MOVED, LINK, (BACK,), {}, staying=("a", "b"))
    assert steps[0].what.endswith("; but not what reads or writes along a, b: that stays at east")


def test_a_link_back_that_is_yet_to_be_declared_has_no_other_links_name() -> None:
    other = replace(BACK, name="west-east", topics=("orders",))
    assert name_back(LINK, [LINK]) == "west-east"
    assert name_back(LINK, [LINK, other]) == "there-back"


def test_whom_a_move_by_name_left_has_a_command_of_its_own() -> None:
    steps = next_steps(replace(MOVED, not_named=("b", "c d")), LINK, (BACK,), {})
    assert steps[1].what == "but not these groups, which were not asked for: before they start at west"
    assert steps[1].command == "farshore switchover --link there --group b --group 'c d'"
    lost = next_steps(replace(LOST, not_named=("b",)), LINK, (BACK,), {})
    assert lost[1].command == "farshore failover --link there --group b --allow-data-loss"


def test_whom_a_consent_left_as_nobody_knew_where_he_goes_on_is_named_with_a_command_of_his_own() -> None:
    """All applications were to be started, though the line before had said which were not to."""
    left = next_steps(replace(LOST, left_groups=("b", "c d")), LINK, (BACK,), {})
    assert left[1].what == (
        "but not these groups, of which it is not known where they go on: before they start at west, when east tells "
        "that (a failover with --to-datetime sets them to a time)"
    )
    by_then = "--allow-data-loss --even-if-source-answers --even-if-source-partly-there"
    assert left[1].command == f"farshore failover --link there --group b --group 'c d' {by_then}", "it answers by then"
    unanswered = replace(LOST, left_groups=("b", "c"), unanswered_groups=("c",))
    assert [step.command for step in next_steps(unanswered, LINK, (BACK,), {}) if "--group" in step.command] == [
        f"farshore failover --link there --group b {by_then}",
        "farshore failover --link there --group c --allow-data-loss",
    ]


def test_of_a_source_that_told_where_a_group_stands_nothing_more_is_waited_for() -> None:
    """The command that was named asked it again, and was refused as the first one had been."""
    unknown = GroupMove("b c", "flights", 0, "flights", MoveKind.UNKNOWN, 8, None, "", stood_at=3)
    left = replace(LOST, left_groups=("b c",), moves=(unknown,), source_finding=SiteFinding.ALIVE, verified=True)
    told = [command for command in commands(left, BACK) if "--group" in command]
    assert told == ["group describe --link there --group 'b c'"]
    untold = replace(left, moves=(unknown, replace(unknown, partition=1, source_offset=None)))
    assert any("when east tells that" in step.what for step in next_steps(untold, LINK, (BACK,), {}))


@pytest.mark.parametrize("result", [MOVED, LOST])
def test_a_group_with_no_offset_at_the_target_is_not_said_to_read_again_what_its_client_may_skip(
    result: OperationResult,
) -> None:
    """A client whose auto.offset.reset is latest began at the end."""

    def told(
        *stood: int | None, lost: tuple[int, ...] = (), stranded: tuple[int, ...] = (), records: int | None = None
    ) -> str:
        moves = (
            GroupMove("b", "flights", at, "flights", MoveKind.UNKNOWN, 8, None, "", stood_at=one)
            for at, one in enumerate(stood)
        )
        losses = (PartitionLoss("flights", at, Certainty.EXACT, 4, records, 6, 10) for at in lost)
        ranges = (StrandedRange("flights", at, 6, 10, 4) for at in stranded)
        left = replace(result, left_groups=("b",), moves=tuple(moves), source_finding=SiteFinding.ALIVE)
        left = replace(left, losses=tuple(losses), stranded=tuple(ranges))
        (what,) = [step.what for step in next_steps(left, LINK, (BACK,), {}) if "describe" in step.command]
        return what.removeprefix("but not group b with them: where it stands at east is ")

    again = "; started as it stands there, it reads again what it read at east since it was carried"
    assert told(3, 5) == f"no place known at west{again}"
    for lost, stranded in (((0, 1), ()), ((), (0, 1)), ((1,), (0,))):
        assert told(3, 5, lost=lost, stranded=stranded) == f"no place at west, which lacks records{again}"
    assert told(3, 5, lost=(0,)) == f"no place known at west{again}", "nor that it lacks any in the other partition"
    assert told(3, lost=(0,), records=0) == f"no place known at west{again}", "what is no record takes offsets, too"
    assert told(3, None, None) == (
        "no place known at west; it has no offset there in 2 partitions, where its client's own auto.offset.reset "
        "decides (latest skips all): set that before it starts"
    )
    assert "lacks records; it has no offset there in 1 partition, " in told(None, lost=(0,))


def test_who_read_on_in_what_the_target_lacks_is_moved_as_far_as_it_has_that() -> None:
    """Where others write behind what the target has, the command that was named was refused."""
    loss = PartitionLoss("flights", 0, Certainty.EXACT, 4, 4, 6, 10)
    late = (LateCommit("a", "flights", 0, 3, 8), LateCommit("b", "flights", 0, 3, 5))
    read_on = replace(LOST, losses=(loss,), late_commits=late)
    named = "failover --link there --group a --group b"
    assert commands(read_on, BACK)[0] == f"{named} --leave-group a --allow-data-loss"
    assert commands(read_on)[0] == f"{named} --allow-data-loss", "what is at the target ends where nobody writes"
    stranded = StrandedRange("flights", 0, 4, 10, 4)
    assert "--leave-group a --leave-group b" in commands(replace(read_on, stranded=(stranded,)), BACK)[1]


@pytest.mark.parametrize(
    ("finding", "consent"),
    [
        (SiteFinding.DEAD, ""),
        (SiteFinding.ALIVE, " --even-if-source-answers"),
        (SiteFinding.REPLACED, " --even-if-source-answers"),
        (SiteFinding.PARTLY_THERE, " --even-if-source-partly-there"),
        (SiteFinding.UNREACHABLE, " --even-if-source-partly-there"),
    ],
)
def test_groups_that_follow_a_failover_follow_by_the_consent_that_it_was_given(
    finding: SiteFinding, consent: str
) -> None:
    """Of a source that answers, or is there in part, the command that was told was refused."""
    lost = replace(LOST, source_finding=finding)
    place = LeftPartition("flights", 0, "flights", "no leader", ("b",), is_fenced=False)
    unmoved = VerificationDifference(DifferenceKind.GROUP_NOT_MOVED, "b on flights", 0, None, None)
    unknown = GroupMove("b", "flights", 0, "flights", MoveKind.UNKNOWN, 3, None, "")
    for result in (
        replace(lost, not_named=("b",)),
        replace(lost, left_partitions=(place,)),
        replace(lost, late_commits=(LateCommit("b", "flights", 0, 3, 7),)),
        replace(lost, verified=False, moves=(unknown,), differences=(unmoved,)),
    ):
        told = [step.command for step in next_steps(result, LINK, (BACK,), {}) if "--group b" in step.command]
        assert told == [f"farshore failover --link there --group b --allow-data-loss{consent}"]


def test_the_way_back_of_a_whole_site_is_one_command_where_that_moves_no_more_than_these_links() -> None:
    other, other_back = replace(LINK, name="orders"), replace(BACK, name="orders-back")
    each = [
        next_steps(MOVED, LINK, (BACK,), {}),
        next_steps(replace(MOVED, link=other.name), other, (other_back,), {}),
    ]
    steps = merged(each)
    told = [
        step.command.removeprefix("farshore ") for step in back_at_once(steps, "east", "west", ["back", "orders-back"])
    ]
    assert told[-3:] == ["switchover --from west --to east", RESUME, "link resume --link orders"]
    assert sum("switchover" in command for command in told) == 1
    assert back_at_once(steps, "east", "west", ["back", "orders-back", "hotels-back"]) == steps
    assert back_at_once(each[0], "east", "west", ["back"]) == each[0], "of one link its name says as much"
    (*_, way_back, _resume) = back_at_once(each[0], "east", "west", ["back", "orders-back"], is_all=True)
    assert way_back.command == "farshore switchover --from west --to east", "the others went before"


def test_links_that_were_refused_follow_by_the_same_command() -> None:
    asked = Intent(Operation.SWITCHOVER, ("there",), "east", "west", is_site=True, refused_links=("orders",))
    step = for_refused(asked, asked.refused_links)
    assert step.command == "farshore switchover --from east --to west"
    assert step.what == "orders stayed at east: when what it was refused for is seen to, the same again"
    lost = replace(
        asked,
        operation=Operation.FAILOVER,
        topics=("fl.*",),
        left_groups=("a b",),
        timestamp_ms=SEEN_AT_MS,
        allow_data_loss=True,
        even_if_source_partly_there=True,
    )
    assert for_refused(lost, ("orders", "hotels")).command == (
        "farshore failover --from east --to west --topic 'fl.*' --leave-group 'a b' --to-datetime "
        "2023-11-14T22:13:20.000Z --allow-data-loss --even-if-source-partly-there"
    )
