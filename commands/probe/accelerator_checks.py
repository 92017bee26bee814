"""Whether the GPUs and NPUs of a board can be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankslice.backend.boards.probe import load_complaints
from rankslice.backend.boards.probed import Device
from rankslice.backend.runtime.engines.onnxruntime_plugins import PLUGINS, is_library
from rankslice.commands.probe.findings import DEPLOY_VENV, FAIL, OK, WARN, Answer, Finding, Job
from rankslice.framework.platform import Accelerator, Board
from rankslice.framework.wording import joined


def accelerator_findings(answer: Answer, job: Job | None) -> list[Finding]:
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


def _library_finding(name: str, unit: str, library: str, complaint: str) -> Finding:
    if not complaint:
        return Finding(name, unit, OK, f"{library} can be loaded")
    remedy = "install the vendor's package, or give its path as `delegate` or `plugin`"
    return Finding(name, unit, FAIL, f"{library} cannot be loaded: {complaint}", remedy)


def _provider_findings(answer: Answer, unit: str, options: Mapping[str, str]) -> Iterator[Finding]:
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
        found = f"it is not known whether {environment.python} has {plugin}"
        yield Finding(answer.board.name, unit, WARN, found, f"{DEPLOY_VENV} installs it")
        return
    found = f"the onnxruntime of {environment.python} has {joined(has) or 'no provider'}"
    remedy = f"install an onnxruntime with {provider}: {DEPLOY_VENV}"
    yield Finding(answer.board.name, unit, FAIL, f"{found}, not {provider}", remedy)


def _rights_findings(name: str, devices: Sequence[Device]) -> Iterator[Finding]:
    for device in devices:
        if not device.may_open:
            remedy = f"add the account to the group of {device.path}: sudo usermod -aG GROUP USER"
            found = f"the account may not open {device.path}"
            yield Finding(name, "device", WARN, found, remedy)
