"""``rankslice probe --check``: what would keep a job from running on the boards of a platform."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.boards.answers import naming_folder
from rankslice.backend.boards.board_packages import Package, package_folder, read_package
from rankslice.backend.boards.conversation import (
    BoardLinks,
    Conversation,
    address_towards,
    clock_ahead_s,
    conversations,
    load_complaints,
    measure_routes,
    report_of,
)
from rankslice.backend.boards.login import Login, is_this_machine
from rankslice.backend.boards.preflight import check_board
from rankslice.backend.boards.probed import BoardReport, Environment
from rankslice.backend.boards.ssh import BoardShell, outcomes
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun
from rankslice.backend.runtime.engines.onnxruntime_providers import PLUGINS, is_library
from rankslice.backend.wheels import machine_of
from rankslice.framework.engines import ENGINES, computes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.framework.specs.core_lists import core_ranges, format_cores
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed
from rankslice.session.build_folder import check_ssh_config, read_plan
from rankslice.session.probing.platform_file import Pair, measured_pairs

OK, WARN, FAIL = "ok", "warn", "fail"

HERE = "this machine"
DEPLOY_VENV = "rankslice deploy OUT --venv"
"""Installs what a board lacks."""

_MIN_DISK_MB = 200
_FULL_DISK_MB = 20
_SPARE_DISK_MB = 50
_MEMORY_TOLERANCE = 1.05

_MAX_CLOCK_S = 1.0
_MIN_SHARE = 0.5
"""Of the bandwidth in the file, that has to be measured."""
_MAX_LATENCY = 2.0
_LATENCY_SPARE_MS = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    place: str
    """A board, two of them, or this machine."""
    check: str
    state: str
    """``ok``, ``warn``: a job runs, but not as it should, or ``fail``."""
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    folder: Path
    plan: Plan
    packages: Mapping[str, Package]
    """By board."""


@dataclass(frozen=True, slots=True)
class _ReachedBoard:
    board: Board
    talk: Conversation
    report: BoardReport


def _judged(place: str, check: str, found: str, remedy: str, state: str = FAIL) -> Finding:
    """Return what was found: it is right if there is no remedy, else in this state."""
    return Finding(place, check, state if remedy else OK, found, remedy)


def _failed(place: str, check: str, error: RankSliceError | str) -> Finding:
    """Return a failure, from a message that says in one sentence what is wrong and what to do."""
    text = error.mistakes[0] if isinstance(error, RankSliceError) else error
    if isinstance(text, Mistake):
        text = f"{text.found}; {text.expected}" if text.expected else text.found
    found, _, remedy = text.partition("; ")
    return Finding(place, check, FAIL, found, remedy)


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
                findings.append(_failed(board.name, "ssh", report))
                continue
            answered = f"answers, {report.hostname} at {report.address or HERE}"
            findings.append(Finding(board.name, "ssh", OK, answered))
            answers.append(_ReachedBoard(board, talk, report))
        on_step("checking boards")
        checks = outcomes(lambda answer: _board_findings(answer, job, launcher, platform), answers)
        for answer, check in zip(answers, checks, strict=True):
            if isinstance(check, RankSliceError):
                check = [_failed(answer.board.name, "ssh", check)]
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
        return None, [_failed(HERE, "Open MPI", str(error))]
    version = ".".join(map(str, launcher.version))
    return launcher, [Finding(HERE, "Open MPI", OK, f"{version}, {launcher.path}")]


def _clock_findings(answers: Sequence[_ReachedBoard]) -> Iterator[Finding]:
    """Yield boards whose clock differs from what most say, this machine among them."""
    readings = outcomes(clock_ahead_s, [answer.talk for answer in answers])
    known = [reading for reading in readings if not isinstance(reading, RankSliceError)]
    middle = statistics.median([0.0, *known])
    for answer, ahead in zip(answers, readings, strict=True):
        name = answer.board.name
        if isinstance(ahead, RankSliceError):
            yield _failed(name, "clock", ahead)
            continue
        side = "ahead of" if ahead > 0 else "behind"
        is_off = abs(ahead - middle) > _MAX_CLOCK_S
        remedy = "set it: sudo timedatectl set-ntp true" if is_off else ""
        found = f"{abs(ahead):.1f} s {side} this machine"
        yield _judged(name, "clock", found, remedy, WARN)


def _network_findings(
    answers: Sequence[_ReachedBoard], here: Conversation, platform: Platform
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
        yield from _pair_findings(pair, addresses, platform.link(*pair.boards)[0])


def _launcher_findings(names: Sequence[str], own: str, network: BoardLinks) -> Iterator[Finding]:
    """Check that boards reach this machine: mpirun's daemons connect to it."""
    remedy = "open this machine's TCP ports to it, or start jobs in the boards' network"
    for name, complaint in zip(names, network.complaints([(n, HERE) for n in names]), strict=True):
        found = f"connects to this machine at {own}"
        if complaint:
            found = f"cannot connect to this machine at {own}: {complaint}"
        yield _judged(name, "firewall", found, remedy if complaint else "")


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
    return _judged(place, "link", found, remedy if is_slow or is_late else "", WARN)


