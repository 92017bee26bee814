"""``rankslice probe --check``: what would keep a job from running on the boards of a platform."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rankslice.backend.boards.board_packages import package_folder, read_package
from rankslice.backend.boards.conversation import (
    BoardLinks,
    Conversation,
    address_towards,
    clock_ahead_s,
    conversations,
    measure_routes,
    report_of,
)
from rankslice.backend.boards.login import Login, is_this_machine
from rankslice.backend.boards.ssh import BoardShell, outcomes
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun
from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Link, Platform
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed
from rankslice.session.build_folder import check_ssh_config, read_plan
from rankslice.session.probing.board_checks import (
    FAIL,
    HERE,
    OK,
    WARN,
    Finding,
    Job,
    ReachedBoard,
    board_findings,
    failed,
    judged,
)
from rankslice.session.probing.platform_file import Pair, measured_pairs

_MAX_CLOCK_S = 1.0
_MIN_SHARE = 0.5
"""Of the bandwidth in the file, that has to be measured."""
_MAX_LATENCY = 2.0
_LATENCY_SPARE_MS = 0.5


def check_platform(
    source: str | Path,
    out: Path | None = None,
    *,
    mpirun: Path | None = None,
    ssh_config: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> tuple[Finding, ...]:
    """Check boards, their network, or a job on them; return all findings, good ones too.

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
        answers = []
        for board, talk, report in zip(boards, talks, reports, strict=False):
            if isinstance(report, RankSliceError):
                findings.append(failed(board.name, "ssh", report))
                continue
            answered = f"answers, {report.hostname} at {report.address or HERE}"
            findings.append(Finding(board.name, "ssh", OK, answered))
            answers.append(ReachedBoard(board, talk, report))
        on_step("checking boards")
        checks = outcomes(lambda answer: board_findings(answer, job, launcher), answers)
        for answer, check in zip(answers, checks, strict=True):
            if isinstance(check, RankSliceError):
                check = [failed(answer.board.name, "ssh", check)]
            findings += check
        findings += _clock_findings(answers)
        on_step("measuring between boards")
        findings += _network_findings(answers, talks[-1], platform)
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


def _clock_findings(answers: Sequence[ReachedBoard]) -> Iterator[Finding]:
    """Yield boards whose clock differs from what most say, this machine among them."""
    readings = outcomes(clock_ahead_s, [answer.talk for answer in answers])
    known = [reading for reading in readings if not isinstance(reading, RankSliceError)]
    middle = statistics.median([0.0, *known])
    for answer, ahead in zip(answers, readings, strict=True):
        name = answer.board.name
        if isinstance(ahead, RankSliceError):
            yield failed(name, "clock", ahead)
            continue
        side = "ahead of" if ahead > 0 else "behind"
        is_off = abs(ahead - middle) > _MAX_CLOCK_S
        remedy = "set it: sudo timedatectl set-ntp true" if is_off else ""
        found = f"{abs(ahead):.1f} s {side} this machine"
        yield judged(name, "clock", found, remedy, WARN)


def _network_findings(
    answers: Sequence[ReachedBoard], here: Conversation, platform: Platform
) -> Iterator[Finding]:
    far = [answer for answer in answers if not is_this_machine(answer.board.host)]
    if not far:
        return
    own = address_towards(here, [answer.report for answer in far])
    addresses = {answer.board.name: answer.report.address or own for answer in answers}
    talks = {answer.board.name: answer.talk for answer in answers}
    network = BoardLinks({**talks, HERE: here}, {**addresses, HERE: own})
    yield from _launcher_findings([answer.board.name for answer in far], own, network)
    for pair in measured_pairs(measure_routes(network, list(addresses))):
        yield from _pair_findings(pair, addresses, _link(platform, pair.boards))


def _launcher_findings(names: Sequence[str], own: str, network: BoardLinks) -> Iterator[Finding]:
    """Check that boards reach this machine: mpirun's daemons connect to it."""
    remedy = "open this machine's TCP ports to it, or start jobs in the boards' network"
    for name, complaint in zip(names, network.complaints([(n, HERE) for n in names]), strict=True):
        found = f"connects to this machine at {own}"
        if complaint:
            found = f"cannot connect to this machine at {own}: {complaint}"
        yield judged(name, "firewall", found, remedy if complaint else "")


def _link(platform: Platform, boards: tuple[str, str]) -> Link | None:
    for first, second, link in platform.links:
        if {first, second} == set(boards):
            return link
    return platform.default_link


def _pair_findings(
    pair: Pair, addresses: Mapping[str, str], link: Link | None
) -> Iterator[Finding]:
    place = " - ".join(pair.boards)
    for route in (pair.there, pair.back):
        if route.complaint:
            target = addresses[route.target]
            found = f"{route.source} cannot connect to {target}: {route.complaint}"
            remedy = f"open all TCP ports of {route.target} to {addresses[route.source]}"
            yield Finding(place, "firewall", FAIL, found, remedy)
    if not pair.complaints:
        yield _link_finding(place, pair, link)


def _link_finding(place: str, pair: Pair, link: Link | None) -> Finding:
    found = f"{pair.bandwidth_mbps:.3g} Mbit/s, {pair.latency_ms:.2g} ms"
    if link is None:
        return Finding(place, "link", OK, found)
    found += f"; the platform file says {link.bandwidth_mbps:g} Mbit/s, {link.latency_ms:g} ms"
    is_slow = pair.bandwidth_mbps < _MIN_SHARE * link.bandwidth_mbps
    is_late = pair.latency_ms > _MAX_LATENCY * link.latency_ms + _LATENCY_SPARE_MS
    remedy = "look at cable and switch, or correct `links`: rankslice probe"
    return judged(place, "link", found, remedy if is_slow or is_late else "", WARN)
