"""``rankslice probe --check``: what would keep a job from running on the boards of a platform."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.boards.answers import BoardCheck
from rankslice.backend.boards.deploy import Package, package_folder, read_package
from rankslice.backend.boards.links import BoardLinks, measure_routes
from rankslice.backend.boards.parallel import outcomes
from rankslice.backend.boards.probe import (
    Conversation,
    address_towards,
    clock_ahead_s,
    conversations,
    load_complaints,
    report_of,
)
from rankslice.backend.boards.probed import BoardReport, Device, Environment
from rankslice.backend.boards.reach import Reach
from rankslice.backend.boards.ssh import BoardShell, is_this_machine
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun
from rankslice.backend.runtime.engines.onnxruntime_plugins import PLUGINS, is_library
from rankslice.commands.build_folder import check_ssh_config, read_plan
from rankslice.commands.probe.platform_file import Pair, measured_pairs
from rankslice.framework.engines import ENGINES, computes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.framework.specs.cores import core_ranges, format_cores
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed

__all__ = ["FAIL", "OK", "WARN", "Finding", "check_platform"]

OK, WARN, FAIL = "ok", "warn", "fail"

_HERE = "this machine"
_MIN_PYTHON = (3, 10)
_MIN_DISK_MB = 200
_FULL_DISK_MB = 20
_SPARE_DISK_MB = 50
_MEMORY_TOLERANCE = 1.05
_MAX_CLOCK_S = 1.0
_MIN_SHARE = 0.5
"""Of the bandwidth in the file, that has to be measured."""
_MAX_LATENCY = 2.0
_LATENCY_SPARE_MS = 0.5
_SAME_ARCH = {"arm64": "aarch64", "amd64": "x86_64", "x86-64": "x86_64"}
_VENV = "rankslice deploy OUT --venv"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    place: str
    """A board, two of them, or this machine."""
    check: str
    state: str
    """``ok``, ``warn``: a job runs, but not as it should, or ``fail``."""
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the record for ``--json``."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Job:
    """A build folder that is to run."""

    plan: Plan
    packages: Mapping[str, Package]
    """By board."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A board that has told of itself."""

    board: Board
    talk: Conversation
    report: BoardReport


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
        source: a platform file, or ``local``.
        out: a build folder; its boards alone are looked at, and whether they can run it.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.
        on_step: told what is being done.

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
    reaches = [Reach(board.name, board.host, board.user) for board in boards]
    here = Reach(_HERE, "localhost")
    shells = [BoardShell(reach, ssh_config) for reach in [*reaches, here]]
    with conversations(shells) as talks:
        on_step("asking boards")
        reports = outcomes(report_of, talks[:-1])
        answers = [
            _Answer(board, talk, report)
            for board, talk, report in zip(boards, talks, reports, strict=False)
            if isinstance(report, BoardReport)
        ]
        for board, report in zip(boards, reports, strict=True):
            findings += _reached(board, report)
        on_step("checking boards")
        for found in outcomes(lambda answer: _board_findings(answer, job, launcher), answers):
            findings += _lost(found) if isinstance(found, RankSliceError) else found
        findings += _clock_findings(answers)
        on_step("measuring between boards")
        findings += _network_findings(answers, talks[-1], platform)
    places = list(dict.fromkeys(finding.place for finding in findings))
    return tuple(sorted(findings, key=lambda finding: places.index(finding.place)))


def _job(out: Path) -> _Job:
    plan = read_plan(out)
    boards = dict.fromkeys(placement.board for placement in plan.ranks)
    return _Job(plan, {board: read_package(package_folder(out, board), board) for board in boards})


def _split(text: str) -> tuple[str, str]:
    """Return what was found and what to do, which messages have in one sentence."""
    found, _, remedy = text.partition("; ")
    return found, remedy


def _failed(place: str, check: str, text: str) -> Finding:
    return Finding(place, check, FAIL, *_split(text))


# The files and this machine


