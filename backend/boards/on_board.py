"""What is done on a board: this program is sent there over ssh, and needs nothing but Python.

It is not imported by what runs elsewhere. A request is one JSON object whose ``action`` names a
function below; the answer is one line on stdout, behind a mark, since a shell may print, too.

On the board, in ``~/.rankslice``:

``packages/<manifest>/``  packages that were checked, by the hash of their manifest
``runs/<job>-<number>/``  where a run of a job is: its inputs and results, and what starts it
``checked/<manifest>``    sizes and times of a package's files when they were checked
``staging/``              packages that are being copied
``venv/``                 the environment that ``deploy --venv`` makes
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Request = dict[str, Any]
    Answer = dict[str, Any]

MARK = "rankslice-answer "
try:
    HOME = Path.home() / ".rankslice"
except RuntimeError:  # an account without a name, and no HOME: it is refused once it is asked
    HOME = Path()
SHORT = 12
KEPT_PACKAGES = 7
KEPT_RUNS = 3
MAX_BASES = 15
OLD_STAGING_S = 3600
OLD_RUN_S = 600
"""After its end; what a run leaves is fetched within this time."""
UNUSED_RUN_S = 86400
MIN_PYTHON = (3, 10)
JOB_VARIABLE = "RANKSLICE_JOB"
SESSION_VARIABLE = "RANKSLICE_SESSION"
FOLDERS = "folders"
"""What a run's watch writes; without one, ranks find a place by themselves."""
MESSAGES = "messages"
MAX_MESSAGES = 100
MAX_MESSAGE_BYTES = 2000
SILENCE_S = 10
LOOK_S = 0.1
LOSS_S = 0.2
GUARD_S = 2.0
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
RUN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}")
DAEMON = re.compile(rb"^[^\0]*/(prted|orted)\0")
PACKAGE = re.compile(r"[0-9a-f]{12}(\.[0-9a-f]+)?")
DISK_FULL = "its disk is full; make room there, ~/.rankslice/packages has older packages"


class RefusedError(Exception):
    """Something keeps the board from doing what was asked; the text says what to do."""


def main(request: Request) -> None:
    """Do what is asked and print the answer."""
    answer: Answer | None
    try:
        if Path() == HOME:
            raise RefusedError("this account has no home folder there; set HOME")
        answer = ACTIONS[request["action"]](request)
    except RefusedError as error:
        answer = {"error": str(error)}
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        told = DISK_FULL if is_full else f"{error.filename or 'the disk'}: {error.strerror}"
        answer = {"error": told}
    if answer is not None:
        _say(answer)


def _say(answer: Answer) -> None:
    print(MARK + json.dumps(answer), flush=True)


# Packages


def _receive(request: Request) -> Answer:
    """Say that the package is there and whole, or where to copy it and what it may be like."""
    _make_folders()
    if request["over_ssh"] and not shutil.which("rsync"):
        raise RefusedError(
            "there is no rsync on the board; install it there: apt-get install rsync"
        )
    package = _package_of(request)
    if not _damage(package, request):
        _publish(package, request)
        return {"state": "there", "bases": []}
    _remove_old_staging()
    bases = [*_newest(HOME / "packages"), *_newest(HOME / "staging")]
    names = [str(base.relative_to(HOME)) for base in bases if PACKAGE.fullmatch(base.name)]
    (HOME / "staging" / request["staging"]).mkdir()
    return {"state": "wanted", "bases": names[:MAX_BASES]}


def _commit(request: Request) -> Answer:
    """Check what was copied, and give it its name."""
    staging, package = HOME / "staging" / request["staging"], _package_of(request)
    wrong = _damage(staging, request)
    if wrong:
        shutil.rmtree(staging, ignore_errors=True)
        raise RefusedError(f"the copy is damaged: {wrong}; deploy again")
    _settle(staging)  # a package that has its name survives a power cut whole
    if package.exists():
        package.rename(HOME / "staging" / f"damaged.{os.getpid()}")
    staging.rename(package)
    _publish(package, request)
    for left in (HOME / "staging").iterdir():
        if left.name.startswith((f"{package.name}.", "damaged.")):
            shutil.rmtree(left, ignore_errors=True)
    return {"state": "copied"}


