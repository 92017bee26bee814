"""The rack's network: a bridge, and from it a cable of a given rate to each board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from boards.names import BoardNames, RackNames
from boards.system import NAMESPACES, batch, command

QUEUE_MS = 50
BURST_MS = 2
SMALLEST_BURST = 16 * 1024


@dataclass(frozen=True)
class Traffic:
    """Bytes on a cable since it was laid, with Ethernet headers and without their checksums."""

    sent: int
    """By the board."""
    received: int
    """By the board."""

    def since(self, earlier: Traffic) -> Traffic:
        """Return what came after an earlier count."""
        return Traffic(self.sent - earlier.sent, self.received - earlier.received)


def lay_network(rack: RackNames) -> None:
    """Make the bridge, on which this machine has an address, too."""
    # Without IPv6 and multicast queries nothing is sent unasked, so bytes can be counted.
    batch(
        ["ip"],
        [
            f"link add name {rack.name} address {rack.host_hardware} type bridge mcast_snooping 0",
            f"link set dev {rack.name} addrgenmode none",
            f"address add {rack.host_address}/24 dev {rack.name}",
            f"link set dev {rack.name} up",
        ],
    )


def lay_cable(board: BoardNames, rate_mbit: float) -> None:
    """Make a board's network namespace and its cable, shaped in both directions."""
    batch(
        ["ip"],
        [
            f"netns add {board.namespace}",
            f"link add name {board.cable} type veth peer name eth0 netns {board.namespace}",
            f"link set dev {board.cable} addrgenmode none master {board.rack.name}",
        ],
    )
    batch(
        ["ip", "-netns", board.namespace],
        [
            "link set dev lo up addrgenmode none",
            f"link set dev eth0 address {board.hardware} addrgenmode none",
            f"address add {board.address}/24 dev eth0",
        ],
    )
    shape(board, rate_mbit)
    batch(["ip", "-netns", board.namespace], ["link set dev eth0 up"])
    command(["ip", "link", "set", "dev", board.cable, "up"])


def shape(board: BoardNames, rate_mbit: float) -> None:
    """Limit both directions of a cable; let packets be as small as they are on a wire."""
    limit = limit_to(rate_mbit)
    for inside, device in (([], board.cable), (["-netns", board.namespace], "eth0")):
        command(["tc", *inside, "qdisc", "replace", "dev", device, *limit])
    offloads = ["tso", "off", "gso", "off", "gro", "off"]
    command(["ethtool", "-K", board.cable, *offloads])
    command(
        ["nsenter", f"--net={NAMESPACES / board.namespace}", "ethtool", "-K", "eth0", *offloads]
    )


def shape_host(rack: RackNames, rate_mbit: float) -> None:
    """Limit what this machine sends to all boards together."""
    command(["tc", "qdisc", "replace", "dev", rack.name, *limit_to(rate_mbit)])


def limit_to(rate_mbit: float) -> list[str]:
    """Return what tells ``tc`` a rate."""
    burst = max(SMALLEST_BURST, int(rate_mbit * 1e6 / 8 * BURST_MS / 1e3))
    return f"root tbf rate {rate_mbit}mbit burst {burst}b latency {QUEUE_MS}ms".split()


def set_cable(board: BoardNames, *, plugged: bool) -> None:
    """Plug a cable into the bridge, or pull it."""
    command(["ip", "link", "set", "dev", board.cable, "up" if plugged else "down"])


def remove_cables(namespaces: Iterable[str], cables: Iterable[str]) -> None:
    """Remove namespaces, cables and bridges."""
    for cable in cables:
        command(["ip", "link", "delete", "dev", cable])
    for namespace in namespaces:
        command(["ip", "netns", "delete", namespace])


def traffic(board: BoardNames) -> Traffic:
    """Return the bytes that went over a board's cable; what it sent arrived at the bridge."""
    counters = Path("/sys/class/net") / board.cable / "statistics"
    return Traffic(
        sent=int((counters / "rx_bytes").read_text()),
        received=int((counters / "tx_bytes").read_text()),
    )