def _platform_findings(platform: Platform, job: _Job | None) -> Iterator[Finding]:
    """Yield what is wrong with the platform before any board is asked."""
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
    """Return the mpirun of this machine, and what to tell of it."""
    try:
        found = find_mpirun(mpirun)
    except RankSliceError as error:
        return None, [_failed(_HERE, "Open MPI", str(error))]
    version = ".".join(map(str, found.version))
    return found, [Finding(_HERE, "Open MPI", OK, f"{version}, {found.path}")]


def _reached(board: Board, report: BoardReport | RankSliceError) -> list[Finding]:
    """Return whether a board answers."""
    if isinstance(report, RankSliceError):
        return [_failed(board.name, "ssh", _message(report))]
    address = report.address or _HERE
    return [Finding(board.name, "ssh", OK, f"answers, {report.hostname} at {address}")]


def _message(error: RankSliceError) -> str:
    """Return what an error says, without where."""
    mistake = error.mistakes[0]
    if not isinstance(mistake, Mistake):
        return mistake
    return f"{mistake.found}; {mistake.expected}" if mistake.expected else mistake.found


def _lost(error: RankSliceError) -> list[Finding]:
    """Return what to tell of a board that does not answer any more."""
    mistake = error.mistakes[0]
    place = mistake.where if isinstance(mistake, Mistake) else _HERE
    return [_failed(place, "ssh", _message(error))]


# One board


def _board_findings(answer: _Answer, job: _Job | None, launcher: MpiRun | None) -> list[Finding]:
    """Return what is known of one board.

    Raises:
        RankSliceError: it does not answer any more.
    """
    findings = [*_python_findings(answer), *_core_findings(answer, job)]
    findings += _kind_findings(answer)
    findings += _room_findings(answer, job)
    if job is not None and launcher is not None and _python_does(answer.report.environment):
        findings += _package_findings(answer, job.packages[answer.board.name], launcher)
    elif job is None:
        findings += _installed_findings(answer, launcher)
    return [*findings, *_accelerator_findings(answer, job)]


def _python_findings(answer: _Answer) -> Iterator[Finding]:
    name, environment = answer.board.name, answer.report.environment
    unusable = f"not usable: {environment.library.partition(': ')[2]}"
    found = f"{environment.python} is {environment.version or unusable}"
    if _python_does(environment):
        yield Finding(name, "Python", OK, found)
    else:
        yield Finding(name, "Python", FAIL, found, "install Python 3.10 or later there")
    wanted = answer.board.python
    if environment.version and wanted and not f"{environment.version}.".startswith(f"{wanted}."):
        told = f"the platform file says {wanted}, and it is {environment.version}"
        yield Finding(name, "Python", WARN, told, "correct `python`, which --wheels goes by")