def _room(request: Request) -> Answer:
    """Tell how much more the disk of a folder holds."""
    return {"free_bytes": shutil.disk_usage(HOME / request["folder"]).free}


def _settle(folder: Path) -> None:
    """Wait until files and folders are on the disk."""
    for path in [*folder.rglob("*"), folder]:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _publish(package: Path, request: Request) -> None:
    """Note how the files of a package look, and remove what is old."""
    _note(package, _looks(package, request["files"]))
    os.utime(package)
    old = _newest(HOME / "packages")[KEPT_PACKAGES:]
    living = {job for job, _ in _processes().values()} if old else set()
    runs = [run for run in _newest(HOME / "runs") if run.name in living or _is_watched(run)]
    used = {os.path.realpath(run / "package") for run in runs}
    for each in old:
        if os.path.realpath(each) not in used:
            shutil.rmtree(each, ignore_errors=True)
            (HOME / "checked" / each.name).unlink(missing_ok=True)


def _damage(folder: Path, request: Request) -> str:
    """Return what is wrong with a package's files, reading all of them; empty: nothing."""
    manifest = folder / "manifest.json"
    if not manifest.is_file() or _sha256_of(manifest) != request["manifest_sha256"]:
        return "manifest.json is not that of the package"
    for name, entry in request["files"].items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != entry["bytes"] or _sha256_of(path) != entry["sha256"]:
            return f"{name} is not what the manifest says"
    return ""


def _changes(package: Path, request: Request) -> str:
    """Return what is wrong with a package that was checked once, reading only what has changed."""
    try:
        checked = json.loads((HOME / "checked" / package.name).read_text())
    except (OSError, ValueError):
        checked = {}
    try:
        now = _looks(package, request["files"])
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    changed = {name for name, look in now.items() if checked.get(name) != look}
    if not changed:
        return ""
    files = {name: entry for name, entry in request["files"].items() if name in changed}
    wrong = _damage(package, {**request, "files": files})
    if not wrong:
        _note(package, now)
    return wrong


def _note(package: Path, looks: dict[str, list[int]]) -> None:
    """Keep how the files of a package look that was checked."""
    _write(HOME / "checked" / package.name, json.dumps(looks))


def _looks(package: Path, files: Iterable[str]) -> dict[str, list[int]]:
    """Return size, time and number of each file, which differ once it was written to.

    It is the time that programs cannot set.
    """
    found = {}
    for name in [*files, "manifest.json"]:
        status = (package / name).stat()
        found[name] = [status.st_size, status.st_ctime_ns, status.st_ino]
    return found


def _package_of(request: Request) -> Path:
    return HOME / "packages" / str(request["manifest_sha256"])[:SHORT]


def _run_of(request: Request) -> Path:
    return HOME / "runs" / str(request["run"])


def _make_folders() -> None:
    HOME.mkdir(mode=0o700, exist_ok=True)
    for name in ("packages", "runs", "staging", "checked"):
        (HOME / name).mkdir(exist_ok=True)


def _remove_old_staging() -> None:
    for left in (HOME / "staging").iterdir():
        if _age_s(left) > OLD_STAGING_S:
            shutil.rmtree(left, ignore_errors=True)


def _newest(folder: Path) -> list[Path]:
    """Return what is in a folder, the newest first."""
    times = {}
    for each in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            times[each] = each.lstat().st_mtime_ns
    return sorted(times, key=lambda each: -times[each])


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 18):
            digest.update(block)
    return digest.hexdigest()


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


# The environment


def _make_environment(request: Request) -> Answer:
    """Make the board's virtual environment, and install what the package lists into it."""
    package, venv = _package_of(request), HOME / "venv"
    python = venv / "bin" / "python3"
    is_new = not (venv / "bin" / "pip").exists()
    if is_new:
        made = _quiet([_base_python(), "-m", "venv", "--clear", str(venv)])
        if made.returncode:
            raise RefusedError(
                f"no virtual environment can be made: {_last_line(made)}; on Debian:"
                " apt-get install python3-venv"
            )
    wheels = package / "wheels"
    where = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []
    wanted = ["--requirement", str(package / "requirements.txt"), *request["also"]]
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *where, *wanted]
    installed = _quiet(pip)
    if installed.returncode and is_new:
        # Jobs prefer this environment: an empty one would hide what the board's Python has.
        shutil.rmtree(venv, ignore_errors=True)
    if "No space left" in installed.stdout:
        raise RefusedError(DISK_FULL)
    if installed.returncode:
        remedy = (
            "put the wheels of this board's Python and architecture into the package:"
            " rankslice build --wheels, then rankslice deploy OUT --venv; or rankslice profile"
            " --wheels"
        )
        raise RefusedError(f"pip could not install: {_last_line(installed)}; {remedy}")
    return {}


