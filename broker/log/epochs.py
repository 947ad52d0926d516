"""Which leader epoch wrote from which offset on. Followers and clients find with it where two logs parted (KIP-101,
KIP-279).
"""

from bisect import bisect_left, bisect_right

from broker.limits import LEADER_EPOCHS_AHEAD_MAX

UNKNOWN = (-1, -1)


class LeaderEpochs:
    """Pure: (epoch, start offset) pairs, both strictly ascending. `text` and `parse` are the checkpoint's form, which
    is Kafka's.
    """

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1][0] if self._entries else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def allows(self, epoch: int, offset: int) -> bool:
        """May a batch at `offset` be of `epoch`? Exact before the newest epoch began; from there on also a newer one,
        as a power cut may have taken the newest lines of the checkpoint, which is not waited for.
        """
        if not self._entries or offset < self._entries[0][1]:
            return True
        if offset < self._entries[-1][1]:
            above = bisect_right(self._entries, offset, key=_start)
            return epoch == self._entries[above - 1][0]
        return self.latest <= epoch <= self.latest + LEADER_EPOCHS_AHEAD_MAX

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins at `start_offset`; True when that was news. An epoch never goes back."""
        if epoch <= self.latest:
            return False
        # An epoch that wrote nothing gives its place to the next one: start offsets stay strictly ascending.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), or (-1, -1) where Kafka says undefined.

        An epoch below every known one answers itself with the first known start offset, as Kafka does.
        """
        if epoch < 0 or not self._entries or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._entries, epoch, key=_epoch)
        if above == 0:
            return epoch, self._entries[0][1]
        return self._entries[above - 1][0], self._entries[above][1]

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forgets epochs that begin at or after the new log end."""
        keep = bisect_left(self._entries, end_offset, key=_start)
        changed = keep < len(self._entries)
        del self._entries[keep:]
        return changed

    def truncate_from_start(self, log_start_offset: int) -> bool:
        """Forgets epochs that ended before the new log start; the one in force there now begins there."""
        inside = bisect_right(self._entries, log_start_offset, key=_start)
        if inside == 0 or (inside == 1 and self._entries[0][1] == log_start_offset):
            return False
        self._entries[:inside] = [(self._entries[inside - 1][0], log_start_offset)]
        return True

    def text(self) -> bytes:
        lines = ["0", str(len(self._entries)), *(f"{epoch} {start}" for epoch, start in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def parse(cls, text: bytes) -> "LeaderEpochs":
        """Raises ValueError for anything but what `text` writes."""
        lines = text.decode("ascii").split("\n")
        if lines[0] != "0" or int(lines[1]) != len(lines) - 3:
            raise ValueError(f"not a leader epoch checkpoint of version 0: {lines[:2]}")
        return cls([(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines[2:-1])])


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
