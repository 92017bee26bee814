"""Whether boards agree on the time, and reach each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from rankslice.backend.boards.conversation import (
    BoardLinks,
    Conversation,
    address_towards,
    clock_ahead_s,
    measure_routes,
)
from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.boards.parallel import outcomes
from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Link, Platform
from rankslice.session.probing.findings import (
    FAIL,
    HERE,
    OK,
    WARN,
    Answer,
    Finding,
    failed,
    message_of,
)
from rankslice.session.probing.platform_file import Pair, measured_pairs

_MAX_CLOCK_S = 1.0
_MIN_SHARE = 0.5
"""Of the bandwidth in the file, that has to be measured."""
_MAX_LATENCY = 2.0
_LATENCY_SPARE_MS = 0.5


def clock_findings(answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield boards whose clock differs from what most say, this machine among them."""
    readings = outcomes(clock_ahead_s, [answer.talk for answer in answers])
    known = [reading for reading in readings if not isinstance(reading, RankSliceError)]
    middle = statistics.median([0.0, *known])
    for answer, ahead in zip(answers, readings, strict=True):
        name = answer.board.name
        if isinstance(ahead, RankSliceError):
            yield failed(name, "clock", message_of(ahead))
            continue
        side = "ahead of" if ahead > 0 else "behind"
        found = f"{abs(ahead):.1f} s {side} this machine"
        if abs(ahead - middle) > _MAX_CLOCK_S:
            remedy = "set it: sudo timedatectl set-ntp true"
            yield Finding(name, "clock", WARN, found, remedy)
        else:
            yield Finding(name, "clock", OK, found)


def network_findings(
    answers: Sequence[Answer], here: Conversation, platform: Platform
) -> Iterator[Finding]:
    far = [answer for answer in answers if not is_this_machine(answer.board.host)]
    if not far:
        return
    own = address_towards(here, [answer.report for answer in far])
    addresses = {answer.board.name: answer.report.address or own for answer in answers}
    talks = {answer.board.name: answer.talk for answer in answers}
    network = BoardLinks({**talks, HERE: here}, {**addresses, HERE: own})
    yield from _launcher_findings([answer.board.name for answer in far], own, network)
    for pair in measured_pairs(measure_routes(network, list(addresses))):
        yield from _pair_findings(pair, addresses, _link(platform, pair.boards))


def _launcher_findings(names: Sequence[str], own: str, network: BoardLinks) -> Iterator[Finding]:
    """Yield whether boards reach this machine, as what mpirun starts there does."""
    for name, complaint in zip(names, network.complaints([(n, HERE) for n in names]), strict=True):
        if complaint:
            found = f"cannot connect to this machine at {own}: {complaint}"
            remedy = "open this machine's TCP ports to it, or start jobs in the boards' network"
            yield Finding(name, "firewall", FAIL, found, remedy)
        else:
            yield Finding(name, "firewall", OK, f"connects to this machine at {own}")


def _link(platform: Platform, boards: tuple[str, str]) -> Link | None:
    for first, second, link in platform.links:
        if {first, second} == set(boards):
            return link
    return platform.default_link


def _pair_findings(
    pair: Pair, addresses: Mapping[str, str], link: Link | None
) -> Iterator[Finding]:
    place = " - ".join(pair.boards)
    for route in (pair.there, pair.back):
        if route.complaint:
            target = addresses[route.target]
            found = f"{route.source} cannot connect to {target}: {route.complaint}"
            remedy = f"open all TCP ports of {route.target} to {addresses[route.source]}"
            yield Finding(place, "firewall", FAIL, found, remedy)
    if not pair.complaints:
        yield _link_finding(place, pair, link)


def _link_finding(place: str, pair: Pair, link: Link | None) -> Finding:
    found = f"{pair.bandwidth_mbps:.3g} Mbit/s, {pair.latency_ms:.2g} ms"
    if link is None:
        return Finding(place, "link", OK, found)
    said = f"{link.bandwidth_mbps:g} Mbit/s, {link.latency_ms:g} ms"
    is_slow = pair.bandwidth_mbps < _MIN_SHARE * link.bandwidth_mbps
    is_late = pair.latency_ms > _MAX_LATENCY * link.latency_ms + _LATENCY_SPARE_MS
    if is_slow or is_late:
        remedy = "look at cable and switch, or correct `links`: rankslice probe"
        return Finding(place, "link", WARN, f"{found}; the platform file says {said}", remedy)
    return Finding(place, "link", OK, f"{found}; the platform file says {said}")