def _base_python() -> str:
    """Return the Python that is not the environment's own."""
    return str(Path(sys.base_prefix) / "bin" / "python3") if _in_own_venv() else sys.executable


def _in_own_venv() -> bool:
    return Path(sys.prefix) == HOME / "venv"


def _quiet(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower()] or lines
    return told[-1] if told else f"exit code {ended.returncode}"


# Before a run


def _look(request: Request) -> Answer:
    """Check that the job can run here, and write what starts a run of it."""
    problems = [*_package_problems(request), *_python_problems(), *_requirement_problems(request)]
    daemon, library, mpi = _open_mpi(request)
    problems += mpi
    if problems or daemon is None:
        return _looked(problems)
    address = _address(request)
    network = _network_at(address)
    if ":" in address and not network:
        found = f"is reached at {address}, and has no IPv4 address there, which Open MPI needs"
        return _looked([f"{found}; give it one"])
    bases = [run.name for run in _newest(HOME / "runs") if (run / "input").is_dir()]
    if request["run"]:
        _sweep_runs()
        run, package = _run_of(request), _package_of(request)
        run.mkdir(mode=0o700)
        (run / "package").symlink_to(Path("..") / ".." / "packages" / package.name)
        _write_scripts(run, package, daemon, library)
    bases = [name for name in bases if RUN.fullmatch(name)]
    return _looked([], network, bases[:MAX_BASES])


def _looked(problems: list[str], network: str = "", bases: Sequence[str] = ()) -> Answer:
    own = socket.gethostname()
    return {"problems": problems, "network": network, "hostname": own, "bases": list(bases)}


def _package_problems(request: Request) -> list[str]:
    package = _package_of(request)
    if not package.is_dir():
        return ["does not have this package; bring it there: rankslice deploy OUT"]
    wrong = _changes(package, request)
    return [f"its package is damaged ({wrong}); mend it: rankslice deploy OUT"] if wrong else []


def _python_problems() -> list[str]:
    if sys.version_info >= MIN_PYTHON:
        return []
    return [f"its Python is {platform.python_version()}, and 3.10 or later is needed"]


def _requirement_problems(request: Request) -> list[str]:
    """Return which of the package's requirements are not there, or not of a version that does."""
    return [
        f"{complaint}; install what it needs there: rankslice deploy OUT --venv"
        for requirement in request["requirements"]
        for complaint in _complaints_about(requirement)
    ]


def _complaints_about(requirement: str) -> Iterator[str]:
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:(>=|==)\s*([0-9.]+))?", requirement.strip())
    if match is None:
        return
    name, relation, wanted = match.groups()
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if not _is_there_otherwise(name):
            yield f"{sys.executable} has no {name}"
        return
    if relation == ">=" and _numbers(found) < _numbers(wanted):
        yield f"{sys.executable} has {name} {found}, and {wanted} or later is needed"
    if relation == "==" and _numbers(found) != _numbers(wanted):
        yield f"{sys.executable} has {name} {found}, and {wanted} is needed"


