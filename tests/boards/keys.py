"""The rack's ssh: one key that opens every board, a key per board, and files that name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boards.names import BoardNames, RackNames
from boards.system import command

HOST_NAME = "host"
"""What boards call the machine that they are on."""

SERVER_CONFIG = """\
ListenAddress {address}
HostKey /etc/ssh/board_key
AuthorizedKeysFile %h/.ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserEnvironment yes
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 100
MaxSessions 100
PidFile none
Subsystem sftp internal-sftp
"""

CLIENT_CONFIG = """\
User root
IdentityFile {key}
IdentitiesOnly yes
UserKnownHostsFile {known_hosts}
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
BatchMode yes
ConnectTimeout 5
LogLevel ERROR
"""


@dataclass(frozen=True)
class Keys:
    """The texts of the rack's key pair and of each board's, all private."""

    private: str
    public: str
    boards: dict[str, str]
    known_hosts: str


def make_keys(rack: RackNames, boards: Sequence[BoardNames]) -> Keys:
    """Make all keys, and the files with which this machine reaches the boards."""
    private, public = new_key(rack.key, comment=rack.name)
    pairs = {board.name: new_key(rack.folder / f"{board.name}_key", "") for board in boards}
    lines = [f"{board.name},{board.address} {pairs[board.name][1]}" for board in boards]
    rack.known_hosts.write_text("".join(lines))
    rack.ssh_config.write_text(client_config(boards, rack.key, rack.known_hosts))
    own = {name: pair[0] for name, pair in pairs.items()}
    return Keys(private, public, own, rack.known_hosts.read_text())


def new_key(path: Path, comment: str) -> tuple[str, str]:
    """Return the texts of a new key, private and public, that lies at the path."""
    command(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
    return path.read_text(), path.with_suffix(".pub").read_text()


def client_config(boards: Sequence[BoardNames], key: Path, known_hosts: Path) -> str:
    """Return what ssh needs to reach the boards by name or by address."""
    hosts = "".join(
        f"Host {board.name} {board.address}\n  HostName {board.address}\n" for board in boards
    )
    return f"{hosts}Host *\n{indented(CLIENT_CONFIG.format(key=key, known_hosts=known_hosts))}"


def indented(text: str) -> str:
    """Return the text with each line moved in."""
    return "".join(f"  {line}\n" for line in text.splitlines())
