"""Who may import whom: the rooms, the runtime that boards get, and heavy packages."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "backend",
    "commands",
    "exploration",
    "framework",
    "frontend",
    "measurement",
    "networks",
)
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
CHECKOUT = [
    *FILES,
    *(file for other in ("benchmarks", "models", "tests") for file in (ROOT / other).rglob("*.py")),
]
RUNTIME = [file for file in FILES if file.is_relative_to(ROOT / "backend" / "runtime")]

RECORDS = "rankslice.framework"
LOADER = "rankslice.backend.runtime.engines.onnxruntime_package"
"""What imports onnxruntime for all rooms."""

ALLOWED = {
    "framework": (),
    "frontend": (RECORDS, LOADER),
    "backend": (RECORDS,),
    "measurement": (RECORDS, "rankslice.backend.runtime"),
    "exploration": (RECORDS, "rankslice.frontend", "rankslice.backend.runtime"),
    "networks": (RECORDS, LOADER),
    "commands": tuple(f"rankslice.{room}" for room in ROOMS),
}
"""Room -> what its modules may import of ours, besides their own room and the package's version."""

PARTS = {
    "frontend": {
        "partition": (),
        "formats": ("partition",),
        "costs": ("formats", "partition"),
        "plan": ("partition",),
    },
}
"""Room -> its parts -> the other parts that they may import."""

HEAVY = frozenset(
    {
        "PIL",
        "ai_edge_litert",
        "cv2",
        "matplotlib",
        "mpi4py",
        "onnxruntime",
        "pymoo",
        "sklearn",
        "tensorflow",
        "tflite_runtime",
    }
)
"""Imported inside the functions that need them: slow to load, or not installed everywhere."""

ON_BOARDS = frozenset({"PIL", "ai_edge_litert", "mpi4py", "numpy", "onnxruntime"})
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


def imports(file: Path) -> list[Import]:
    return list(_imports(ast.parse(file.read_text(encoding="utf-8")), lazy=False))


def _imports(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy, 0)
        elif isinstance(child, ast.ImportFrom):
            yield Import(child.module or "", child.lineno, lazy, child.level)
            for alias in child.names:
                name = f"{child.module}.{alias.name}" if child.module else alias.name
                yield Import(name, child.lineno, lazy, child.level)
        yield from _imports(child, lazy=inside)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def told(file: Path, found: Iterable[Import]) -> list[str]:
    return [f"{name_of(file)}:{item.line} imports {item.module}" for item in found]


def package_of(item: Import) -> str:
    """Return what is installed: ``PIL`` for ``PIL.Image``; empty for a relative import."""
    return "" if item.level else item.module.split(".")[0]


def not_allowed(file: Path) -> list[Import]:
    """Return the imports of ours that a file's room may not have."""
    room = file.relative_to(ROOT).parts[0]
    allowed = (*ALLOWED[room], f"rankslice.{room}")
    return [
        item
        for item in imports(file)
        if package_of(item) == "rankslice"
        and item.module not in ("rankslice", "rankslice.__version__")
        and not is_within(item.module, allowed)
    ]


def test_a_room_imports_only_what_it_may() -> None:
    assert [] == [text for file in FILES for text in told(file, not_allowed(file))]


@pytest.mark.parametrize("room", PARTS)
def test_a_part_of_a_room_imports_only_what_it_may(room: str) -> None:
    parts = PARTS[room]
    assert parts.keys() == {file.parent.name for file in (ROOT / room).glob("*/__init__.py")}
    for part, others in parts.items():
        refused = tuple(f"rankslice.{room}.{name}" for name in parts if name not in (part, *others))
        for file in (ROOT / room / part).rglob("*.py"):
            found = (item for item in imports(file) if is_within(item.module, refused))
            assert [] == told(file, found)


def test_nothing_is_imported_by_its_bare_name() -> None:
    assert [] == [
        text
        for file in FILES
        for text in told(file, (item for item in imports(file) if package_of(item) in ROOMS))
    ]


def test_heavy_packages_are_imported_inside_functions() -> None:
    def is_heavy(item: Import) -> bool:
        return package_of(item) in HEAVY and not item.lazy

    assert [] == [text for file in FILES for text in told(file, filter(is_heavy, imports(file)))]


def test_onnxruntime_is_imported_where_its_telemetry_is_switched_off_first() -> None:
    """Strings of programs count, too: boards and tests start some."""
    off = 'os.environ["ORT_DISABLE_TELEMETRY"] = "1"'
    loads = re.compile(r"\bimport (?:[\w., ]+, )?onnxruntime\b|\bfrom onnxruntime[\w.]* import\b")
    found = {}
    for file in (*CHECKOUT, *(ROOT / "templates").glob("*.j2")):
        text = file.read_text(encoding="utf-8")
        found |= {name_of(file): off in text[: place.start()] for place in loads.finditer(text)}
    assert {
        "backend/runtime/engines/onnxruntime_package.py": True,
        "backend/boards/agent/probe/environments.py": True,  # sent to boards by itself
        "benchmarks/bare_loop.py": True,  # runs without RankSlice
        "tests/test_telemetry.py": False,  # the control
    } == found


def test_the_runtime_needs_nothing_that_a_board_lacks() -> None:
    known = sys.stdlib_module_names | ON_BOARDS | {""}

    def is_unknown(item: Import) -> bool:
        return package_of(item) not in known

    assert [] == [
        text for file in RUNTIME for text in told(file, filter(is_unknown, imports(file)))
    ]


def test_the_relative_imports_of_the_runtime_stay_inside() -> None:
    assert [] == [
        text
        for file in RUNTIME
        for text in told(
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
        item.module for file in FILES for item in imports(file) if "commands" in file.parts
    }
