"""What can go wrong while mirroring.

MirrorError
├── LinkInvalid                 a link that cannot work as declared
├── TargetTaken                 a link that runs now brings the same records to the same topics
├── RegistryLost                nothing tells a site's mirrored records from its own any more
├── LinkFenced                  another owner writes this link now
├── LinkPromoted                the target was promoted by a failover: the link must not write
├── LinkPaused                  a person paused the link
├── LinkNotCut                  a link cannot be cut anew now, and goes on as it was cut
├── GapNotOpen                  a gap was named that no partition stands at
├── OffsetNotMirrored           an offset has no exact translation
├── OffsetDeclined              an offset may mean another record than the one that was mirrored
│   └── OffsetHeld              a hold alone says so
├── GroupNotCarried             a link does not carry this group's offsets
└── StateDamaged                the link's state topic cannot be read

Talking to a cluster raises ClientError (broker/client/errors.py).
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class MirrorError(FarshoreError):
    """Root of this folder's errors."""


class LinkInvalid(MirrorError):
    """A link that cannot work as it is declared."""

    hint = "correct farshore.toml and run `farshore config validate`"


class TargetTaken(MirrorError):
    """Another link, maybe of another file, writes these topics now. Tried again until it does so no more."""

    hint = "stop one of the two links, or narrow its topics; declared in one farshore.toml they are checked together"


class RegistryLost(MirrorError):
    """The registry of producer ids at a site was deleted, or does not know a link that wrote there."""

    hint = "run the link that writes there: it registers again at its start, and then this one goes on by itself"


class LinkFenced(MirrorError):
    """Another owner of this link took over; this one has stopped and wrote nothing after that.

    `writer` is the (producer id, epoch) that was fenced; None when it never got so far as to have one.
    """

    hint = (
        "only one `farshore mirror run` may serve a link: stop one of the two, or give both the same [fleet], whose "
        "workers share links and settle this by themselves"
    )

    def __init__(self, message: str, *, writer: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.writer = writer


class LinkPromoted(MirrorError):
    """The target was promoted, so nothing may be mirrored to it."""

    hint = "after the failback decision, `farshore link resume` lets the link run again"


class LinkPaused(MirrorError):
    """A person paused the link; it goes on from where it stands."""

    hint = "`farshore link resume` lets the link run again"


class LinkNotCut(MirrorError):
    """The link is not cut anew: it goes on as it was cut."""

    hint = "do it again when that is mended"


class GapNotOpen(MirrorError):
    """A gap was named at which no partition stands, or not any more."""

    hint = "see which partitions stand still, and at what: farshore status"


class OffsetNotMirrored(MirrorError):
    """An offset that has no exact translation: not mirrored yet, or older than the mirror."""

    hint = "wait until the mirror is there (`farshore status`), or choose an offset that is mirrored"


class GroupNotCarried(MirrorError):
    """A group whose offsets a link does not carry over."""

    hint = "see the link's `groups` and `topics` with `farshore link list`"


class OffsetDeclined(MirrorError):
    """An offset of a log that was recreated or cut: the record that is there now may not be the mirrored one."""

    hint = "see what `farshore status` says of the partition"


class OffsetHeld(OffsetDeclined):
    """As that, by a hold alone: a worker found it, and only one takes it away when it has compared both logs."""


class StateDamaged(MirrorError):
    """The link's state topic on the target holds something that cannot be understood."""

    hint = "a newer farshore may have written it: run the newest version"
