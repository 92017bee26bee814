"""Clock frequencies of this board's cores, set for the launcher; afterwards as they were."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from pathlib import Path

from ...runtime.system.cores import CORES
from ...runtime.system.files import ROOT, number_in, paths_below, text_of
from ..protocol import Request, send
from .co_run import lines_of_launcher
from .folders import RefusedError

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Policy:
    """Cores that share a clock, and its limits as they are now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        cores = text_of(path / "related_cpus") or text_of(path / "affected_cpus")
        self.cores = {int(core) for core in cores.split()}
        self.before = self.limits()

    def limits(self) -> tuple[int, int]:
        """Return the lowest and the highest frequency, in kHz."""
        low, high = (self.number(f"scaling_{end}_freq") for end in ("min", "max"))
        return low, high

    def number(self, name: str) -> int:
        value = number_in(self.path / name)
        if value is None:
            raise RefusedError(f"{self.path / name} cannot be read")
        return value

    def offered(self) -> str:
        """Return what it offers: frequencies, or the limits of a range; in MHz."""
        steps = text_of(self.path / "scaling_available_frequencies").split()
        if steps:
            return ", ".join(f"{khz / 1e3:g}" for khz in sorted(map(int, steps)))
        low, high = (self.number(f"cpuinfo_{end}_freq") for end in ("min", "max"))
        return f"{low / 1e3:g} to {high / 1e3:g}"

    def offers(self, khz: int) -> bool:
        steps = text_of(self.path / "scaling_available_frequencies").split()
        low, high = (self.number(f"cpuinfo_{end}_freq") for end in ("min", "max"))
        return str(khz) in steps if steps else low <= khz <= high

    def limit(self, low: int, high: int) -> None:
        """Set the limits, of which the lower one is never above the other one."""
        names = ["scaling_min_freq", "scaling_max_freq"]
        for name in reversed(names) if low > self.limits()[1] else names:
            (self.path / name).write_text(f"{high if 'max' in name else low}\n")


def hold_frequencies(request: Request, root: Path = ROOT) -> None:
    """Set frequencies as the launcher asks; restore the limits at its end, or when it is lost.

    The clock of the ranks' ``cores`` must offer each of ``khz``, which is all that will be asked
    for. Other clocks follow if they offer it; otherwise they stay as they are. A process of its own
    does that, so what ends this one does not keep the other one from restoring; and the other way
    round.
    """
    paths = paths_below(root, f"{CORES}/cpufreq/policy*")
    # Those of cores that are off tell no limits.
    paths = [path for path in paths if number_in(path / "scaling_max_freq")]
    if not paths:
        raise RefusedError(
            f"{root / CORES}/cpufreq has no clocks, as in virtual machines, so no frequency can be"
            " set there; leave --frequency out"
        )
    lock = os.open(paths[0].parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RefusedError("another benchmark sets its frequencies; wait for its end") from None
    policies = [Policy(path) for path in paths]
    used = [policy for policy in policies if policy.cores & set(request["cores"])]
    refuse_what_cannot_be(used or policies, policies, request["khz"], root)
    process = os.fork()
    if process:
        if os.waitpid(process, 0)[1]:
            failed = restore(policies)
            send({"error": f"what sets its frequencies was ended; {failed or 'they are restored'}"})
            send({"khz": 0})
        return
    status = 1
    try:
        os.setsid()
        for number in ENDING:
            signal.signal(number, end)
        set_as_asked(used or policies, policies)
        status = 0
    finally:
        os._exit(status)


def end(number: int, frame: object) -> None:
    raise SystemExit(number)


def set_as_asked(used: list[Policy], policies: list[Policy]) -> None:
    """Set what the launcher writes, a number of kHz a line; answer what the kernel made of it."""
    try:
        send({"khz": 0})
        for line in lines_of_launcher():
            if line:
                for policy in policies:
                    if policy.offers(int(line)):
                        policy.limit(int(line), int(line))
                send({"khz": min(policy.limits()[1] for policy in used)})
    except (OSError, RefusedError) as error:
        send({"error": str(error)})
    finally:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        failed = restore(policies)
        send({"error": f"its frequencies cannot be restored: {failed}"} if failed else {"khz": 0})


def restore(policies: list[Policy]) -> str:
    """Give all policies their former limits; return why that fails, if it does."""
    failed = []
    for policy in policies:
        try:
            policy.limit(*policy.before)
        except (OSError, RefusedError) as error:
            failed.append(str(error))
    return "; ".join(failed)


def refuse_what_cannot_be(
    used: list[Policy], policies: list[Policy], wanted: list[int], root: Path
) -> None:
    """Refuse what cannot be done on this board, before anything is changed.

    Raises:
        RefusedError: with the reason.
    """
    for policy in policies:
        for end in ("min", "max"):
            path = policy.path / f"scaling_{end}_freq"
            if not os.access(path, os.W_OK):
                raise RefusedError(f"{path} cannot be written; --frequency needs root there")
    for policy in used:
        others = [f"{khz / 1e3:g}" for khz in wanted if not policy.offers(khz)]
        if others:
            cores = " ".join(map(str, sorted(policy.cores)))
            raise RefusedError(
                f"cores {cores} ({policy.path.name}) have no frequency of {', '.join(others)} MHz;"
                f" they have {policy.offered()} MHz"
            )
    for device in paths_below(root, "sys/class/thermal/cooling_device*"):
        kind = text_of(device / "type")
        if re.search("cpufreq|processor", kind.lower()) and number_in(device / "cur_state"):
            raise RefusedError(
                f"it is too hot ({kind}), so its usual limits are not known; let it cool down"
            )
