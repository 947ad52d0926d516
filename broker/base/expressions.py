"""Regular expressions of which many names are asked: a site's role may have a thousand, and a site as many topics."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_ONE_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])+")


@lru_cache(maxsize=64)
def any_of(expressions: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether one of them matches a name in full. Those without any choice are looked up, and the others compiled here:
    `re` remembers 512, and compiles each anew for each name where there are more. They are not joined to one, as flags
    and references in them would mean another thing there.
    """
    names = frozenset(one.replace("\\", "") for one in expressions if _ONE_NAME.fullmatch(one))
    others = tuple(re.compile(one) for one in expressions if not _ONE_NAME.fullmatch(one))

    def matches(name: str) -> bool:
        return name in names or any(one.fullmatch(name) for one in others)

    return matches
