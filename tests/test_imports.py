"""Who may import whom: rooms and what is in them, the runtime that boards get, heavy packages."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from rooms import ROOMS

from rankslice.framework.engines import ENGINES

ROOT = Path(__file__).parents[1]
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
CHECKOUT = [
    *FILES,
    *(
        file
        for other in ("benchmarks", "examples", "models", "tests")
        for file in (ROOT / other).rglob("*.py")
    ),
]
RUNTIME = [file for file in FILES if file.is_relative_to(ROOT / "backend" / "runtime")]

RUNTIME_PACKAGE = "rankslice.backend.runtime"
JOB = f"{RUNTIME_PACKAGE}.job"
"""The records of a job: ground for all rooms."""

LOADER = f"{RUNTIME_PACKAGE}.engines.onnxruntime_package"
"""What imports onnxruntime for all rooms."""

FLOORS = (
    ("framework",),
    ("backend", "frontend", "measurement"),
    ("exploration", "networks"),
    ("session",),
    ("views",),
    ("serve",),
    ("commands",),
    ("benchmarks",),
)
"""From the ground up: a room imports itself and the floors below."""

ALONG_A_FLOOR = {"frontend": (LOADER,), "measurement": (RUNTIME_PACKAGE,)}
"""What a room imports on its own floor."""

NARROWER = {
    "exploration": (
        "rankslice.framework",
        "rankslice.frontend",
        "rankslice.measurement",
        RUNTIME_PACKAGE,
    ),
    "networks": ("rankslice.framework", LOADER),
}
"""All that a room imports of the floors below, if it is not all of them."""

PARTS = {
    "frontend": {
        "partition": (),
        "rewriting": (),
        "formats": ("partition", "rewriting"),
        "costs": ("formats", "partition", "rewriting"),
        "plan": ("partition", "rewriting"),
    },
}
"""Room -> its parts -> the other parts that they may import."""

OF_ENGINES = frozenset(
    module for engine in ENGINES.values() for module in engine.distributions.values() if module
)
OF_SERVERS = frozenset(("grpc", "prometheus_client", "starlette", "uvicorn"))
HEAVY = OF_ENGINES | OF_SERVERS | {"PIL", "cv2", "matplotlib", "mpi4py", "pymoo", "sklearn"}
"""Imported inside the functions that need them: slow to load, or not installed everywhere."""

ADAPTERS = (
    "rankslice.exploration.search.pymoo_adapter",
    *(f"rankslice.serve.{name}" for name in ("grpc", "http", "metrics")),
)
"""They import heavy packages, and are imported inside functions themselves."""

ON_BOARDS = OF_ENGINES | {"PIL", "cv2", "mpi4py", "numpy", "zstandard"}
"""What the runtime may import besides the standard library."""


@dataclass(frozen=True)
class Import:
    """One module that a file imports."""

    module: str
    """Absolute name; of ``from a import b`` both ``a`` and ``a.b``, as ``b`` may be a module."""
    line: int
    lazy: bool
    """Whether it stands inside a function."""
    level: int
    """Number of leading dots."""
    typed: bool
    """Whether only type checkers see it."""


@cache
def imports(file: Path) -> tuple[Import, ...]:
    return tuple(_imports(ast.parse(file.read_text(encoding="utf-8"))))


def _imports(node: ast.AST, *, lazy: bool = False, typed: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy, 0, typed)
        elif isinstance(child, ast.ImportFrom):
            yield Import(child.module or "", child.lineno, lazy, child.level, typed)
            for alias in child.names:
                name = f"{child.module}.{alias.name}" if child.module else alias.name
                yield Import(name, child.lineno, lazy, child.level, typed)
        of_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _imports(child, lazy=inside, typed=typed or of_types)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def places(file: Path, items: Iterable[Import]) -> list[str]:
    return [f"{name_of(file)}:{item.line} imports {item.module}" for item in items]


def package_of(item: Import) -> str:
    """Return what is installed: ``PIL`` for ``PIL.Image``; empty for a relative import."""
    return "" if item.level else item.module.split(".")[0]


def allowed(room: str) -> tuple[str, ...]:
    """Return what a room's modules may import of ours, besides the package's version."""
    (number,) = (number for number, floor in enumerate(FLOORS) if room in floor)
    below = [f"rankslice.{other}" for floor in FLOORS[:number] for other in floor]
    return (*NARROWER.get(room, below), *ALONG_A_FLOOR.get(room, ()), JOB, f"rankslice.{room}")


def not_allowed(file: Path) -> list[Import]:
    """Return the imports of ours that a file's room may not have."""
    may = allowed(file.relative_to(ROOT).parts[0])
    return [
        item
        for item in imports(file)
        if package_of(item) == "rankslice"
        and item.module not in ("rankslice", "rankslice.__version__")
        and not is_within(item.module, may)
    ]


