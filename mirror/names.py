"""Sets of topic names: what regular expressions and prefixes can select, decided without trying names.

A pattern is read into an expression over Kafka's 65 characters of topic names, and whether two sets meet is answered by
derivatives (Brzozowski 1964): with them intersection and complement cost no more than alternatives. What is not regular
(references to groups, look-behind) is taken to be more than it is: an answer "they do not meet" is always true.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""What Kafka allows in a topic's name."""
REPEATS_MAX: Final = 16
"""Beyond this many a bounded repetition is taken to be unbounded."""
STATES_MAX: Final = 5000
"""Beyond this many states it is not decided; the sets are taken to meet."""


@dataclass(frozen=True, slots=True)
class _Chars:
    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Empty:
    """Only the empty word."""


@dataclass(frozen=True, slots=True)
class _Then:
    first: Names
    rest: Names


@dataclass(frozen=True, slots=True)
class _Any:
    """Any of several."""

    parts: frozenset[Names]


@dataclass(frozen=True, slots=True)
class _All:
    """What is in all of several."""

    parts: frozenset[Names]


@dataclass(frozen=True, slots=True)
class _Not:
    part: Names


@dataclass(frozen=True, slots=True)
class _Star:
    part: Names


Names: TypeAlias = _Chars | _Empty | _Then | _Any | _All | _Not | _Star
"""A set of words. Made by the functions below alone, which keep equal sets equal where that is cheap."""

NOTHING: Final[Names] = _Chars(frozenset())
_EMPTY: Final[Names] = _Empty()
EVERYTHING: Final[Names] = _Not(NOTHING)


def literal(text: str) -> Names:
    """The one word `text`."""
    return joined([_Chars(frozenset(character)) for character in text])


def joined(parts: Sequence[Names]) -> Names:
    """Words of the first part followed by words of the next, and so on."""
    found = _EMPTY
    for part in reversed(parts):
        found = _then(part, found)
    return found


def _then(first: Names, rest: Names) -> Names:
    if NOTHING in (first, rest):
        return NOTHING
    if first == _EMPTY:
        return rest
    if rest == _EMPTY:
        return first
    if isinstance(first, _Then):
        return _Then(first.first, _then(first.rest, rest))
    return _Then(first, rest)


def any_of(parts: Iterable[Names]) -> Names:
    """Words of any of the parts."""
    flat: set[Names] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, _Any) else {part}
    flat.discard(NOTHING)
    if EVERYTHING in flat:
        return EVERYTHING
    return NOTHING if not flat else flat.pop() if len(flat) == 1 else _Any(frozenset(flat))


def all_of(parts: Iterable[Names]) -> Names:
    """Words that are in all of the parts."""
    flat: set[Names] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, _All) else {part}
    flat.discard(EVERYTHING)
    if NOTHING in flat:
        return NOTHING
    return EVERYTHING if not flat else flat.pop() if len(flat) == 1 else _All(frozenset(flat))


def none_of(part: Names) -> Names:
    """All words that are not in the part."""
    return part.part if isinstance(part, _Not) else _Not(part)


def _star(part: Names) -> Names:
    return _EMPTY if part in (NOTHING, _EMPTY) else part if isinstance(part, _Star) else _Star(part)


def starting_with(prefix: str) -> Names:
    """All words that begin so."""
    return _then(literal(prefix), EVERYTHING)


def containing(text: str) -> Names:
    """All words with `text` in them."""
    return joined([EVERYTHING, literal(text), EVERYTHING])


@lru_cache(maxsize=10_000)
def may_have_any(names: Names) -> bool:
    """Whether a topic could have one of these names. True also where that takes too long to find out."""
    seen, todo = {names}, [names]
    while todo:
        state = todo.pop()
        if _has_empty(state):
            return True
        for chars in _classes(state):
            following = _derive(state, min(chars))
            if following not in seen:
                if len(seen) >= STATES_MAX:
                    return True
                seen.add(following)
                todo.append(following)
    return False


@lru_cache(maxsize=100_000)
def _has_empty(names: Names) -> bool:
    match names:
        case _Empty() | _Star():
            return True
        case _Chars():
            return False
        case _Then(first, rest):
            return _has_empty(first) and _has_empty(rest)
        case _Any(parts):
            return any(map(_has_empty, parts))
        case _All(parts):
            return all(map(_has_empty, parts))
        case _Not(part):
            return not _has_empty(part)


@lru_cache(maxsize=100_000)
def _derive(names: Names, character: str) -> Names:
    """What may follow `character` in words that begin with it."""
    match names:
        case _Empty():
            return NOTHING
        case _Chars(chars):
            return _EMPTY if character in chars else NOTHING
        case _Then(first, rest):
            following = _then(_derive(first, character), rest)
            return any_of([following, _derive(rest, character)]) if _has_empty(first) else following
        case _Any(parts):
            return any_of(_derive(part, character) for part in parts)
        case _All(parts):
            return all_of(_derive(part, character) for part in parts)
        case _Not(part):
            return none_of(_derive(part, character))
        case _Star(part):
            return _then(_derive(part, character), names)


@lru_cache(maxsize=100_000)
def _classes(names: Names) -> frozenset[frozenset[str]]:
    """Characters that it tells apart: all of one class have the same derivative."""
    match names:
        case _Empty():
            return frozenset({ALPHABET})
        case _Chars(chars):
            return frozenset({chars, ALPHABET - chars}) - {frozenset()}
        case _Then(first, rest):
            return _crossed([_classes(first), _classes(rest)]) if _has_empty(first) else _classes(first)
        case _Any(parts) | _All(parts):
            return _crossed([_classes(part) for part in parts])
        case _Not(part) | _Star(part):
            return _classes(part)


