"""What a journal's result found, in lines: it has documents, whichever version wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from failover.running.steps import Operation

_FOUND: Final[Mapping[str, str]] = {
    "hook_error": "{found}; all else was done",
    "stranded": "records came to {source} after the fence, and are only there: "
    "`farshore stranded list --link {link}` counts them",
    "is_unwatched": "{source} did not tell whether records came there after the fence, nor who read on there: "
    "`farshore stranded list --link {link}` says it, when it answers",
    "is_source_open": "{source} answered, here or a link's worker, and was not known to refuse writes: "
    "`farshore stranded list --link {link}`",
    "open_topics": "no ACL of {source} is about {found}, so that everybody may write there, for all that is known: "
    "`farshore stranded list --link {link}`",
    "closing_addresses": "something took connections at {found} and closed them; if that was {source}, it may take "
    "writes: `farshore stranded list --link {link}`, when it answers",
    "late_commits": "groups read on at {source} after they were moved: {found}",
    "source_readers": "consumers read on at {source}, or it did not say: {found}",
    "left_partitions": "did not answer at {target}, left as they are: {found}",
    "unanswered_groups": "groups that did not answer at {target}, left as they are: {found}",
    "is_loss_unconsented": "something of {source} was missing by the fence that the plan had excluded: "
    "`farshore stranded list --link {link}` says it, when it answers",
    "unplanned_read_again": "groups read records again that the plan did not say: {found}",
    "unplanned_skips": "groups skip more records than the plan said: {found}",
}
"""The fields of a result that make it one with findings."""
_UNSHOWN: Final = (
    "nobody was shown what came to {source} after the fence: `farshore stranded list --link {link}` says what it is"
)
"""Instead, where of what is stranded nobody can say that it is only there."""
_UNCOUNTED: Final = (
    "it could not be counted whether any of what came to {source} after the fence is only there: "
    "`farshore stranded list --link {link}` says it"
)
"""Instead, where none of it was counted."""
_READERS_UNSEEN: Final = "{source} did not tell who read on there after the fence; what came there was told"
"""Instead, where the source told that much."""
_READERS_UNTOLD: Final = "{source} did not tell of every group whether it read on there after the fence"
"""Instead, of a failover, which states what it loses."""
_UNTOLD: Final = (
    "{source} did not say how far its logs went after the fence: `farshore stranded list --link {link}` asks again"
)


def found_in(result: Mapping[str, Any]) -> Iterable[str]:
    for name, words in _FOUND.items():
        if name == "is_source_open" and result.get("open_topics"):
            continue  # these are why
        if found := result.get(name):
            told = found if not isinstance(found, list) else ", ".join(dict.fromkeys(map(_named, found)))
            if name == "stranded" and not any(one.get("is_shown", True) for one in found):
                words = _UNSHOWN if any(one.get("is_end_told", True) for one in found) else _UNTOLD
            elif name == "stranded" and all(one.get("records") is None for one in found if one.get("is_shown", True)):
                words = _UNCOUNTED
            if name == "is_unwatched" and result.get("operation") == Operation.FAILOVER:
                words = _READERS_UNTOLD
            elif name == "is_unwatched" and result.get("are_late_records_known"):
                words = _READERS_UNSEEN
            yield words.format(found=told, **{end: result.get(end, end) for end in ("link", "source", "target")})


def _named(found: object) -> str:
    """A group, or one on a partition, or the partition."""
    if not isinstance(found, Mapping):
        return str(found)
    place = f"{found['topic']}-{found.get('partition')}" if "topic" in found else ""
    return " on ".join(filter(None, (str(found.get("group", "")), place)))