# On one board, with its GPUs and NPUs.


def _board_findings(
    answer: _ReachedBoard, job: Job | None, launcher: MpiRun | None, platform: Platform
) -> list[Finding]:
    findings = [*_python_findings(answer), *_core_findings(answer, job), *_kind_findings(answer)]
    findings += _room_findings(answer, job)
    if job is not None and launcher is not None and answer.report.environment.runs_jobs:
        findings += _package_findings(answer, job, launcher)
    elif job is None:
        findings += _installed_findings(answer, launcher, platform)
    return [*findings, *_accelerator_findings(answer, job)]


def _python_findings(answer: _ReachedBoard) -> Iterator[Finding]:
    name, environment = answer.board.name, answer.report.environment
    unusable = f"not usable: {environment.library.partition(': ')[2]}"
    found = f"{environment.python} is {environment.version or unusable}"
    remedy = "" if environment.runs_jobs else "install Python 3.10 or later there"
    yield _judged(name, "Python", found, remedy)
    wanted = answer.board.python
    if environment.version and wanted and not f"{environment.version}.".startswith(f"{wanted}."):
        differs = f"the platform file says {wanted}, and it is {environment.version}"
        yield Finding(name, "Python", WARN, differs, "correct `python`, which --wheels goes by")


def _core_findings(answer: _ReachedBoard, job: Job | None) -> Iterator[Finding]:
    board, has = answer.board, answer.report.cores
    usable = f"programs may use {format_cores(has)}"
    missing = tuple(core for core in board.cores or () if core not in has)
    if missing:
        found = f"there is no {format_cores(missing).replace('cores', 'core')}; {usable}"
        yield Finding(board.name, "cores", FAIL, found, f"write `cores: {core_ranges(has)}`")
    for rank in job.plan.ranks if job is not None else ():
        lost = tuple(core for core in rank.cores if core not in has)
        if rank.board == board.name and lost:
            found = f"rank {rank.rank} ({rank.key}) wants {format_cores(lost)}; {usable}"
            yield Finding(board.name, "cores", FAIL, found, "choose others in the mapping")
    if not missing:
        yield Finding(board.name, "cores", OK, usable)


def _kind_findings(answer: _ReachedBoard) -> Iterator[Finding]:
    board, report = answer.board, answer.report
    wanted = machine_of(board.arch)
    if wanted and wanted != report.arch:
        found = f"the platform file says {board.arch}, and it is {report.arch}"
        yield Finding(board.name, "arch", WARN, found, f"write `arch: {report.arch}`")
    most = _MEMORY_TOLERANCE * (report.memory_mb or math.inf)  # 0: not told
    if board.memory_mb and board.memory_mb > most:
        found = f"the platform file says {board.memory_mb:g} MB, and it has {report.memory_mb}"
        yield Finding(board.name, "memory", WARN, found, f"write `memory_mb: {report.memory_mb}`")


