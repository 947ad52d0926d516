"""The rules of this source tree that no linter keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("broker", "mirror", "failover", "monitoring", "chaos", "deploy")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# What each folder may import of the others; a name stands for itself and what is in it.
PUBLIC = ("broker.base", "broker.wire", "broker.client")
WALLS: dict[str, tuple[str, ...]] = {
    "broker": (),
    "mirror": PUBLIC,
    "failover": (*PUBLIC, "mirror.api"),
    "monitoring": (*PUBLIC, "broker.http", "mirror.api"),
    "chaos": (*PUBLIC, "mirror.api"),
    "deploy": ("broker", "mirror", "failover", "monitoring", "chaos"),
}
# What the public rooms of the broker's folder may import of it.
ROOMS: dict[str, tuple[str, ...]] = {
    "broker/base": ("broker.base",),
    "broker/wire": ("broker.base", "broker.wire"),
    "broker/client": PUBLIC,
    "broker/http": (*PUBLIC, "broker.http"),
}
ASYNCIO_LIMITS = ("asyncio.timeout", "asyncio.timeout_at")
# Spelt in two halves, so that this file does not hold them.
LEFT_OVERS = tuple(first + second for first, second in (("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("HA", "CK:")))
# Folders of somebody's machine, and addresses of registries.
MACHINE = re.compile(r"(?<![\w.~}-])/(?:home|root|work)/\w|files\.pythonhosted|//pypi\.|//repo1?\.maven|proxy\.golang")


def python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists())


def text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


FILES = python_files()
PRODUCT = [file for file in FILES if file.relative_to(ROOT).parts[0] in FOLDERS]


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), filename=str(file))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """All of them: most tests here look through them, and a walk takes longer than the parsing."""
    return tuple(ast.walk(tree_of(file)))


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes_of(file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of what a file imports, wherever in it."""
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_files_are_short() -> None:
    long = {name_of(file): count for file in FILES if (count := len(file.read_text().splitlines())) >= FILE_LINES_MAX}
    assert not long, f"split these files: {long}"


def test_functions_are_short() -> None:
    long = [
        f"{name_of(file)}:{node.lineno} {node.name}"
        for file in FILES
        for node in functions(file)
        if (node.end_lineno or node.lineno) - node.lineno + 1 >= FUNCTION_LINES_MAX
    ]
    assert not long, f"split these functions: {long}"


def test_time_limits_are_those_that_hold_in_every_python() -> None:
    """`asyncio`'s own end, in Python 3.11.2 and behind a group that failed, as if somebody had interrupted the work."""
    other = [
        f"{name_of(file)}:{node.lineno}"
        for file in PRODUCT
        for node in nodes_of(file)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ASYNCIO_LIMITS
    ]
    other += [f"{name_of(file)}:{line}" for file in PRODUCT for line, name in imports(file) if name in ASYNCIO_LIMITS]
    assert not other, f"take these from broker/base/time_limits.py: {other}"


def test_every_function_says_what_it_returns() -> None:
    silent = [
        f"{name_of(file)}:{node.lineno} {node.name}"
        for file in FILES
        for node in functions(file)
        if node.returns is None
    ]
    assert not silent


def test_a_broad_except_gives_its_reason() -> None:
    silent = []
    for file in FILES:
        lines = file.read_text().splitlines()
        for node in nodes_of(file):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type is not None else ""
            broad = caught == "" or re.search(r"\b(Base)?Exception\b", caught)
            comment = lines[node.lineno - 1].partition("#")[2]
            reason = re.sub(r"noqa: ?[A-Z0-9, ]+", "", comment).strip(" -:")
            if broad and not reason:
                silent.append(f"{name_of(file)}:{node.lineno}")
    assert not silent, f"say on the line why everything is caught: {silent}"


LATE_IMPORTS = {
    "broker/config.py": "joserfc, with `cryptography`, which only brokers that take tokens need, takes time to load",
    "broker/client/security/aws.py": "AWS's library is of an extra, and takes memory and time to load",
    "broker/client/security/kerberos.py": "the library of Kerberos is of an extra",
    "broker/client/security/keystores.py": "`cryptography`, without which OpenSSL reads PEM, takes time to load",
    "deploy/cli/root.py": "`farshore --help` and `--version` answer before a command's modules are loaded",
    "deploy/cli/mirror.py": "grpc and etcd's messages, which only a fleet needs, take memory and time to load",
    "deploy/demo/story.py": "the report's Matplotlib is of an extra, and `farshore demo --help` needs none",
}
"""Files and folders that import inside functions, and why."""


