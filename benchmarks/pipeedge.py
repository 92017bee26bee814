"""PipeEdge's scheduler inputs: three YAML files to the planner's arguments.

The files, and the rule by which a schedule is judged, are those of its ``sched-pipeline``: Hu et
al., "PipeEdge: Pipeline Parallelism for Large-Scale Model Inference on Heterogeneous Edge
Devices", DSD 2022. A slice costs the longer one of computing and sending. A message takes the
smaller bandwidth of its two devices, and 1 Mbps is 1024 * 1024 bits per second. A slice needs less
than the memory there is: its weights, two buffers for what it receives (but the first slice), two
for what it sends, its input and its output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.exploration.planner.arguments import Device, Floats, LayerChain
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.reading.read_text import read_text
from rankslice.framework.reading.read_yaml import read_yaml
from rankslice.framework.wording import bare, described, quoted

_MEGA = 1024 * 1024
_BUFFERS = 2
"""For messages on their way, and for those that wait, at either end."""

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


def read_pipeedge(
    models: str | Path,
    device_types: str | Path,
    devices: str | Path,
    *,
    model: str,
    dtype: str = "torch.float32",
    batch_size: int = 8,
) -> LayerChain:
    """Return what PipeEdge's files say of one model, for ``optimal_pipeline``.

    Args:
        models: ``models.yml``: layers, memory and outputs of each model.
        device_types: ``device_types.yml``: memory, bandwidth and profiles of each type.
        devices: ``devices.yml``: hosts by type.
        model: name of a model in these files.
        dtype: of the profile, as it stands there.
        batch_size: of the profile: frames of a micro-batch, which times and bytes are of.

    Raises:
        RankSliceError: a file cannot be read, or something in it is wrong or missing. Types without
            such a profile are left out, unless no host is left.
    """
    size = _BYTES.get(dtype.removeprefix("torch."))
    if size is None:
        known = ", ".join(_BYTES)
        raise RankSliceError(Mistake("dtype", f"is {quoted(dtype)}", f"expected one of {known}"))
    network = _entry(_read(models, "models"), Path(models), model)
    layers = _Fields(network, f"{Path(models).name}: {bare(model)}")
    memory = layers.numbers("mem_MB") * _MEGA
    outputs = np.resize(layers.numbers("parameters_out"), memory.size) * (size * batch_size)
    inputs = np.append(layers.number("parameters_in") * size * batch_size, outputs[:-1])
    layers.check_count("layers", memory.size)
    receive = inputs * (1 + _BUFFERS)
    receive[:1] = inputs[:1]
    hosts = _Hosts(Path(device_types), model, dtype, batch_size, memory.size)
    hosts.add_all(_read(devices, "devices"), _read(device_types, "device types"), Path(devices))
    raise_mistakes([*layers.mistakes, *hosts.mistakes])
    return LayerChain(
        times_s=np.array(hosts.times_s),
        output_bytes=outputs,
        memory_bytes=memory,
        receive_memory_bytes=receive,
        send_memory_bytes=outputs * (1 + _BUFFERS),
        devices=hosts.devices,
    )


def _read(path: str | Path, what: str) -> dict[str, object]:
    file = Path(path)
    data = read_yaml(read_text(file, f"PipeEdge {what}"), file.name)
    if not isinstance(data, dict):
        found = f"is {described(data)}"
        raise RankSliceError(Mistake(bare(file.name), found, f"expected {what} by name"))
    return data


def _entry(data: Mapping[str, object], file: Path, name: str) -> object:
    if name not in data:
        found = f"has no {quoted(name)}"
        raise RankSliceError(Mistake(bare(file.name), found, nearest(name, data)))
    return data[name]


class _Fields:
    """Reads numbers of one entry; what is wrong with them is kept in ``mistakes``."""

    def __init__(self, entry: object, place: str) -> None:
        self.place = place
        self.mistakes: list[Mistake] = []
        self.entry: Mapping[str, object] = entry if isinstance(entry, dict) else {}
        if not isinstance(entry, dict):
            self.mistakes.append(Mistake(place, f"is {described(entry)}", "expected its fields"))

    def number(self, name: str) -> float:
        """Return one number that is not negative; 0 if it is wrong."""
        return self._number(self._value(name), f"{self.place}.{name}")

    def numbers(self, name: str) -> Floats:
        """Return a list of numbers that are not negative, one at least."""
        value = self._value(name)
        if not isinstance(value, list) or not value:
            self._complain(f"{self.place}.{name}", value, "a list of numbers")
            return np.zeros(1)
        places = (f"{self.place}.{name}[{index}]" for index in range(len(value)))
        return np.array([self._number(item, at) for item, at in zip(value, places, strict=True)])

    def check_count(self, name: str, count: int) -> None:
        """Note it if the field, which tells how many layers there are, tells something else."""
        told = self.number(name)
        if told != count and not self.mistakes:
            found = f"is {told:g}, but mem_MB has {count} numbers"
            self.mistakes.append(Mistake(f"{self.place}.{name}", found))

    def _value(self, name: str) -> object:
        return self.entry.get(name)

    def _number(self, value: object, place: str) -> float:
        try:
            number = float(value) if isinstance(value, str) else math.nan
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            self._complain(place, value, "a number that is not negative")
            return 0.0
        return number

    def _complain(self, place: str, value: object, expected: str) -> None:
        if self.entry:
            self.mistakes.append(Mistake(place, f"is {described(value)}", f"expected {expected}"))


class _Hosts:
    """Gathers the hosts whose types have a profile of the model."""

    def __init__(self, file: Path, model: str, dtype: str, batch_size: int, layers: int) -> None:
        self.file = file
        self.model = model
        self.dtype = dtype
        self.batch_size = batch_size
        self.layers = layers
        self.mistakes: list[Mistake] = []
        self.times_s: list[Floats] = []
        self.devices: list[Device] = []

    def add_all(self, hosts: Mapping[str, object], types: Mapping[str, object], file: Path) -> None:
        """Add the hosts of all types that are known and profiled."""
        for name, names in hosts.items():
            if not names:
                continue
            if not isinstance(names, list) or not all(isinstance(host, str) for host in names):
                found = f"is {described(names)}"
                self.mistakes.append(
                    Mistake(f"{file.name}: {bare(name)}", found, "expected a list of hosts")
                )
            elif name in types:
                self._add(name, types[name], names)
            else:
                found = f"no type {quoted(name)} in {bare(self.file.name)}"
                self.mistakes.append(
                    Mistake(f"{file.name}: {bare(name)}", found, nearest(name, types))
                )
        if not self.devices and not self.mistakes:
            profile = f"{self.dtype}, batch size {self.batch_size}"
            found = f"no host has a profile of {quoted(self.model)} ({profile})"
            self.mistakes.append(Mistake(bare(file.name), found, "expected one at least"))

    def _add(self, name: str, entry: object, hosts: list[str]) -> None:
        """Add the hosts of one type, if it has a profile."""
        fields = _Fields(entry, f"{self.file.name}: {bare(name)}")
        memory, bandwidth = fields.number("mem_MB"), fields.number("bw_Mbps")
        profile = next(self._profiles(fields), None)
        self.mistakes += fields.mistakes
        if profile is None:
            return
        times = profile.numbers("time_s")
        if times.size != self.layers and not profile.mistakes:
            found = f"has {times.size} times, and the model {self.layers} layers"
            self.mistakes.append(Mistake(f"{profile.place}.time_s", found))
        self.mistakes += profile.mistakes
        below = math.nextafter(memory * _MEGA, 0.0)  # a slice has to need less than all of it
        self.devices += [
            Device(host, len(self.times_s), host, below, bandwidth * _MEGA / 8) for host in hosts
        ]
        self.times_s.append(times)

    def _profiles(self, fields: _Fields) -> Iterator[_Fields]:
        """Yield the profiles of the model with this type and batch size, the last one first."""
        profiles: Any = fields.entry.get("model_profiles") or {}
        found: Any = profiles.get(self.model) if isinstance(profiles, dict) else None
        place = f"{fields.place}.model_profiles.{bare(self.model)}"
        for index, entry in reversed(list(enumerate(found if isinstance(found, list) else []))):
            wanted = {"dtype": self.dtype, "batch_size": str(self.batch_size)}
            if isinstance(entry, dict) and wanted.items() <= entry.items():
                yield _Fields(entry, f"{place}[{index}]")