def _room_findings(answer: _ReachedBoard, job: Job | None) -> Iterator[Finding]:
    name, report = answer.board.name, answer.report
    package = job.packages[name] if job is not None else None
    needed = package.nbytes / 2**20 + _SPARE_DISK_MB if package is not None else _MIN_DISK_MB
    least = needed if package is not None else _FULL_DISK_MB
    free = f"{report.disk_free_mb} MB free in {report.home}"
    remedy = "make room; ~/.rankslice/packages has older packages"
    state = FAIL if report.disk_free_mb < least else WARN
    yield _judged(name, "disk", free, remedy if report.disk_free_mb < needed else "", state)
    weights = sum(
        entry["bytes"]
        for file, entry in (package.files if package is not None else {}).items()
        if file.startswith("submodels/")
    )
    yield _memory_finding(name, report, weights / 2**20)
    if not report.has_rsync and not answer.talk.shell.is_here:
        yield Finding(name, "rsync", FAIL, "is not installed", "apt-get install rsync there")


def _memory_finding(name: str, report: BoardReport, weights_mb: float) -> Finding:
    found = f"{report.available_mb} of {report.memory_mb} MB free"
    if weights_mb:
        found += f"; its sub-models have {weights_mb:.0f} MB"
    if weights_mb > report.available_mb:
        return Finding(name, "memory", FAIL, found, "give it fewer layers, or end other programs")
    is_tight = 2 * weights_mb > report.available_mb
    remedy = "engines may need twice that: fewer layers?" if is_tight else ""
    return _judged(name, "memory", found, remedy, WARN)


def _package_findings(answer: _ReachedBoard, job: Job, launcher: MpiRun) -> list[Finding]:
    """Have a board make the checks that come before each run."""
    name = answer.board.name
    check = check_board(answer.talk.shell, job.packages[name], launcher)
    if check.problems:
        problems = (naming_folder(problem, job.folder) for problem in check.problems)
        return [_failed(name, "package", problem) for problem in problems]
    return [Finding(name, "package", OK, "is deployed, with all its requirements")]


def _installed_findings(
    answer: _ReachedBoard, launcher: MpiRun | None, platform: Platform
) -> Iterator[Finding]:
    board, environment = answer.board, answer.report.environment
    if launcher is not None:
        yield _open_mpi_finding(board.name, answer.report, launcher)
    if not environment.version:
        return
    codec = ("zstandard",) if platform.compresses(board.name) else ()
    for package in ("mpi4py", "numpy", *codec):
        version, remedy = environment.version_of(package), DEPLOY_VENV
        if version is None:
            found = f"{environment.python} has none"
        elif package == "mpi4py" and environment.library.startswith("error"):
            found = f"finds no MPI: {environment.library.partition(': ')[2]}"
        else:
            found, remedy = version or "there", ""
        yield _judged(board.name, package, found, remedy)
    yield from _engine_findings(board, environment)


def _open_mpi_finding(name: str, report: BoardReport, launcher: MpiRun) -> Finding:
    series = ".".join(map(str, launcher.version[:2]))
    fitting = [
        installed
        for installed in report.open_mpi
        if installed.has_daemon and installed.version.startswith(f"{series}.")
    ]
    if fitting:
        return Finding(name, "Open MPI", OK, f"{fitting[0].version}, {fitting[0].mpirun}")
    others = [f"{installed.version} ({installed.mpirun})" for installed in report.open_mpi]
    has = f"it has {joined(others)}" if others else "it has none"
    found = f"mpirun here is of {series}, and {has}: all must be of one series"
    remedy = DEPLOY_VENV if launcher.is_five else "apt-get install openmpi-bin there"
    return Finding(name, "Open MPI", FAIL, found, f"{remedy}, or another --mpirun")


