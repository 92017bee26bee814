"""Energy sensors of a board, as Linux shows them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

__all__ = ["Sensor", "find_sensor"]

_SYSTEM = Path("/sys")
_PERIOD_S = 0.005
_WHOLE_BOARD = ("vdd_in", "pom_5v_in", "psys", "total")
"""What channels are called that have all others behind them."""


class Sensor(Protocol):
    """Counts energy from :meth:`start` on; a context manager, for some need a thread."""

    name: str
    """The sensor, by the system's own names."""

    def __enter__(self) -> Sensor:
        """Begin to count."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""

    def joules(self) -> float:
        """Return the energy since the beginning."""


def find_sensor(system: Path = _SYSTEM) -> Sensor | None:
    """Return the board's energy sensor; ``None`` if it has none that may be read.

    Counters of energy go before sensors of power, which have to be read again and again. Of several
    channels the one of the whole board is taken; else that of a processor's packages, summed.
    """
    return _processor(system) or _counter(system) or _power(system)


def _processor(system: Path) -> Sensor | None:
    """Return Linux' powercap zones, such as Intel's RAPL: the whole system, or all packages."""
    zones = {
        zone: _text(zone / "name")
        for zone in sorted((system / "class" / "powercap").glob("*:*"))
        if zone.name.count(":") == 1 and _number(zone / "energy_uj") is not None
    }
    whole = [zone for zone, name in zones.items() if name.lower() in _WHOLE_BOARD]
    chosen = whole[:1] or [zone for zone, name in zones.items() if name.startswith("package")]
    if not chosen:
        return None
    limits = [_number(zone / "max_energy_range_uj") or 0 for zone in chosen]
    name = "powercap " + ", ".join(zones[zone] for zone in chosen)
    return _Counters(name, [zone / "energy_uj" for zone in chosen], limits)


def _counter(system: Path) -> Sensor | None:
    found = _channels(system, "energy*_input")
    return _Counters(found[0], [found[1]], [0]) if found else None


def _power(system: Path) -> Sensor | None:
    found = _channels(system, "power*_input")
    return _Integrated(*found) if found else None


def _channels(system: Path, pattern: str) -> tuple[str, Path] | None:
    """Return name and file of a hardware monitor's channel: the whole board's, or the first."""
    found = []
    for path in sorted((system / "class" / "hwmon").glob(f"hwmon*/{pattern}")):
        label = _text(path.with_name(path.name.replace("_input", "_label"))) or path.name
        if _number(path) is not None:
            found.append((f"hwmon {_text(path.with_name('name'))} {label}", path, label.lower()))
    whole = [each for each in found if each[2] in _WHOLE_BOARD]
    return next((each[:2] for each in (*whole, *found)), None)


class _Counters:
    """Counters in microjoules, which may begin again at zero."""

    def __init__(self, name: str, paths: Sequence[Path], limits: Sequence[int]) -> None:
        self.name = name
        self._paths, self._limits = paths, limits
        self._begin: list[int] = []

    def __enter__(self) -> Sensor:
        self._begin = self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing runs."""

    def joules(self) -> float:
        pairs = zip(self._begin, self._read(), self._limits, strict=True)
        return sum(now - then + (limit if now < then else 0) for then, now, limit in pairs) / 1e6

    def _read(self) -> list[int]:
        return [_number(path) or 0 for path in self._paths]


class _Integrated:
    """Power in microwatts, read by a thread and summed up over time."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._joules = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sensor:
        self._joules = 0.0
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def joules(self) -> float:
        return self._joules

    def _watch(self) -> None:
        then = time.perf_counter()
        while not self._stop.wait(_PERIOD_S):
            now = time.perf_counter()
            self._joules += (_number(self._path) or 0) / 1e6 * (now - then)
            then = now


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _number(path: Path) -> int | None:
    """Return what a file of the system says; ``None`` if it may not be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None