def _is_there_otherwise(name: str) -> bool:
    """Tell whether a module can be imported that came in a package of another name."""
    module = {"ai-edge-litert": "tflite_runtime"}.get(name, name.replace("-", "_"))
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def _open_mpi(request: Request) -> tuple[Path | None, Path | None, list[str]]:
    """Return the daemon that mpirun starts here, its libmpi if mpi4py must be told, and problems.

    The launcher's mpirun and the daemon have to be of the same series of Open MPI.
    """
    series = request["open_mpi"]
    daemon = _find_daemon("prted" if series[0] >= 5 else "orted")
    wanted = ".".join(map(str, series))
    if daemon is None:
        remedy = (
            "rankslice deploy OUT --venv" if series[0] >= 5 else "apt-get install openmpi-bin there"
        )
        other = _find_daemon("orted" if series[0] >= 5 else "prted")
        has = f"it has {other} of another series" if other else "it has none"
        found = f"mpirun here is of Open MPI {wanted}, and {has}: all must be of one series"
        return None, None, [f"{found}; {remedy}"]
    version = _version_of(daemon)
    if version[:2] != series:
        found = ".".join(map(str, version)) or "an unknown version"
        return (
            daemon,
            None,
            [
                f"{daemon} is of Open MPI {found}, mpirun here of {wanted}: all must be of one"
                " series; install the same there, or name another mpirun with --mpirun"
            ],
        )
    own = daemon.parent == Path(sys.executable).parent
    library = None if own else _library_of(daemon)
    loaded = _loaded_library(library)
    if loaded[:2] != series:
        found = ".".join(map(str, loaded)) or "none"
        return (
            daemon,
            library,
            [f"the MPI library of {sys.executable} is {found}, mpirun here is of {wanted}"],
        )
    return daemon, library, []


def _find_daemon(name: str) -> Path | None:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    return Path(found) if found else None


def _version_of(daemon: Path) -> list[int]:
    """Return the version of Open MPI that a daemon belongs to: that of the mpirun beside it."""
    told = _quiet([str(daemon.with_name("mpirun")), "--version"]).stdout
    match = re.search(r"\(Open MPI\) (\d+)\.(\d+)\.(\d+)", told)
    return [int(part) for part in match.groups()] if match else []


def _library_of(daemon: Path) -> Path | None:
    """Return the libmpi from the folders where a daemon finds its own libraries."""
    linked = _quiet(["ldd", str(daemon.resolve())]).stdout
    prefix = daemon.resolve().parent.parent
    folders = [Path(name).parent for name in re.findall(r"=> (/\S+)", linked)]
    for folder in [*folders, prefix / "lib", prefix / "lib64"]:
        if (folder / "libmpi.so.40").exists():
            return folder / "libmpi.so.40"
    return None


ASK_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""


def _loaded_library(library: Path | None) -> list[int]:
    """Return the version of the library that mpi4py loads; asked in a process of its own."""
    variables = {**os.environ, **({"MPI4PY_LIBMPI": str(library)} if library else {})}
    told = subprocess.run(
        [sys.executable, "-c", ASK_LIBRARY],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    ).stdout
    match = re.search(r"Open MPI v(\d+)\.(\d+)\.(\d+)", told)
    return [int(part) for part in match.groups()] if match else []


def _write_scripts(run: Path, package: Path, daemon: Path, library: Path | None) -> None:
    """Write what mpirun starts here: they know this board's paths, which others need not share."""
    variables = {JOB_VARIABLE: run.name}
    folders = _words(str(run / FOLDERS))
    take_folders = f"[ ! -r {folders} ] || . {folders}"
    if library:
        variables["MPI4PY_LIBMPI"] = str(library)
    start = [
        "#!/bin/sh",
        _exports(variables),
        take_folders,
        f"{_words('cd', str(run))} || exit 1",
        f'{_words("exec", sys.executable, str(package / "driver.py"))} "$@"',
    ]
    prefix = str(daemon.parent.parent)
    if daemon.name == "prted":
        variables |= dict.fromkeys(("PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"), prefix)
    serve = ["#!/bin/sh", _exports(variables), take_folders]
    if daemon.name == "prted":
        folder = _words(f"{prefix}/lib")
        serve += [f'export LD_LIBRARY_PATH={folder}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"']
    serve += [f'{_words("exec", str(daemon))} "$@"']
    _write(run / "start", "\n".join([*start, ""]), 0o755)
    _write(run / "daemon", "\n".join([*serve, ""]), 0o755)


def _words(*words: str) -> str:
    """Return words as the text of a shell that reads them as these words."""
    return " ".join(map(shlex.quote, words))


def _exports(variables: dict[str, str]) -> str:
    return "export " + " ".join(f"{name}={_words(value)}" for name, value in variables.items())