def _crossed(partitions: Iterable[frozenset[frozenset[str]]]) -> frozenset[frozenset[str]]:
    found = frozenset({ALPHABET})
    for classes in partitions:
        found = frozenset(one & other for one in found for other in classes) - {frozenset()}
    return found


def matching(pattern: str) -> Names:
    """The names that a regular expression matches in full, or more. Raises re.error."""
    return _read(pattern)[0]


def is_exact(pattern: str) -> bool:
    """Whether `matching` gives no more than what the pattern matches."""
    return _read(pattern)[1]


@lru_cache(maxsize=1024)
def _read(pattern: str) -> tuple[Names, bool]:
    tree = parser.parse(pattern)
    reader = _Reader(bool(tree.state.flags & re.IGNORECASE))
    return reader.sequence(list(tree), _EMPTY), reader.is_exact


@dataclass(slots=True)
class _Reader:
    """Reads a parsed pattern from its end: what follows a look-ahead is known when that is met."""

    ignores_case: bool
    is_exact: bool = True

    def sequence(self, items: Sequence[Any], rest: Names) -> Names:
        for kind, argument in reversed(items):
            if kind in (code.ASSERT, code.ASSERT_NOT):
                rest = self._looking_ahead(kind is code.ASSERT_NOT, argument, rest)
            elif kind is code.AT and argument in (code.AT_END, code.AT_END_STRING):
                rest = all_of([rest, _EMPTY])
            elif kind is code.AT:
                self.is_exact = False
            elif kind is code.BRANCH and _looks_around(argument):
                rest = any_of([self.sequence(list(branch), rest) for branch in argument[1]])
            elif kind is code.SUBPATTERN and _looks_around(argument[3]) and not any(argument[1:3]):
                rest = self.sequence(list(argument[3]), rest)
            else:
                rest = _then(self._item(kind, argument), rest)
        return rest

    def _looking_ahead(self, refuses: bool, argument: Any, rest: Names) -> Names:
        direction, body = argument
        inner = _Reader(self.ignores_case)
        seen = inner.sequence(list(body), EVERYTHING)
        if direction < 0 or not inner.is_exact:
            self.is_exact = False
            return rest
        return all_of([rest, none_of(seen) if refuses else seen])

    def _alone(self, items: Any) -> Names:
        """Part of a pattern whose continuation is not known: a look-ahead in it would speak of that."""
        if _looks_around(items):
            self.is_exact = False
            return EVERYTHING
        return self.sequence(list(items), _EMPTY)

    def _item(self, kind: Any, argument: Any) -> Names:
        if kind is code.LITERAL:
            return self._chars({chr(argument)})
        if kind is code.NOT_LITERAL:
            return self._chars({chr(argument)}, negated=True)
        if kind is code.ANY:
            return _Chars(ALPHABET)
        if kind is code.IN:
            return self._class(argument)
        if kind is code.BRANCH:
            return any_of([self._alone(branch) for branch in argument[1]])
        if kind is code.SUBPATTERN:
            _group, added, removed, body = argument
            if added or removed:
                self.is_exact = False
                return EVERYTHING
            return self._alone(body)
        if kind in (code.MAX_REPEAT, code.MIN_REPEAT):
            return self._repeated(*argument)
        self.is_exact = False  # positions, references, possessive repeats: none matches what the following does not
        return EVERYTHING

    def _repeated(self, least: int, most: Any, body: Any) -> Names:
        part = self._alone(body)
        if least > REPEATS_MAX or (most is not code.MAXREPEAT and most > REPEATS_MAX):
            self.is_exact = False
            return joined([part] * min(least, REPEATS_MAX) + [_star(part)])
        if most is code.MAXREPEAT:
            return joined([part] * least + [_star(part)])
        tail = _EMPTY
        for _ in range(most - least):
            tail = any_of([_EMPTY, _then(part, tail)])
        return joined([part] * least + [tail])

    def _class(self, items: Any) -> Names:
        chars: set[str] = set()
        negated = False
        for kind, argument in items:
            if kind is code.NEGATE:
                negated = True
            elif kind is code.LITERAL:
                chars.add(chr(argument))
            elif kind is code.RANGE:
                chars |= {character for character in ALPHABET if argument[0] <= ord(character) <= argument[1]}
            else:
                chars |= _CATEGORIES[argument]
        return self._chars(chars, negated=negated)

    def _chars(self, chars: set[str], *, negated: bool = False) -> Names:
        if self.ignores_case:
            chars = {variant for one in chars for variant in (one, one.lower(), one.upper(), one.lower().upper())}
        return _Chars(ALPHABET - chars if negated else ALPHABET & chars)


_WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS = frozenset(string.digits)
_CATEGORIES: Final[dict[Any, frozenset[str]]] = {
    code.CATEGORY_DIGIT: _DIGITS,
    code.CATEGORY_NOT_DIGIT: ALPHABET - _DIGITS,
    code.CATEGORY_WORD: _WORD,
    code.CATEGORY_NOT_WORD: ALPHABET - _WORD,
    code.CATEGORY_SPACE: frozenset(),
    code.CATEGORY_NOT_SPACE: ALPHABET,
}


def _looks_around(items: Any) -> bool:
    """Whether anything below speaks of what stands beside it: a look-ahead, or the name's end."""
    if isinstance(items, tuple) and items and items[0] in (code.ASSERT, code.ASSERT_NOT, code.AT):
        return True
    is_nested = isinstance(items, list | tuple | parser.SubPattern)
    return is_nested and any(_looks_around(item) for item in items)