def test_imports_stand_at_the_top() -> None:
    late = [
        f"{name_of(file)}:{node.lineno}"
        for file in PRODUCT
        if not any(Path(name_of(file)).is_relative_to(place) for place in LATE_IMPORTS)
        for function in functions(file)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not late


def test_nothing_is_left_for_later() -> None:
    found = [
        f"{name_of(file)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if any(re.search(rf"\b{word}", line) for word in LEFT_OVERS)
    ]
    assert not found


def test_nothing_names_the_machine_it_was_written_on() -> None:
    found = []
    for file in text_files():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(file)} has {match.group()}" for match in MACHINE.finditer(text)]
    assert not found


@pytest.mark.parametrize("folder", FOLDERS)
def test_walls(folder: str) -> None:
    """A folder imports of the others only what `docs/DESIGN.md` allows."""
    through = []
    for file in PRODUCT:
        if file.relative_to(ROOT).parts[0] != folder:
            continue
        for line, imported in imports(file):
            other = imported.partition(".")[0]
            if other not in FOLDERS or other == folder:
                continue
            if not any(imported == open_ or imported.startswith(f"{open_}.") for open_ in WALLS[folder]):
                through.append(f"{name_of(file)}:{line} imports {imported}")
    assert not through


@pytest.mark.parametrize("room", ROOMS)
def test_the_public_rooms_import_nothing_above_them(room: str) -> None:
    files = [file for file in PRODUCT if name_of(file).startswith(f"{room}/")]
    outside = [
        f"{name_of(file)}:{line} imports {imported}"
        for file in files
        for line, imported in imports(file)
        if imported.partition(".")[0] in FOLDERS and not imported.startswith(ROOMS[room])
    ]
    assert files
    assert not outside


def modules_named(file: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each string in a file that is the name of a module or package of ours."""
    for node in nodes_of(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+(\.\w+)+", node.value):
            place = ROOT / node.value.replace(".", "/")
            if place.is_dir() or place.with_suffix(".py").exists():
                yield node.lineno, node.value


def test_walls_hold_for_what_is_started_by_name() -> None:
    """`-m deploy.cli` is an import too, one that import-linter cannot see."""
    through = [
        f"{name_of(file)}:{line} names {module}"
        for file in PRODUCT
        for line, module in modules_named(file)
        if module.partition(".")[0] != (folder := file.relative_to(ROOT).parts[0])
        and not any(module == open_ or module.startswith(f"{open_}.") for open_ in WALLS[folder])
    ]
    assert not through


def test_children_are_started_by_the_one_helper() -> None:
    """A `-m` of our own would look for our modules in the folder that the operator stands in."""
    starters = [
        f"{name_of(file)}:{node.lineno}"
        for file in PRODUCT
        if name_of(file) != "broker/base/children.py"
        for node in nodes_of(file)
        if isinstance(node, ast.Constant) and node.value == "-m"
    ]
    assert not starters, "use module_command and module_environment of broker/base/children.py"


def test_tests_mirror_the_folders() -> None:
    """Every folder of the product with code in it has tests in a folder of the same name."""
    missing = [folder for folder in FOLDERS if not list((ROOT / "tests" / folder).rglob("test_*.py"))]
    assert not missing


def test_every_error_has_the_one_root() -> None:
    """Each `errors.py` has one class of its own tree that derives from FarshoreError, and all others from that."""
    for file in PRODUCT:
        if file.name != "errors.py" or name_of(file) == "broker/base/errors.py":
            continue
        outside = {
            alias.asname or alias.name
            for node in tree_of(file).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        known: set[str] = set()
        for node in (node for node in tree_of(file).body if isinstance(node, ast.ClassDef)):
            bases = {ast.unparse(base) for base in node.bases}
            allowed = known | (outside & {"FarshoreError", "BrokerError", "DeployError", "MirrorError"})
            assert bases & allowed or bases <= {"IntEnum", "StrEnum", "Enum"}, f"{name_of(file)}: {node.name}"
            known.add(node.name)


def test_a_tree_of_errors_shows_all_of_its_module() -> None:
    missing = []
    for file in PRODUCT:
        told = ast.get_docstring(tree_of(file)) or ""
        for node in tree_of(file).body:
            if "├──" in told and isinstance(node, ast.ClassDef) and not re.search(rf"\b{node.name}\b", told):
                missing.append(f"{name_of(file)}: {node.name}")
    assert not missing


def test_import_contracts() -> None:
    """The walls along chains of imports, as import-linter sees them."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
