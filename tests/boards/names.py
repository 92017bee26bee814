"""What the things of a rack of boards are called: all names begin with the rack's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RUN_FOLDER = Path("/run")
RACK_NAME = re.compile(r"rsb(\d{1,3})")
"""Whole names of racks, of their bridges and of their folders."""

MAX_BOARDS = 200


@dataclass(frozen=True)
class RackNames:
    """Names and addresses of the rack with this number, 0 to 255."""

    number: int

    @property
    def name(self) -> str:
        """The rack's name, and that of its bridge."""
        return f"rsb{self.number}"

    @property
    def prefix(self) -> str:
        """What the names of the rack's namespaces and cables begin with."""
        return f"{self.name}-"

    @property
    def emulation(self) -> str:
        """The entry of binfmt_misc for boards of another architecture."""
        return f"{self.prefix}aarch64"

    @property
    def folder(self) -> Path:
        """The private folder with keys and disks."""
        return RUN_FOLDER / self.name

    @property
    def host_address(self) -> str:
        """The address of this machine on the rack's bridge."""
        return f"10.77.{self.number}.1"

    @property
    def host_hardware(self) -> str:
        """The Ethernet address of this machine on the rack's bridge."""
        return self.board(0).hardware

    @property
    def subnet(self) -> str:
        """All addresses of the rack, as CIDR."""
        return f"10.77.{self.number}.0/24"

    @property
    def ssh_config(self) -> Path:
        """What ``ssh -F`` takes to reach the boards."""
        return self.folder / "ssh_config"

    @property
    def key(self) -> Path:
        """The private key that opens every board of the rack."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        """The public keys of the rack's boards."""
        return self.folder / "known_hosts"

    def board(self, index: int) -> BoardNames:
        """Return the names of a board; the first has index 1."""
        return BoardNames(self, index)

    def boards(self, count: int) -> tuple[BoardNames, ...]:
        """Return the names of the first boards."""
        return tuple(self.board(index) for index in range(1, count + 1))


@dataclass(frozen=True)
class BoardNames:
    """Names and address of one board."""

    rack: RackNames
    index: int

    @property
    def name(self) -> str:
        """The host name."""
        return f"board{self.index}"

    @property
    def namespace(self) -> str:
        """The network namespace, as ``ip netns`` lists it."""
        return f"{self.rack.prefix}{self.name}"

    @property
    def cable(self) -> str:
        """The end of the board's cable that is plugged into the bridge."""
        return f"{self.rack.prefix}{self.index}"

    @property
    def address(self) -> str:
        """The board's IPv4 address."""
        return f"10.77.{self.rack.number}.{10 + self.index}"

    @property
    def hardware(self) -> str:
        """The board's Ethernet address, the same after a power cut: peers remember it."""
        return f"02:72:73:62:{self.rack.number:02x}:{self.index:02x}"

    @property
    def disk(self) -> Path:
        """Where the board's disk is mounted on this machine."""
        return self.rack.folder / self.name