def _python_does(environment: Environment) -> bool:
    """Tell whether a Python can run jobs."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", environment.version)[:2])
    return numbers >= _MIN_PYTHON


def _core_findings(answer: _Answer, job: _Job | None) -> Iterator[Finding]:
    """Yield whether there are the cores that the platform, or the job, names."""
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


def _kind_findings(answer: _Answer) -> Iterator[Finding]:
    """Yield whether architecture and memory are what the platform file says."""
    board, report = answer.board, answer.report
    wanted = _SAME_ARCH.get(board.arch.lower(), board.arch.lower())
    if wanted and wanted != report.arch:
        found = f"the platform file says {board.arch}, and it is {report.arch}"
        yield Finding(board.name, "arch", WARN, found, f"write `arch: {report.arch}`")
    most = _MEMORY_TOLERANCE * (report.memory_mb or math.inf)  # 0: not told
    if board.memory_mb and board.memory_mb > most:
        found = f"the platform file says {board.memory_mb:g} MB, and it has {report.memory_mb}"
        yield Finding(board.name, "memory", WARN, found, f"write `memory_mb: {report.memory_mb}`")


def _room_findings(answer: _Answer, job: _Job | None) -> Iterator[Finding]:
    """Yield whether there is room on the disk and in memory, and what copies files there."""
    name, report = answer.board.name, answer.report
    package = job.packages[name] if job is not None else None
    needed = package.nbytes / 2**20 + _SPARE_DISK_MB if package is not None else _MIN_DISK_MB
    least = needed if package is not None else _FULL_DISK_MB
    free = f"{report.disk_free_mb} MB free in {report.home}"
    state = FAIL if report.disk_free_mb < least else WARN if report.disk_free_mb < needed else OK
    remedy = "make room; ~/.rankslice/packages has older packages" if state != OK else ""
    yield Finding(name, "disk", state, free, remedy)
    weights = sum(
        entry["bytes"]
        for file, entry in (package.files if package is not None else {}).items()
        if file.startswith("submodels/")
    )
    yield _memory_finding(name, report, weights / 2**20)
    if not report.has_rsync and not answer.talk.shell.is_here:
        yield Finding(name, "rsync", FAIL, "is not installed", "apt-get install rsync there")


def _memory_finding(name: str, report: BoardReport, weights_mb: float) -> Finding:
    """Return whether a job's weights fit into what memory is free; engines need more than them."""
    found = f"{report.available_mb} of {report.memory_mb} MB free"
    if not weights_mb:
        return Finding(name, "memory", OK, found)
    found += f"; its sub-models have {weights_mb:.0f} MB"
    if weights_mb > report.available_mb:
        return Finding(name, "memory", FAIL, found, "give it fewer layers, or end other programs")
    if 2 * weights_mb > report.available_mb:
        return Finding(name, "memory", WARN, found, "engines may need twice that: fewer layers?")
    return Finding(name, "memory", OK, found)


# What is installed


def _package_findings(answer: _Answer, package: Package, launcher: MpiRun) -> list[Finding]:
    """Return what `run` would say of a board and its package before the start."""
    name = answer.board.name
    told = answer.talk.shell.ask(
        BoardCheck,
        "look",
        run="",
        open_mpi=list(launcher.version[:2]),
        **package.needs(),
        **package.identity(),
    )
    if told.problems:
        return [_failed(name, "package", problem) for problem in told.problems]
    return [Finding(name, "package", OK, "is there, with all that it needs")]


def _installed_findings(answer: _Answer, launcher: MpiRun | None) -> Iterator[Finding]:
    """Yield whether a board has what any job needs."""
    board, environment = answer.board, answer.report.environment
    if launcher is not None:
        yield _open_mpi_finding(board.name, answer.report, launcher)
    if not environment.version:
        return
    for package in ("mpi4py", "numpy"):
        version = environment.version_of(package)
        if version is None:
            found = f"{environment.python} has none"
            yield Finding(board.name, package, FAIL, found, _VENV)
        elif package == "mpi4py" and environment.library.startswith("error"):
            found = f"finds no MPI: {environment.library.partition(': ')[2]}"
            yield Finding(board.name, package, FAIL, found, _VENV)
        else:
            yield Finding(board.name, package, OK, version or "there")
    yield from _engine_findings(board, environment)


def _open_mpi_finding(name: str, report: BoardReport, launcher: MpiRun) -> Finding:
    """Return whether a board has an Open MPI of the series of this machine's mpirun."""
    series = ".".join(map(str, launcher.version[:2]))
    fitting = [
        each
        for each in report.open_mpi
        if each.has_daemon and each.version.startswith(f"{series}.")
    ]
    if fitting:
        return Finding(name, "Open MPI", OK, f"{fitting[0].version}, {fitting[0].mpirun}")
    others = [f"{each.version} ({each.mpirun})" for each in report.open_mpi]
    has = f"it has {joined(others)}" if others else "it has none"
    found = f"mpirun here is of {series}, and {has}: all must be of one series"
    remedy = _VENV if launcher.version[0] >= 5 else "apt-get install openmpi-bin there"
    return Finding(name, "Open MPI", FAIL, found, f"{remedy}, or another --mpirun")


