"""LiteRT's compiled models, for GPUs and NPUs that it drives without a delegate library.

They hold the GIL while they run, so ``own_process.py`` gives them a process of their own. There
the log of the library can be read, too: it tells what went wrong, and how much is accelerated.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..figures.acceleration import Acceleration, refuse_fallback
from ..job import Tensor
from . import Engine, EngineSettings, FileTensor, hint, match_tensors, truth, wrong_option
from .litert_package import find_package, first_line
from .own_process import read_log

_VENDORS = {"openvino": "intel_openvino", "qualcomm": "qualcomm"}
"""Option ``vendor`` -> LiteRT's name of it, of its folder and of its group of options."""

_FOLDERS = {"compiler_plugin_path": "compiler", "dispatch_library_path": "dispatch"}
"""Options for the folders with a vendor's libraries -> where LiteRT's own package has them."""

_MAP = "configs_map."
"""Prefix of options that a vendor's own library is handed by name."""

_NAMES = {"cpu": "XNNPACK", "gpu": "LiteRT's GPU accelerator", "npu": "LiteRT's NPU accelerator"}
"""Kind of accelerator -> what computes."""

_BY_PLUGIN = re.compile(r"selected (\d+) ops, from a total of (\d+) ops\. resulted in (\d+) part")
_BY_GPU = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+) operations")
_REPLACED = re.compile(r"Replacing (\d+) out of (\d+) node\(s\) with delegate \(([^)]*)\)")
_GPU_LEAVES = re.compile(r"not supported by GPU delegate:\n((?:.*\n)*?)\d+ operations will run")
_ENTRY = re.compile(r"^(?=(?:INFO|WARNING|ERROR|VERBOSE|DEBUG):|[IWE]\d{4} )", re.MULTILINE)
_SOURCE = re.compile(r"^(?:ERROR:|E\d{4} [^\]]*\])?\s*(?:\[[\w./]+:\d+\])?|^Exception from \S+$|└")
_MAX_LINES, _MAX_LETTERS = 12, 400
_NO_PLUGIN = "0 compiler plugins were applied successfully"


def open_engine(settings: EngineSettings) -> CompiledEngine:
    """Return the engine.

    Options: ``vendor`` of an NPU, ``openvino`` or ``qualcomm``; ``compiler_plugin_path`` and
    ``dispatch_library_path``, folders with the vendor's libraries; and the fields of LiteRT's
    ``CpuOptions``, ``GpuOptions``, ``IntelOpenVinoOptions`` or ``QualcommOptions``.
    """
    return CompiledEngine(settings)


