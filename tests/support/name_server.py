"""Runs a command where a name server of ours answers: ``python name_server.py FILE COMMAND...``.

In a network of its own it says of every name that it does not exist, and leaves the names that
were asked for in FILE, as JSON. Started by :func:`questions_of`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_FILES = {
    "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}
_HEADER = 12
_NO_SUCH_NAME = b"\x81\x83"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command left behind."""

    code: int
    output: str
    names: tuple[str, ...]
    """Names that it asked for, in order, each once."""


def why_not() -> str:
    """Return why there can be no name server of ours here, empty if there can."""
    if os.geteuid() != 0:
        return "a name server of its own needs root: a network and mounts are made for it"
    trial = ["unshare", *_SPACES, "ip", "link", "set", "lo", "up"]
    try:
        done = subprocess.run(trial, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"a name server of its own needs unshare: {error}"
    return f"a network of its own needs namespaces: {done.stderr}" if done.returncode else ""


def questions_of(
    command: Sequence[str | Path], environment: Mapping[str, str], timeout_s: float = 120
) -> Asked:
    """Run a command with these variables alone; return how it ended and what it asked for."""
    with tempfile.NamedTemporaryFile("r") as answers:
        ended = subprocess.run(
            ["unshare", *_SPACES, sys.executable, __file__, answers.name, *map(str, command)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        names = json.loads(answers.read() or "[]")
    return Asked(ended.returncode, ended.stdout, tuple(names))


def _main(answers: str, command: Sequence[str]) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for path, text in _FILES.items():
        _replace(path, text)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    names: list[str] = []
    threading.Thread(target=_serve, args=(server, names), daemon=True).start()
    code = subprocess.run(command, check=False).returncode
    Path(answers).write_text(json.dumps(list(dict.fromkeys(names))))
    return code


def _replace(path: str, text: str) -> None:
    """Let a system's file say something else, in this space of mounts alone."""
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(text)
    ours = Path(file.name)
    ours.chmod(0o644)
    with contextlib.suppress(FileNotFoundError):  # systemd's is a link that may lead nowhere
        subprocess.run(["mount", "--bind", ours, Path(path).resolve(strict=True)], check=True)
    ours.unlink()


def _serve(server: socket.socket, names: list[str]) -> None:
    while True:
        question, sender = server.recvfrom(4096)
        names.append(_name(question))
        header = question[:2] + _NO_SUCH_NAME + question[4:6] + bytes(6)
        server.sendto(header + question[_HEADER:], sender)


def _name(question: bytes) -> str:
    """Return the name that a question is about: parts after their lengths, up to an empty one."""
    parts, place = [], _HEADER
    while length := question[place]:
        parts.append(question[place + 1 : place + 1 + length].decode("ascii", "replace"))
        place += 1 + length
    return ".".join(parts)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.argv[2:]))
