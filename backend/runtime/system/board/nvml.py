"""A board's NVIDIA GPUs, as reported by NVML, the management library of their driver."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_OK = 0
_MAX_PROCESSES = 1024
_OF_THE_GPU = ctypes.c_uint(0)
_UNKNOWN = 2**64 - 1


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    """As version 3 of the function has it, and version 2 of older drivers."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_uint64),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _SilentError(Exception):
    """The library does not report a value."""


def find_nvml(library: str = LIBRARY) -> Nvml | None:
    """Return the board's NVML; ``None`` if it has none, or no GPU that may be read."""
    try:
        nvml = Nvml(library)
    except (OSError, _SilentError):
        return None
    return nvml if nvml.names else None


class Nvml:
    """All GPUs of a board together, as a rule summed; ``None`` if one of them reports no value."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._gpus = [self._gpu(number) for number in range(count.value)]
        self.names = tuple(self._name(gpu) for gpu in self._gpus)
        """Of the GPUs: ``NVIDIA H100 80GB HBM3``."""

    def energy_uj(self) -> int | None:
        """Return the energy since the driver was loaded, in microjoules."""
        values = self._numbers("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_uint64())
        return 1000 * sum(values) if values else None

    def power_mw(self) -> int | None:
        values = self._numbers("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return sum(values) if values else None

    def utilisation_percent(self) -> float | None:
        """Return the share of the last moments in which a GPU computed, as their mean."""
        values = self._numbers("nvmlDeviceGetUtilizationRates", _Utilisation(), "gpu")
        return sum(values) / len(values) if values else None

    def temperature_c(self) -> float | None:
        """Return the temperature of the hottest GPU, in degrees Celsius."""
        values = self._numbers("nvmlDeviceGetTemperature", ctypes.c_uint(), "value", _OF_THE_GPU)
        return float(max(values)) if values else None

    def used_bytes(self) -> int | None:
        values = self._numbers("nvmlDeviceGetMemoryInfo", _Memory(), "used")
        return sum(values) if values else None

    def used_bytes_of(self, processes: Collection[int]) -> int | None:
        """Return the memory that processes use; ``None`` if the library lists none of them.

        It uses the host's process numbers, which may differ in a container.
        """
        with suppress(_SilentError):
            running = (process for gpu in self._gpus for process in self._processes(gpu))
            used = [process.used for process in running if process.pid in processes]
            return sum(used) if used and _UNKNOWN not in used else None
        return None

    def _gpu(self, number: int) -> ctypes.c_void_p:
        gpu = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(gpu))
        return gpu

    def _name(self, gpu: ctypes.c_void_p) -> str:
        name = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", gpu, name, ctypes.c_uint(len(name)))
        return name.value.decode("ascii", "replace")

    def _numbers(
        self, function: str, result: Any, field: str = "value", *arguments: object
    ) -> list[int]:
        """Return a number of each GPU; none at all if the library does not report that of one."""
        numbers = []
        with suppress(_SilentError):
            for gpu in self._gpus:
                self._call(function, gpu, *arguments, ctypes.byref(result))
                numbers.append(int(getattr(result, field)))
            return numbers
        return []

    def _processes(self, gpu: ctypes.c_void_p) -> Iterator[_Process]:
        running = (_Process * _MAX_PROCESSES)()
        count = ctypes.c_uint(_MAX_PROCESSES)
        name = "nvmlDeviceGetComputeRunningProcesses_v"
        newest = hasattr(self._library, f"{name}3")
        self._call(f"{name}{3 if newest else 2}", gpu, ctypes.byref(count), running)
        yield from running[: count.value]

    def _call(self, function: str, *arguments: object) -> None:
        called = getattr(self._library, function, None)
        if called is None or called(*arguments) != _OK:
            raise _SilentError(function)