def test_a_room_imports_only_what_it_may() -> None:
    benchmarks = (ROOT / "benchmarks").rglob("*.py")
    wrong = [text for file in (*FILES, *benchmarks) for text in places(file, not_allowed(file))]
    assert [] == wrong


@pytest.mark.parametrize("room", PARTS)
def test_a_part_of_a_room_imports_only_what_it_may(room: str) -> None:
    parts = PARTS[room]
    assert parts.keys() == {file.parent.name for file in (ROOT / room).glob("*/__init__.py")}
    for part, others in parts.items():
        refused = tuple(f"rankslice.{room}.{name}" for name in parts if name not in (part, *others))
        for file in (ROOT / room / part).rglob("*.py"):
            wrong = (item for item in imports(file) if is_within(item.module, refused))
            assert [] == places(file, wrong)


MODULES = {
    file.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): file
    for file in FILES
}
"""Our modules: ``frontend/costs/cuts`` and its file."""


def imported(name: str) -> Iterator[tuple[str, Import]]:
    """Yield the modules of ours that a module imports, as in :data:`MODULES`."""
    file = MODULES[name]
    package = file.parent.relative_to(ROOT).parts
    for item in imports(file):
        if not item.level and package_of(item) != "rankslice":
            continue
        parts = item.module.split(".")
        parts = [*package[: len(package) - item.level + 1], *parts] if item.level else parts[1:]
        while parts and "/".join(parts) not in MODULES:
            del parts[-1]
        if parts:
            yield "/".join(parts), item


def circles(folder: str) -> set[str]:
    """Return the modules and folders in a folder that import each other in a circle."""
    arrows: dict[str, set[str]] = {}
    begin = f"{folder}/"
    for name in MODULES:
        if name.startswith(begin):
            own = name.removeprefix(begin).partition("/")[0]
            others = (to for to, item in imported(name) if not item.typed and to.startswith(begin))
            arrows.setdefault(own, set()).update(
                to.removeprefix(begin).partition("/")[0] for to in others
            )
            arrows[own].discard(own)
    left = set(arrows)
    while free := {
        name
        for name in left
        if not arrows[name] & left or not any(name in arrows[other] for other in left)
    }:
        left -= free
    return left


FOLDERS = sorted({parent.as_posix() for name in MODULES for parent in Path(name).parents[:-1]})


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_between_the_parts_of_a_folder_run_one_way(folder: str) -> None:
    assert set() == circles(folder)


def test_files_import_each_other_in_no_circle() -> None:
    """Imports for types count; those inside functions do not."""
    arrows = {
        name: {to for to, item in imported(name) if to != name and (item.typed or not item.lazy)}
        for name in MODULES
    }

    def reached_from(name: str) -> set[str]:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            new = arrows[waiting.pop()] - reached
            reached |= new
            waiting += new
        return reached

    assert set() == {name for name in MODULES if name in reached_from(name)}


PLUGINS = {
    "frontend/formats/*": None,
    "backend/runtime/engines": None,
    "backend/runtime/sources": None,
    "commands/*": frozenset({"cli", "function", "options", "show"}),
    "backend/agent/*": frozenset({"main"}),
}
"""Folders of plug-ins -> the names of their files that others of the kind may have, too."""

SHARED_NAMES = """
    errors messages records wording
"""
"""Names that files of different kinds still have; no others may."""


def kind_of(name: str) -> str:
    """What a file is a part of: a kind of plug-in, or nothing but itself."""
    path = Path(name)
    for folders, parts in PLUGINS.items():
        if path.parent.match(folders) and (parts is None or path.name in parts):
            return folders
    return name