def _address(request: Request) -> str:
    """Return the address at which the launcher reaches this board."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    given: str = request.get("address", "")
    return words[2] if request["over_ssh"] and len(words) == 4 else given


def _network_at(address: str) -> str:
    """Return the IPv4 network of the interface that has an address, as CIDR; empty: none has."""
    name = _interface_at(address)
    own, mask = _asked(name, SIOCGIFADDR), _asked(name, SIOCGIFNETMASK)
    if not own or not mask:
        return ""
    base = bytes(a & m for a, m in zip(own, mask, strict=True))
    length = sum(bin(part).count("1") for part in mask)
    return f"{socket.inet_ntoa(base)}/{length}"


def _interface_at(address: str) -> str:
    """Return the name of the interface that has an address, IPv4 or IPv6; empty: none has."""
    names = [name for _, name in socket.if_nameindex()]
    if ":" not in address:
        with contextlib.suppress(OSError):  # a name
            wanted = socket.inet_aton(address)
            return next((name for name in names if _asked(name, SIOCGIFADDR) == wanted), "")
        return ""
    with contextlib.suppress(OSError):
        digits = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
        return next((line.split()[5] for line in lines if line.startswith(digits)), "")
    return ""


def _asked(interface: str, question: int) -> bytes:
    """Return what the kernel says of an interface: four bytes, or none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked, question, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return b""
    return answer[20:24]


# During a run


def _watch(request: Request) -> Answer:
    """Tell what ranks say while a job runs; end what is left of it when the launcher ends."""
    run = _run_of(request)
    lock = _lock(run)
    folders = contextlib.ExitStack()
    messages = _make_own_folders(run, folders)
    _say(_heard("watching", {}))
    heard = _Launcher()
    threading.Thread(target=heard.listen, daemon=True).start()
    threading.Thread(target=_tell_messages, args=(messages,), daemon=True).start()
    pings, misses = 0, 0
    while not heard.end.is_set() and misses < SILENCE_S:
        found = _processes_of(run.name)
        with contextlib.suppress(OSError):
            _say(_heard("alive", found))
        if _wait_for_loss(found, heard.end):  # the launcher goes by where it came first
            found = _processes_of(run.name)
            with contextlib.suppress(OSError):
                _say(_heard("alive", found))
            heard.end.wait(LOSS_S)
            continue
        misses = misses + 1 if pings == heard.pings else 0
        pings = heard.pings
    last = _heard("ended", _processes_of(run.name))
    _end_processes(run.name)
    folders.close()
    os.utime(lock)
    return last


def _make_own_folders(run: Path, folders: contextlib.ExitStack) -> socket.socket:
    """Make folders of a run that no other user can enter; return where ranks leave messages.

    The scripts that start daemon and ranks read where they are.
    """
    private = _module(run / "package" / "runtime" / "faults" / "private.py")
    session = folders.enter_context(private.make_private(private.in_memory()))
    temporary = folders.enter_context(private.make_private())
    variables = {SESSION_VARIABLE: str(session.path), "TMPDIR": str(temporary.path)}
    _write(run / FOLDERS, f"{_exports(variables)}\n", 0o600)
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    # The path of the folder may be longer than the name of a socket can be.
    messages.bind(f"/proc/self/fd/{session.descriptor}/{MESSAGES}")
    return messages


def _module(path: Path) -> Any:
    """Return a module of a package's runtime, without the rest of it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wait_for_loss(found: dict[int, bytes], end: threading.Event) -> bool:
    """Wait for a second, or until the end; tell at once if one of a job's processes has ended."""
    descriptors = []
    try:
        for process in found:
            with contextlib.suppress(OSError):  # it has ended, or the kernel is old
                descriptors.append(os.pidfd_open(process))
        deadline = time.monotonic() + 1
        while not end.is_set() and time.monotonic() < deadline:
            if not descriptors:
                end.wait(deadline - time.monotonic())
            elif select.select(descriptors, [], [], LOOK_S)[0]:
                return True
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _lock(run: Path) -> int:
    """Return the open file by which others see that a run is watched."""
    new = run / f".lock.{os.getpid()}"
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        os.link(new, run / "lock")
    except FileExistsError:
        raise RefusedError("this run is there already; start another one") from None
    finally:
        new.unlink()
    return lock