def _engine_findings(board: Board, environment: Environment) -> Iterator[Finding]:
    """Yield whether a board has the engines that the platform names, or any."""
    units = [*([board.cpu] if board.cpu else []), *board.gpus, *board.npus]
    named = dict.fromkeys([*([board.engine] if board.engine else []), *(u.engine for u in units)])
    for engine in named:
        there = _engine_packages(engine, environment)
        if there or not computes(engine):
            yield Finding(board.name, engine, OK, joined(there) or "needs nothing")
        else:
            yield Finding(board.name, engine, FAIL, f"{environment.python} has none", _VENV)
    if not named:
        there = [text for engine in ENGINES for text in _engine_packages(engine, environment)]
        remedy = "" if there else _VENV
        found = joined(there) or f"{environment.python} has none"
        yield Finding(board.name, "engine", OK if there else FAIL, found, remedy)


def _engine_packages(engine: str, environment: Environment) -> list[str]:
    """Return the installed packages of an engine, with their versions."""
    known = ENGINES[engine].packages if engine in ENGINES else (engine,)
    return [f"{name} {version}".strip() for name, version in environment.packages if name in known]


# GPUs and NPUs


def _accelerator_findings(answer: _Answer, job: _Job | None) -> list[Finding]:
    """Return whether the libraries and providers of accelerators are there.

    Raises:
        RankSliceError: the board does not answer any more.
    """
    units = [*_units(answer.board, job)]
    libraries = [(unit, spec, library) for unit, spec in units if (library := _library_of(spec))]
    findings = [
        finding
        for unit, spec in units
        if "provider" in dict(spec.options)
        if not is_library(dict(spec.options).get("plugin", ""))
        for finding in _provider_findings(answer, unit, dict(spec.options))
    ]
    if libraries:
        wanted = [(library, dict(spec.environment)) for _, spec, library in libraries]
        complaints = load_complaints(answer.talk, wanted)
        for (unit, _, library), complaint in zip(libraries, complaints, strict=True):
            findings.append(_library_finding(answer.board.name, unit, library, complaint))
    if any(unit[:3] in ("gpu", "npu") for unit, _ in units):
        findings += _rights_findings(answer.board.name, answer.report.devices)
    return findings


def _units(board: Board, job: _Job | None) -> Iterator[tuple[str, Accelerator]]:
    """Yield the accelerators of a board, or those that a job uses, with their names."""
    if job is not None:
        for rank in job.plan.ranks:
            if rank.board == board.name:
                yield rank.accelerator, Accelerator(rank.engine, rank.options, rank.environment)
        return
    if board.cpu is not None:
        yield "cpu", board.cpu
    for kind, specs in (("gpu", board.gpus), ("npu", board.npus)):
        yield from ((f"{kind}{number or ''}", spec) for number, spec in enumerate(specs))


def _library_of(spec: Accelerator) -> str:
    """Return the library that an accelerator names, a delegate or a plug-in; empty: none."""
    options = dict(spec.options)
    plugin = options.get("plugin", "")
    return options.get("delegate", plugin if is_library(plugin) else "")


def _library_finding(name: str, unit: str, library: str, complaint: str) -> Finding:
    if not complaint:
        return Finding(name, unit, OK, f"{library} can be loaded")
    remedy = "install the vendor's package, or give its path as `delegate` or `plugin`"
    return Finding(name, unit, FAIL, f"{library} cannot be loaded: {complaint}", remedy)


