"""Options of the test suite."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from boards.failure_matrix import ENDS, End, table
from browsers import running_browser

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("rankslice", deadline=None, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=100)
hypothesis.settings.load_profile("rankslice")

# Consoles keep the width that this says when they are made: that of a worker of pytest-xdist.
os.environ.pop("COLUMNS", None)

# A shell that starts the tests in the background lets them ignore SIGINT, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden",
        action="store_true",
        help="write the folders in tests/golden anew instead of comparing with them",
    )
    parser.addoption(
        "--skipped-to",
        type=Path,
        help="append what was skipped to this file, a line each: pytest @FILE runs it elsewhere",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have a file's tests run in one process, and those that bring boards up in the same one."""
    for item in items:
        has_boards = item.path.parent.name == "boards"
        item.add_marker(pytest.mark.xdist_group("boards" if has_boards else str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note a test that was skipped."""
    report = yield
    _note_if_skipped(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Note a file that was skipped."""
    report = yield
    _note_if_skipped(collector.config, report)
    return report


def _note_if_skipped(config: pytest.Config, report: Any) -> None:
    path = config.getoption("--skipped-to")
    if path is not None and report.skipped and not hasattr(report, "wasxfail"):
        with path.open("a", encoding="utf-8") as file:
            # Without its parameters, which may depend on what the machine has, and its group.
            name = re.split(r"[\[@]", report.nodeid)[0]
            file.write(f"{name}\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the failure matrix to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        ends = session.config.stash.get(ENDS, [])
        session.config.workeroutput["ends"] = [asdict(end) for end in ends]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take it."""
    ends = getattr(node, "workeroutput", {}).get("ends", [])
    node.config.stash.setdefault(ENDS, []).extend(End(**end) for end in ends)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print it, as far as its tests ran."""
    ends = terminalreporter.config.stash.get(ENDS, [])
    if ends:
        terminalreporter.section("failure matrix")
        for line in table(ends):
            terminalreporter.write_line(line)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of AutoDiCE's example on three ranks; only copies of it are changed."""
    from jobs import FIGURE_2_RANKS, build_folder, figure_2

    return build_folder(tmp_path_factory.mktemp("built"), figure_2(), FIGURE_2_RANKS)


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    """A copy of the build folder, to be damaged."""
    return Path(shutil.copytree(built, tmp_path / "out", symlinks=True))


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    """A folder with AutoDiCE's example and a mapping for it."""
    import onnx
    from jobs import FIGURE_2_RANKS, figure_2, write_mapping

    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    return tmp_path