def _heard(state: str, found: dict[int, bytes], message: str = "") -> Answer:
    """Return what the launcher is told, of a job with these processes."""
    lines = found.values()
    return {
        "state": state,
        "message": message,
        "ranks": sum(b"driver.py" in line for line in lines),
        "daemon": any(DAEMON.search(line) for line in lines),
    }


class _Launcher:
    """What has been heard of the launcher, which writes a line a second."""

    def __init__(self) -> None:
        self.pings = 0
        self.end = threading.Event()

    def listen(self) -> None:
        while line := sys.stdin.buffer.readline():
            self.pings += 1
            if line.strip() == b"end":
                break
        self.end.set()


def _tell_messages(messages: socket.socket) -> None:
    for _ in range(MAX_MESSAGES):
        text = messages.recv(MAX_MESSAGE_BYTES).decode(errors="replace")
        text = "".join(letter for letter in text if letter.isprintable())
        with contextlib.suppress(OSError):
            _say(_heard("message", {}, text))


def _end_processes(job: str) -> None:
    """Kill what is left of a job here. Guards may tidy up first."""
    found = _processes_of(job)
    guards = {process for process, command in found.items() if b"guard.py" in command}
    for process in found.keys() - guards:
        _kill(process)
    deadline = time.monotonic() + GUARD_S
    while guards & _processes_of(job).keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in _processes_of(job):
        _kill(process)


def _processes_of(job: str) -> dict[int, bytes]:
    """Return the processes that a job's scripts started here, with their command lines."""
    return {process: line for process, (of, line) in _processes().items() if of == job}


def _processes() -> dict[int, tuple[str, bytes]]:
    """Return the processes that jobs' scripts started here, with job and command line."""
    begin = f"{JOB_VARIABLE}=".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            jobs = [each[len(begin) :] for each in variables if each.startswith(begin)]
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if jobs and state not in "ZX":
                line = (folder / "cmdline").read_bytes()
                found[int(folder.name)] = jobs[0].decode(errors="replace"), line
        except OSError:
            continue
    return found


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


# After a run


def _fetch(request: Request) -> None:
    """Send a file of a run; remove it once the launcher says that it has it."""
    path = _run_of(request) / request["name"]
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        _say({"nbytes": size})
        left = size
        while left and (block := file.read(min(left, 1 << 20))):
            sys.stdout.buffer.write(block)
            left -= len(block)
        sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline() == b"fetched\n":
        path.unlink()


def _sweep_runs() -> None:
    """End what is left of runs that nobody watches any more; remove all but the newest of them."""
    living = {job for job, _ in _processes().values()}
    ended = [run for run in _newest(HOME / "runs") if _has_ended(run, living)]
    for run in ended:
        if run.name in living:
            _end_processes(run.name)
    for old in ended[KEPT_RUNS:]:
        if _age_s(old / "lock") > OLD_RUN_S:
            shutil.rmtree(old, ignore_errors=True)


def _has_ended(run: Path, living: set[str]) -> bool:
    """Tell whether a run is ours, and over; one without a watch is typed by hand, if ever."""
    status = run.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or _is_watched(run):
        return False
    return (run / "lock").exists() or (_age_s(run) > UNUSED_RUN_S and run.name not in living)


def _is_watched(run: Path) -> bool:
    try:
        lock = os.open(run / "lock", os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _age_s(path: Path) -> float:
    """Return for how long a file has been as it is; endless if it is not there."""
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return math.inf


# Before a mapping is chosen


def _measure(request: Request) -> Answer:
    """Become the program of a package that measures; return what keeps it from running here."""
    problems = [*_package_problems(request), *_python_problems(), *_requirement_problems(request)]
    if not problems:
        os.chdir(_package_of(request))
        os.execv(sys.executable, [sys.executable, "-m", "runtime.profiling", request["what"]])
    return {"problems": problems}


ACTIONS = {
    "receive": _receive,
    "commit": _commit,
    "room": _room,
    "make_environment": _make_environment,
    "look": _look,
    "watch": _watch,
    "fetch": _fetch,
    "measure": _measure,
}
