"""Several boards on one machine, from nothing to nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from boards import disks, emulation, needs, network
from boards.board import Board
from boards.keys import Keys, make_keys
from boards.leftovers import remove_rack
from boards.names import MAX_BOARDS, RackNames
from boards.system import BoardsError

LAST_RACK = 255

STARTED_AT_ONCE = 4


@dataclass(frozen=True)
class Wish:
    """What somebody wants of a rack."""

    count: int
    rate_mbit: float
    disk_mb: int
    roots: list[str] = field(default_factory=list)
    """Folders with the root file systems of the first boards; ``/``, too: this machine's own."""

    def root(self, index: int) -> Path:
        """Return the root of a board; the first has index 1."""
        return Path(self.roots[index - 1]) if index <= len(self.roots) else disks.OWN_ROOT

    @property
    def is_foreign(self) -> bool:
        """Whether a board has another root than this machine's."""
        return any(Path(root) != disks.OWN_ROOT for root in self.roots)


class RackLock:
    """Holds a rack for one process; ends with it, however it ends."""

    def __init__(self, rack: RackNames) -> None:
        self.rack = rack
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """Tell whether the rack is ours now."""
        # A name without a file: the kernel forgets it with the process.
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0{self.rack.name}")
        except OSError:
            holder.close()
            return False
        self._socket = holder
        return True

    def release(self) -> None:
        """Leave the rack to others."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Boards:
    """Boards ``board1``, ``board2``, ... on one bridge; a context manager that removes them again.

    Args:
        count: how many.
        rate_mbit: of each cable in each direction, in Mbit/s.
        disk_mb: what a board can write, in MiB; it is memory of this machine.
        rack: number of the rack, which is part of all names and addresses; without it, the first
            from 1 on that no process holds. Rack 0 is that of ``make boards``.
        roots: folders with the root file systems of the first boards, ``/`` for this machine's
            own, which the others have, too. Another one is for aarch64: :func:`roots.make_root`.

    Raises:
        BoardsError: there can be none here, and why.
    """

    def __init__(
        self,
        count: int,
        rate_mbit: float = 1000,
        *,
        disk_mb: int = 2048,
        rack: int | None = None,
        roots: Sequence[Path] = (),
    ) -> None:
        if not 1 <= count <= MAX_BOARDS:
            raise BoardsError(f"1 to {MAX_BOARDS} boards are possible, not {count}")
        if rate_mbit <= 0 or disk_mb <= 0:
            raise BoardsError("rate and disk must be above 0")
        if rack is not None and not 0 <= rack <= LAST_RACK:
            raise BoardsError(f"racks have numbers from 0 to {LAST_RACK}, not {rack}")
        self.wish = Wish(count, rate_mbit, disk_mb, [str(root) for root in roots])
        self._number = rack
        self._lock: RackLock | None = None
        self._boards: tuple[Board, ...] = ()

    def __enter__(self) -> Boards:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def __iter__(self) -> Iterator[Board]:
        return iter(self._boards)

    def __len__(self) -> int:
        return len(self._boards)

    def __getitem__(self, index: int) -> Board:
        return self._boards[index]

    @property
    def names(self) -> RackNames:
        """Names and addresses of the rack.

        Raises:
            BoardsError: the boards are not up.
        """
        if self._lock is None:
            raise BoardsError("these boards are not up")
        return self._lock.rack

    @property
    def ssh_config(self) -> Path:
        """What ``ssh -F`` takes to reach the boards."""
        return self.names.ssh_config

    def up(self) -> None:
        """Have the boards up: as they are, if they are as wished; made anew otherwise."""
        reason = needs.why_not()
        if reason:
            raise BoardsError(reason)
        if self._lock is None:
            self._lock = taken_lock(self._number)
        try:
            self._make()
        except BaseException:
            self.down()
            raise

    def _make(self) -> None:
        names = self.names
        self._boards = boards_of(names, self.wish)
        if wish_of(names) == self.wish and self._boards[0].names.disk.is_mount():
            for board in self._boards:  # the disk of one that is off is kept
                if not board.is_on():
                    board.cut_power()
                    board.power_on()
            return
        remove_rack(names)
        names.folder.mkdir(mode=0o700)
        keys = make_keys(names, names.boards(self.wish.count))
        network.lay_network(names)
        if self.wish.is_foreign:
            emulation.enable(names.emulation)
        with ThreadPoolExecutor(STARTED_AT_ONCE) as starters:
            list(starters.map(lambda board: start(board, self.wish, keys), self._boards))
        # Written last: half a rack is never taken for a whole one.
        wish_file(names).write_text(json.dumps(asdict(self.wish)))

    def set_host_rate(self, rate_mbit: float) -> None:
        """Give this machine, too, a cable: a rate in Mbit/s for what it sends to all boards."""
        network.shape_host(self.names, rate_mbit)

    def down(self) -> None:
        """Remove the boards and all that belongs to them."""
        if self._lock is None:
            return
        remove_rack(self.names)
        self._boards = ()
        self.leave()

    def leave(self) -> None:
        """Let the boards go on without this process."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def taken_lock(number: int | None) -> RackLock:
    """Return the lock of the rack with this number, or of the first one that is free.

    Raises:
        BoardsError: another process holds it.
    """
    numbers = range(1, LAST_RACK + 1) if number is None else [number]
    for candidate in numbers:
        lock = RackLock(RackNames(candidate))
        if lock.take():
            return lock
    which = "all racks" if number is None else f"rack {number}"
    raise BoardsError(f"another process holds {which}: wait until it ends, or take another rack")


def boards_of(names: RackNames, wish: Wish) -> tuple[Board, ...]:
    """Return the boards that a wish asks for, whether or not they are there."""
    return tuple(
        Board(board, wish.rate_mbit, wish.disk_mb, wish.root(board.index))
        for board in names.boards(wish.count)
    )


def wish_file(names: RackNames) -> Path:
    """Return where a rack that is complete says what it was made for."""
    return names.folder / "rack.json"


def wish_of(names: RackNames) -> Wish | None:
    """Return what a rack was made for; None if it is not there, or not complete."""
    try:
        return Wish(**json.loads(wish_file(names).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def refuse_to_wipe(number: int, wish: Wish) -> None:
    """Refuse to make other boards than those of a rack that is there: their disks would be lost.

    Raises:
        BoardsError: there are such boards.
    """
    there = wish_of(RackNames(number))
    if there is not None and there != wish:
        raise BoardsError(
            f"rack {number} is there with {there.count} boards, {there.rate_mbit:g} Mbit/s and"
            f" {there.disk_mb} MiB each, and their disks would be lost: ask for the same, remove it"
            f" first (down --rack {number}), or take another --rack"
        )


def start(board: Board, wish: Wish, keys: Keys) -> None:
    """Make a board's disk and switch it on."""
    rack = board.names.rack
    disks.make_disk(board.names, wish.disk_mb)
    disks.install(board.names, rack.boards(wish.count), keys, board.root)
    board.power_on()