def _engine_findings(board: Board, environment: Environment) -> Iterator[Finding]:
    units = [*([board.cpu] if board.cpu else []), *board.gpus, *board.npus]
    named = dict.fromkeys(filter(None, (board.engine, *(unit.engine for unit in units))))
    for engine in named:
        there = _engine_packages(environment, engine)
        found = joined(there) or "needs nothing"
        if not there and computes(engine):
            yield Finding(board.name, engine, FAIL, f"{environment.python} has none", DEPLOY_VENV)
        else:
            yield Finding(board.name, engine, OK, found)
    if not named:
        there = _engine_packages(environment, *ENGINES)
        found = joined(there) or f"{environment.python} has none"
        yield _judged(board.name, "engine", found, "" if there else DEPLOY_VENV)


def _engine_packages(environment: Environment, *engines: str) -> list[str]:
    return [
        f"{name} {version}".strip()
        for engine in engines
        for name, version in environment.packages
        if name in (ENGINES[engine].packages if engine in ENGINES else (engine,))
    ]


def _accelerator_findings(answer: _ReachedBoard, job: Job | None) -> list[Finding]:
    units = [*_units(answer.board, job)]
    libraries = [(unit, spec, library) for unit, spec in units if (library := _library_of(spec))]
    findings = [
        _provider_finding(answer, unit, options)
        for unit, options in ((unit, dict(spec.options)) for unit, spec in units)
        if "provider" in options and not is_library(options.get("plugin", ""))
    ]
    if libraries:
        wanted = [(library, dict(spec.environment)) for _, spec, library in libraries]
        complaints = load_complaints(answer.talk, wanted)
        remedy = "install the vendor's package, or give its path as `delegate` or `plugin`"
        for (unit, _, library), complaint in zip(libraries, complaints, strict=True):
            found = f"{library} can" + (
                f"not be loaded: {complaint}" if complaint else " be loaded"
            )
            findings.append(_judged(answer.board.name, unit, found, remedy if complaint else ""))
    if any(unit[:3] in ("gpu", "npu") for unit, _ in units):
        for device in answer.report.devices:
            if not device.may_open:
                path, found = device.path, f"the account may not open {device.path}"
                remedy = f"add the account to the group of {path}: sudo usermod -aG GROUP USER"
                findings.append(Finding(answer.board.name, "device", WARN, found, remedy))
    return findings


def _units(board: Board, job: Job | None) -> Iterator[tuple[str, Accelerator]]:
    if job is not None:
        for rank in job.plan.ranks:
            if rank.board == board.name:
                yield rank.accelerator, Accelerator(rank.engine, rank.options, rank.environment)
        return
    if board.cpu is not None:
        yield "cpu", board.cpu
    yield from board.gpus_and_npus.items()


def _library_of(spec: Accelerator) -> str:
    """Return the library that an accelerator names, a delegate or a plug-in; empty: none."""
    options = dict(spec.options)
    plugin = options.get("plugin", "")
    return options.get("delegate", plugin if is_library(plugin) else "")


def _provider_finding(answer: _ReachedBoard, unit: str, options: Mapping[str, str]) -> Finding:
    name, environment = answer.board.name, answer.report.environment
    provider, plugin = options["provider"], options.get("plugin", "")
    wanted = provider.lower().removesuffix("executionprovider")
    has = environment.provider_names
    if not plugin and wanted in map(str.lower, has):
        return Finding(name, unit, OK, f"onnxruntime has {provider}")
    usual = {name.lower(): package for name, package in PLUGINS.items()}
    package = plugin or usual.get(wanted, "")
    version = environment.version_of(package)
    if version is not None:
        return Finding(name, unit, OK, f"{package} {version} has {provider}")
    if plugin:
        found = f"it is not known whether {environment.python} has {plugin}"
        return Finding(name, unit, WARN, found, f"{DEPLOY_VENV} installs it")
    found = f"the onnxruntime of {environment.python} has {joined(has) or 'no provider'}"
    remedy = f"install an onnxruntime with {provider}: {DEPLOY_VENV}"
    return Finding(name, unit, FAIL, f"{found}, not {provider}", remedy)
