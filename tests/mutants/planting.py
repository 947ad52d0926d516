"""Small bugs in the code of an area: which there are, and putting one into the running process.

mutmut's operators make them, with one of our own (dropped_calls.py). Left out are bugs outside of functions, in
decorated functions and in defaults, and those only in a message's words.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import random
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType

import libcst as cst
from mutmut.mutation.file_mutation import Mutation, create_mutations

from tests.mutants.dropped_calls import plant_dropped_calls

_SENTENCE = re.compile(r"\"[^\"]*\s[^\"]*\"|'[^']*\s[^']*'")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: where, the lines that it takes away and puts in, and the module's text with it.

    `number` tells the bugs of one module apart; `statement` are the lines of which a test must reach one to meet it.
    """

    path: str
    function: str
    number: int
    was: str
    became: str
    statement: range
    text: str

    @property
    def where(self) -> str:
        return f"{_module(self.path)}.{self.function}"

    @property
    def name(self) -> str:
        return f"{self.where}#{self.number}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same while other lines of the module change."""
        return self.where, self.was, self.became


def draw(areas: Iterable[str], sample: int, seed: int) -> list[Bug]:
    """A seeded sample of the bugs in these folders."""
    paths = sorted(str(path) for area in areas for path in Path(area).rglob("*.py"))
    every = [(path, number) for path in paths for number in range(len(_mutations(path)[1]))]
    random.Random(seed).shuffle(every)
    bugs = (bug for path, number in every if (bug := _bug(path, number)))
    return list(islice(bugs, sample))


def every_bug(areas: Iterable[str], only: str) -> list[Bug]:
    """Those whose name contains this."""
    paths = [str(path) for area in areas for path in sorted(Path(area).rglob("*.py"))]
    wanted = [path for path in paths if any(only in f"{_module(path)}.{name}" for name in _functions(path))]
    bugs = (_bug(path, number) for path in wanted for number in range(len(_mutations(path)[1])))
    return [bug for bug in bugs if bug and only in bug.name]


def plant(bug: Bug) -> None:
    """The function gets the bug's code: whoever holds it already runs that too."""
    _planted(bug).__code__ = _code(bug)


def _planted(bug: Bug) -> FunctionType:
    holder = vars(importlib.import_module(_module(bug.path)))
    *classes, name = bug.function.split(".")
    for each in classes:
        holder = vars(holder[each])
    found = holder[name]
    function = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    assert isinstance(function, FunctionType)
    return function


def _code(bug: Bug) -> CodeType:
    with warnings.catch_warnings(action="ignore"):
        waiting = [compile(bug.text, bug.path, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        if code.co_qualname == bug.function:
            return code
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
    raise LookupError(bug.name)


def _module(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts)


@cache
def _source(path: str) -> str:
    return Path(path).read_text()


@cache
def _mutations(path: str) -> tuple[cst.Module, list[Mutation]]:
    plant_dropped_calls()
    module, mutations, _, _ = create_mutations(path, _source(path))
    return module, mutations


@cache
def _functions(path: str) -> dict[str, _Function]:
    """Those at the module's level, and methods."""
    tree = ast.parse(_source(path))
    found = {node.name: node for node in tree.body if isinstance(node, _Function)}
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            found |= {f"{each.name}.{node.name}": node for node in each.body if isinstance(node, _Function)}
    return found


def _bug(path: str, number: int) -> Bug | None:
    """None: in no function's body, or in words alone."""
    module, mutations = _mutations(path)
    mutation = mutations[number]
    changed = module.deep_replace(mutation.original_node, mutation.mutated_node)
    assert isinstance(changed, cst.Module)
    before, after = module.code.splitlines(), changed.code.splitlines()
    steps = [step for step in difflib.SequenceMatcher(None, before, after, False).get_opcodes() if step[0] != "equal"]
    if not steps:
        return None
    was = " ".join(line.strip() for _, start, end, _, _ in steps for line in before[start:end])
    became = " ".join(line.strip() for _, _, _, start, end in steps for line in after[start:end])
    first, last = steps[0][1] + 1, max(steps[0][1] + 1, steps[-1][2])
    for name, node in _functions(path).items():
        if node.body[0].lineno <= first and last <= (node.end_lineno or first):
            if _SENTENCE.sub("", was) == _SENTENCE.sub("", became):
                return None
            return Bug(path, name, number, was, became, _statement(node, first, last), changed.code)
    return None


def _statement(function: _Function, first: int, last: int) -> range:
    """The lines of the innermost statement around these; of one that holds others, its head."""
    found = range(function.body[0].lineno, (function.end_lineno or last) + 1)
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            end = min(_inner_lines(node), default=(node.end_lineno or last) + 1)
            lines = range(node.lineno, max(end, node.lineno + 1))
            if first in lines and last in lines and len(lines) <= len(found):
                found = lines
    return found


def _inner_lines(node: ast.stmt) -> Iterator[int]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt):
            yield inner.lineno
        elif isinstance(inner, ast.match_case | ast.ExceptHandler):
            yield inner.body[0].lineno if isinstance(inner, ast.match_case) else inner.lineno