class CompiledEngine(Engine):
    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._package = find_package()
        self._model: Any = None
        self._buffers: tuple[list[Any], list[Any]] = ([], [])
        self._order: tuple[list[FileTensor], list[FileTensor]] = ([], [])

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._compile(path, self._settings.facts.operators)
        key = next(iter(self._model.get_signature_list()))
        self._order = (
            self._match(path, "input", key, inputs),
            self._match(path, "output", key, outputs),
        )
        try:
            self._buffers = (
                self._model.create_input_buffers(0),
                self._model.create_output_buffers(0),
            )
        except (RuntimeError, ValueError) as error:
            raise JobError(f"{path.name}: {self._package.name}: {first_line(error)}") from None

    def _compile(self, path: Path, operators: int) -> None:
        """Compile for the accelerator alone; if it refuses and may, for it and the CPU."""
        kind, may_leave = self._settings.accelerator, self._settings.allow_fallback
        begin, problem = len(read_log_of_this_process()), None
        try:
            self._model = self._compiled(path)
        except (RuntimeError, ValueError) as error:
            problem = error
        log = read_log_of_this_process()[begin:]
        counted = _from_log(kind, operators, log)
        if problem is not None and (counted is None or not (counted.operators or may_leave)):
            raise JobError(f"{path.name}: {self._explain(problem, log)}")
        # A model that compiles without the CPU runs on the accelerator; unless there was no
        # compiler, which LiteRT does not take for a failure.
        self._acceleration = counted or Acceleration(_NAMES[kind], operators, operators)
        if not may_leave and (problem is not None or kind != "cpu"):
            refuse_fallback(path.name, self._acceleration)
        if problem is not None:
            self._model = self._compiled(path, fallback=True)

    def _compiled(self, path: Path, *, fallback: bool = False) -> Any:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.environment import Environment, EnvironmentOptions
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import Options

        wanted = dict(self._settings.options)
        folders = self._folders(wanted)
        options = Options()
        options.hardware_accelerators = HardwareAccelerator[self._settings.accelerator.upper()]
        if fallback:
            options.hardware_accelerators |= HardwareAccelerator.CPU
        if fallback or self._settings.accelerator == "cpu":
            options.cpu_options.num_threads = self._settings.threads
        self._set_options(options, wanted)
        environment = None
        if folders:
            environment = Environment.create(options=EnvironmentOptions(**folders))
        return CompiledModel.from_file(str(path), options=options, environment=environment)

    def _folders(self, options: dict[str, str]) -> dict[str, str]:
        """Take the folders of the vendor's libraries out of the options, or from the package."""
        vendor = _VENDORS.get(options.get("vendor", ""))
        if self._settings.accelerator != "npu" or vendor is None:
            return {}
        import ai_edge_litert

        folders = {}
        for option, name in _FOLDERS.items():
            own = Path(ai_edge_litert.__path__[0]) / "vendors" / vendor / name
            folder = options.pop(option, "") or (str(own) if own.is_dir() else "")
            if not folder:
                raise JobError(
                    f"litert: {self._package.name} has no {name} library of {options['vendor']};"
                    f" name the folder of the vendor's with the option {option}"
                )
            folders[option] = folder
        return folders

    def _set_options(self, options: Any, wanted: dict[str, str]) -> None:
        kind = self._settings.accelerator
        if kind == "npu":
            vendor = wanted.pop("vendor", "")
            if vendor not in _VENDORS:
                raise wrong_option("litert", "vendor", vendor, " or ".join(_VENDORS))
            group = getattr(options, f"{_VENDORS[vendor]}_options")
        else:
            group = getattr(options, f"{kind}_options")
        fields = {field.name: field for field in dataclasses.fields(group)}
        for name, text in wanted.items():
            if name.startswith(_MAP) and "configs_map" in fields:
                group.configs_map[name.removeprefix(_MAP)] = text
                continue
            if name not in fields or name == "configs_map":
                known = hint(name, fields) or f"; known are {', '.join(fields)}"
                raise JobError(f"litert: the {kind} has no option {name!r}{known}")
            setattr(group, name, _value(group, fields[name], text))

    def _explain(self, error: Exception, log: str) -> str:
        """Return why compiling failed: what the library has printed says more than the error."""
        texts = [_reason(entry) for entry in _ENTRY.split(log) if entry.startswith("E")]
        reasons = list(dict.fromkeys(filter(None, texts)))[:2] or [first_line(error)]
        return (
            f"{self._package.name} cannot compile it for the {self._settings.accelerator}:"
            f" {'; '.join(reasons)}"
        )

    def _match(
        self, path: Path, side: str, key: str, planned: Sequence[Tensor]
    ) -> list[FileTensor]:
        from ai_edge_litert.tensor_buffer import TensorBuffer

        details = getattr(self._model, f"get_{side}_tensor_details")(key)
        names = self._model.get_signature_list()[key][f"{side}s"]
        tensors = [
            FileTensor(
                name=details[alias]["name"],
                dtype=str(details[alias]["dtype"]),
                shape=tuple(details[alias]["shape"]),
                number=number,
                alias=alias,
            )
            for number, alias in enumerate(names)
        ]
        matched = match_tensors(path.name, side, planned, tensors)
        for tensor in matched:
            try:
                TensorBuffer._normalize_dtype(np.dtype(tensor.dtype))
            except (ValueError, TypeError):
                raise JobError(
                    f"{path.name}: {tensor.name!r} is {tensor.dtype}, which compiled models of"
                    f" {self._package.name} cannot exchange; cut the model elsewhere"
                ) from None
        return matched

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        inputs_of_model, outputs_of_model = self._buffers
        for tensor, values in zip(self._order[0], inputs, strict=True):
            inputs_of_model[tensor.number].write(values)
        try:
            self._model.run_by_index(0, inputs_of_model, outputs_of_model)
        except (RuntimeError, ValueError) as error:
            raise JobError(f"{self._package.name}: {first_line(error)}") from None
        for tensor, target in zip(self._order[1], outputs, strict=True):
            # A GPU may still be at work: it is read that waits for it.
            values = outputs_of_model[tensor.number].read(target.size, target.dtype)
            np.copyto(target, values.reshape(target.shape), casting="no")

    def close(self) -> None:
        self._buffers = ([], [])
        self._model = None


def read_log_of_this_process() -> str:
    """Return the text on stderr so far, if that is a file that can be read."""
    sys.stderr.flush()
    try:
        return read_log(2)
    except OSError:
        return ""


def _reason(entry: str) -> str:
    """Return the text of an entry of the log, on one line, without source positions."""
    lines = [_SOURCE.sub("", line).strip() for line in entry.splitlines()[:_MAX_LINES]]
    return " ".join(line for line in lines if line)[:_MAX_LETTERS]


def _from_log(kind: str, operators: int, log: str) -> Acceleration | None:
    """Return the operators of the accelerator according to the log; ``None``: it says nothing."""
    by = _NAMES[kind]
    if kind == "npu":
        if match := _BY_PLUGIN.search(log):
            taken, total, pieces = map(int, match.groups())
            if _NO_PLUGIN not in log:
                return Acceleration(by, taken, total, pieces)
        if _NO_PLUGIN in log:
            return Acceleration(by, 0, operators, 0)
    if kind == "gpu" and (match := _BY_GPU.search(log)):
        taken, left = map(int, match.groups())
        left_out = _GPU_LEAVES.search(log)
        lines = left_out[1].splitlines() if left_out else []
        others = tuple(dict.fromkeys(line.partition(":")[0] for line in lines))
        return Acceleration(by, taken, taken + left, None, others)
    for match in _REPLACED.finditer(log):
        if kind == "cpu" or "XNNPack" not in match[3]:
            return Acceleration(by, int(match[1]), int(match[2]))
    return None


def _value(group: Any, field: Any, text: str) -> Any:
    kind, known = str(field.type), getattr(group, field.name.upper(), None)
    if known is not None:
        values = {member.name: member for member in known}
        if text.upper() not in values:
            raise wrong_option("litert", field.name, text, f"one of {', '.join(values)}")
        return values[text.upper()]
    if "bool" in kind:
        return truth("litert", field.name, text)
    if "int" in kind:
        try:
            return int(text)
        except ValueError:
            raise wrong_option("litert", field.name, text, "a whole number") from None
    return text