def test_no_two_files_share_a_name_unless_they_are_the_same_part_of_plug_ins() -> None:
    kinds: dict[str, set[str]] = {}
    for name, file in MODULES.items():
        if file.name != "__init__.py":
            kinds.setdefault(Path(name).name, set()).add(kind_of(name))
    assert set() == {name for name, of in kinds.items() if len(of) > 1} - {*SHARED_NAMES.split()}


def test_nothing_is_imported_by_its_bare_name() -> None:
    assert [] == [
        text
        for file in FILES
        for text in places(file, (item for item in imports(file) if package_of(item) in ROOMS))
    ]


def names_in(module: str) -> set[str] | None:
    """Return the names of a module of the package and of those in it; ``None``: it is none."""
    place = ROOT / module.removeprefix("rankslice.").replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not file.is_file():
        return None
    names = {path.stem for path in place.glob("*")} if place.is_dir() else set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_benchmarks_and_examples_import_what_is_there() -> None:
    """Type checkers do not read them, and not all of them are run by tests."""
    missing = [
        f"{name_of(file)}:{node.lineno} imports {alias.name} of {node.module}"
        for file in CHECKOUT
        if name_of(file).partition("/")[0] in ("benchmarks", "examples", "models")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankslice.")
        for alias in node.names
        if alias.name not in (names_in(node.module or "") or ())
    ]
    assert [] == missing


def test_heavy_packages_are_imported_inside_functions() -> None:
    def is_heavy(item: Import) -> bool:
        is_heavy = package_of(item) in HEAVY or is_within(item.module, ADAPTERS)
        return is_heavy and not item.lazy

    adapters = {f"{name.removeprefix('rankslice.').replace('.', '/')}.py" for name in ADAPTERS}
    files = [file for file in FILES if name_of(file) not in adapters]
    assert len(files) == len(FILES) - len(ADAPTERS)
    assert [] == [text for file in files for text in places(file, filter(is_heavy, imports(file)))]


def test_onnxruntime_is_imported_where_its_telemetry_is_switched_off_first() -> None:
    """Strings of programs count, too: boards and tests start some."""
    off = 'os.environ["ORT_DISABLE_TELEMETRY"] = "1"'
    loads = re.compile(r"\bimport (?:[\w., ]+, )?onnxruntime\b|\bfrom onnxruntime[\w.]* import\b")
    switched_off = {}
    for file in (*CHECKOUT, *(ROOT / "templates").glob("*.j2")):
        text = file.read_text(encoding="utf-8")
        switched_off |= {
            name_of(file): off in text[: place.start()] for place in loads.finditer(text)
        }
    assert {
        "backend/runtime/engines/onnxruntime_package.py": True,
        "backend/agent/probe/environments.py": True,  # sent to boards by itself
        "benchmarks/bare_loop.py": True,  # runs without RankSlice
        "examples/build_and_compare.py": True,  # as a program of a user's
        "tests/test_telemetry.py": False,  # the control
    } == switched_off


def test_the_runtime_needs_nothing_that_a_board_lacks() -> None:
    known = sys.stdlib_module_names | ON_BOARDS | {""}

    def is_unknown(item: Import) -> bool:
        return package_of(item) not in known

    assert [] == [
        text for file in RUNTIME for text in places(file, filter(is_unknown, imports(file)))
    ]


def test_the_relative_imports_of_the_runtime_stay_inside() -> None:
    assert [] == [
        text
        for file in RUNTIME
        for text in places(
            file,
            (
                item
                for item in imports(file)
                if item.level > len(file.relative_to(ROOT / "backend" / "runtime").parts)
            ),
        )
    ]


def test_every_file_parses_as_python_3_10() -> None:
    for file in FILES:
        ast.parse(file.read_text(encoding="utf-8"), name_of(file), feature_version=(3, 10))


def test_these_rules_see_all_rooms() -> None:
    assert set(ROOMS) == {file.relative_to(ROOT).parts[0] for file in FILES}
    assert RUNTIME
    assert {"rankslice.backend.package"} <= {
        item.module for file in FILES for item in imports(file) if "session" in file.parts
    }