def _provider_findings(answer: _Answer, unit: str, options: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether a board's onnxruntime has an execution provider, or a plug-in has it."""
    environment = answer.report.environment
    provider, plugin = options["provider"], options.get("plugin", "")
    wanted = provider.lower().removesuffix("executionprovider")
    has = [name.removesuffix("ExecutionProvider") for name in environment.providers]
    if not plugin and wanted in map(str.lower, has):
        yield Finding(answer.board.name, unit, OK, f"onnxruntime has {provider}")
        return
    usual = {name.lower(): package for name, package in PLUGINS.items()}
    package = plugin or usual.get(wanted, "")
    version = environment.version_of(package)
    if version is not None:
        yield Finding(answer.board.name, unit, OK, f"{package} {version} has {provider}")
        return
    if plugin:
        found = f"whether {environment.python} has {plugin} is not told"
        yield Finding(answer.board.name, unit, WARN, found, f"{_VENV} installs it")
        return
    found = f"the onnxruntime of {environment.python} has {joined(has) or 'no provider'}"
    remedy = f"install an onnxruntime with {provider}: {_VENV}"
    yield Finding(answer.board.name, unit, FAIL, f"{found}, not {provider}", remedy)


def _rights_findings(name: str, devices: Sequence[Device]) -> Iterator[Finding]:
    """Yield the devices that the account may not open."""
    for device in devices:
        if not device.may_open:
            remedy = f"add the account to the group of {device.path}: sudo usermod -aG GROUP USER"
            found = f"the account may not open {device.path}"
            yield Finding(name, "device", WARN, found, remedy)


# All boards


def _clock_findings(answers: Sequence[_Answer]) -> Iterator[Finding]:
    """Yield boards whose clock differs from what most say, this machine among them."""
    readings = outcomes(clock_ahead_s, [answer.talk for answer in answers])
    known = [each for each in readings if not isinstance(each, RankSliceError)]
    middle = statistics.median([0.0, *known])
    for answer, ahead in zip(answers, readings, strict=True):
        name = answer.board.name
        if isinstance(ahead, RankSliceError):
            yield _failed(name, "clock", _message(ahead))
            continue
        side = "ahead of" if ahead > 0 else "behind"
        found = f"{abs(ahead):.1f} s {side} this machine"
        if abs(ahead - middle) > _MAX_CLOCK_S:
            remedy = "set it: sudo timedatectl set-ntp true"
            yield Finding(name, "clock", WARN, found, remedy)
        else:
            yield Finding(name, "clock", OK, found)


def _network_findings(
    answers: Sequence[_Answer], here: Conversation, platform: Platform
) -> Iterator[Finding]:
    """Yield whether boards reach each other and this machine, and how fast."""
    far = [answer for answer in answers if not is_this_machine(answer.board.host)]
    if not far:
        return
    own = address_towards(here, [answer.report for answer in far])
    addresses = {answer.board.name: answer.report.address or own for answer in answers}
    talks = {answer.board.name: answer.talk for answer in answers}
    network = BoardLinks({**talks, _HERE: here}, {**addresses, _HERE: own})
    yield from _launcher_findings([answer.board.name for answer in far], own, network)
    for pair in measured_pairs(measure_routes(network, list(addresses))):
        yield from _pair_findings(pair, addresses, _link(platform, pair.boards))


def _launcher_findings(names: Sequence[str], own: str, network: BoardLinks) -> Iterator[Finding]:
    """Yield whether boards reach this machine, as what mpirun starts there does."""
    for name, complaint in zip(names, network.complaints([(n, _HERE) for n in names]), strict=True):
        if complaint:
            found = f"cannot connect to this machine at {own}: {complaint}"
            remedy = "open this machine's TCP ports to it, or start jobs in the boards' network"
            yield Finding(name, "firewall", FAIL, found, remedy)
        else:
            yield Finding(name, "firewall", OK, f"connects to this machine at {own}")


def _link(platform: Platform, boards: tuple[str, str]) -> Link | None:
    """Return what the platform file says of two boards."""
    for first, second, link in platform.links:
        if {first, second} == set(boards):
            return link
    return platform.default_link


def _pair_findings(
    pair: Pair, addresses: Mapping[str, str], link: Link | None
) -> Iterator[Finding]:
    """Yield whether two boards reach each other, and whether the file's link is true."""
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
    said = f"{link.bandwidth_mbps:g} Mbit/s, {link.latency_ms:g} ms"
    is_slow = pair.bandwidth_mbps < _MIN_SHARE * link.bandwidth_mbps
    is_late = pair.latency_ms > _MAX_LATENCY * link.latency_ms + _LATENCY_SPARE_MS
    if is_slow or is_late:
        remedy = "look at cable and switch, or correct `links`: rankslice probe"
        return Finding(place, "link", WARN, f"{found}; the platform file says {said}", remedy)
    return Finding(place, "link", OK, f"{found}; the platform file says {said}")
