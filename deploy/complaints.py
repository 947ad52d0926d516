"""What is wrong with the tables of farshore.toml, in words: where it stands, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from deploy.values import FORMS


def all_told(error: ValidationError, read: object) -> list[str]:
    """Every problem once: a list is said to be too short only where its elements are not the reason. `read` is what
    the file says.
    """
    problems = error.errors()
    return [
        _told(problem, read)
        for problem in problems
        if problem["type"] != "too_short"
        or not any(other["loc"][:-1] == problem["loc"] for other in problems if other["loc"])
    ]


def _path(loc: Sequence[int | str], read: Any) -> str:
    """ "sites.east.brokers[1] (node_id 2).listen": people know a broker by its id, not by its place in the file."""
    path, at = "", read
    for part in loc:
        # "[key]" marks a table's name itself, which the path before it already says.
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):  # what is missing, and what is no table
            at = None
        if isinstance(part, int) and isinstance(at, dict) and isinstance(at.get("node_id"), int):
            path += by_id(at["node_id"])
    return path


def by_id(node_id: int) -> str:
    return f" (node_id {node_id})"


def _told(problem: Any, read: object) -> str:
    """One of pydantic's errors as "links[0].topics: what is wrong"."""
    path = _path(problem["loc"], read)
    match problem["type"]:
        case "extra_forbidden":
            return f"{path}: there is no such key; remove it or correct its spelling"
        case "missing":
            return f"{path}: is missing; add it"
        case "string_pattern_mismatch":
            return f"{path}: {FORMS[problem['ctx']['pattern']]}"
        case "tuple_type":
            form = "[[links]], with two brackets" if path == "links" else 'a list, for example ["a", "b"]'
            return f"{path}: write {form}"
        case "dict_type" | "model_type":
            return f"{path}: write a table: [{path}]"
        case "too_short":
            return f"{path}: is empty; name at least one"
        case "string_type":
            return f"{path}: write text in quotes"
        case "path_type":
            return f"{path}: write a path in quotes"
        case _:
            return f"{path}: {str(problem['msg']).removeprefix('Value error, ')}"
