"""``rankslice probe --check``: what would keep a job from running on the boards of a platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rankslice.backend.boards.board_packages import package_folder, read_package
from rankslice.backend.boards.conversation import conversations, report_of
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.parallel import outcomes
from rankslice.backend.boards.probed import BoardReport
from rankslice.backend.boards.ssh import BoardShell
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.platform import Board, Platform
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed
from rankslice.session.build_folder import check_ssh_config, read_plan
from rankslice.session.probing.board_checks import board_findings
from rankslice.session.probing.findings import (
    FAIL,
    HERE,
    OK,
    WARN,
    Answer,
    Finding,
    Job,
    failed,
    message_of,
)
from rankslice.session.probing.network_checks import clock_findings, network_findings


def check_platform(
    source: str | Path,
    out: Path | None = None,
    *,
    mpirun: Path | None = None,
    ssh_config: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> tuple[Finding, ...]:
    """Return what would keep a job from running on boards, and what is as it should be.

    Args:
        out: a build folder; its boards alone are looked at, and whether they can run it.

    Raises:
        RankSliceError: the platform or the build folder cannot be read.
    """
    platform = read_platform(source)
    check_ssh_config(ssh_config)
    job = _job(out) if out is not None else None
    findings = list(_platform_findings(platform, job))
    launcher, own = _launcher(mpirun)
    findings += own
    boards = [board for board in platform.boards if job is None or board.name in job.packages]
    logins = [Login(board.name, board.host, board.user) for board in boards]
    here = Login(HERE, "localhost")
    shells = [BoardShell(login, ssh_config) for login in [*logins, here]]
    with conversations(shells) as talks:
        on_step("asking boards")
        reports = outcomes(report_of, talks[:-1])
        answers = [
            Answer(board, talk, report)
            for board, talk, report in zip(boards, talks, reports, strict=False)
            if isinstance(report, BoardReport)
        ]
        for board, report in zip(boards, reports, strict=True):
            findings += _reached(board, report)
        on_step("checking boards")
        for found in outcomes(lambda answer: board_findings(answer, job, launcher), answers):
            findings += _lost(found) if isinstance(found, RankSliceError) else found
        findings += clock_findings(answers)
        on_step("measuring between boards")
        findings += network_findings(answers, talks[-1], platform)
    places = list(dict.fromkeys(finding.place for finding in findings))
    return tuple(sorted(findings, key=lambda finding: places.index(finding.place)))


def _job(out: Path) -> Job:
    plan = read_plan(out)
    boards = dict.fromkeys(placement.board for placement in plan.ranks)
    packages = {board: read_package(package_folder(out, board), board) for board in boards}
    return Job(out, plan, packages)


def _platform_findings(platform: Platform, job: Job | None) -> Iterator[Finding]:
    hosts = Counter(board.host for board in platform.boards)
    for host, count in hosts.items():
        if count > 1:
            names = [board.name for board in platform.boards if board.host == host]
            found = f"{joined(names)} have the same host, {host}"
            yield Finding(names[0], "platform", FAIL, found, "make them one board")
    if job is None:
        return
    known = {board.name: board for board in platform.boards}
    for placement in {rank.board: rank for rank in job.plan.ranks}.values():
        board = known.get(placement.board)
        if board is None:
            found = f"the build folder needs it, and {platform.name} has {listed([*known])}"
            yield Finding(placement.board, "platform", FAIL, found, "another platform file?")
        elif board.host != placement.host:
            found = f"the build folder was made for the host {placement.host}, not {board.host}"
            yield Finding(board.name, "platform", WARN, found, "build again")


def _launcher(mpirun: Path | None) -> tuple[MpiRun | None, list[Finding]]:
    try:
        launcher = find_mpirun(mpirun)
    except RankSliceError as error:
        return None, [failed(HERE, "Open MPI", str(error))]
    version = ".".join(map(str, launcher.version))
    return launcher, [Finding(HERE, "Open MPI", OK, f"{version}, {launcher.path}")]


def _reached(board: Board, report: BoardReport | RankSliceError) -> list[Finding]:
    if isinstance(report, RankSliceError):
        return [failed(board.name, "ssh", message_of(report))]
    address = report.address or HERE
    return [Finding(board.name, "ssh", OK, f"answers, {report.hostname} at {address}")]


def _lost(error: RankSliceError) -> list[Finding]:
    mistake = error.mistakes[0]
    place = mistake.where if isinstance(mistake, Mistake) else HERE
    return [failed(place, "ssh", message_of(error))]
