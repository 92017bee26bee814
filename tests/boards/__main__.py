"""The command line of the boards: ``python tests/boards up|down|status|root|needs``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # started by the folder's path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from boards.disks import OWN_ROOT
from boards.leftovers import racks_here, remove_rack
from boards.names import RackNames
from boards.needs import why_not
from boards.rack import Boards, RackLock, boards_of, refuse_to_wipe, wish_of
from boards.roots import make_root, usual_root
from boards.system import BoardsError


def main() -> int:
    """Return the exit code: 0 success, 1 it failed."""
    options = parsed()
    try:
        reason = why_not()
        if reason:
            raise BoardsError(reason)
        options.action(options)
    except BoardsError as error:
        print(f"boards: {error}", file=sys.stderr)
        return 1
    return 0


def parsed() -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(prog="boards", description="Virtual boards on this machine.")
    actions = parser.add_subparsers(required=True)
    root_help = f"folder with the root for boards of aarch64 ({usual_root()})"
    rack_help = "number of the rack, 0 to 255, which is part of all names and addresses"

    up_parser = actions.add_parser("up", help="have boards up, as they are or made anew")
    up_parser.add_argument("--count", type=int, default=2, help="how many (2)")
    up_parser.add_argument("--rate", type=float, default=1000, help="Mbit/s of each cable (1000)")
    up_parser.add_argument("--disk", type=int, default=2048, help="MiB of each disk (2048)")
    up_parser.add_argument("--rack", type=int, default=0, help=f"{rack_help} (0)")
    up_parser.add_argument("--aarch64", type=int, default=0, help="how many are of aarch64 (0)")
    up_parser.add_argument("--root", type=Path, default=usual_root(), help=root_help)
    up_parser.set_defaults(action=up)

    down_parser = actions.add_parser("down", help="remove boards")
    down_parser.add_argument("--rack", type=int, help=f"{rack_help} (all that no process holds)")
    down_parser.set_defaults(action=down)

    root_parser = actions.add_parser("root", help="make a root for boards of aarch64 (minutes)")
    root_parser.add_argument("--root", type=Path, default=usual_root(), help=root_help)
    root_parser.set_defaults(action=root)

    actions.add_parser("status", help="tell which boards there are").set_defaults(action=status)
    needs_help = "tell what boards need and this machine lacks, and do nothing"
    actions.add_parser("needs", help=needs_help).set_defaults(action=lambda options: None)
    return parser.parse_args()


def up(options: argparse.Namespace) -> None:
    """Have boards up and tell how to reach them."""
    roots = [options.root.absolute()] * options.aarch64
    if roots:
        make_root(roots[0])
    sizes = (options.count, options.rate)
    boards = Boards(*sizes, disk_mb=options.disk, rack=options.rack, roots=roots)
    refuse_to_wipe(options.rack, boards.wish)
    boards.up()
    tell(boards.names)
    boards.leave()


def down(options: argparse.Namespace) -> None:
    """Remove a rack, or all racks that nobody holds."""
    racks = racks_here() if options.rack is None else [RackNames(options.rack)]
    removed = [rack.name for rack in racks if remove_unheld(rack)]
    print(f"removed {', '.join(removed)}" if removed else "there was nothing to remove")


def remove_unheld(rack: RackNames) -> bool:
    """Remove a rack unless a process holds it; tell whether there was anything."""
    lock = RackLock(rack)
    if not lock.take():
        print(f"{rack.name} belongs to a running process and stays", file=sys.stderr)
        return False
    try:
        return remove_rack(rack)
    finally:
        lock.release()


def root(options: argparse.Namespace) -> None:
    """Have a root for boards of aarch64."""
    make_root(options.root.absolute())
    print(f"the root is {options.root.absolute()}")


def status(options: argparse.Namespace) -> None:
    """Tell of all racks."""
    del options
    racks = racks_here()
    for rack in racks:
        tell(rack)
    if not racks:
        print("there are no boards")


def tell(rack: RackNames) -> None:
    """Print how to reach the boards of a rack."""
    wish = wish_of(rack)
    if wish is None:
        print(f"{rack.name}: incomplete, being made or left over")
        return
    host = f"this machine is {rack.host_address}"
    print(f"{rack.name}: {wish.count} boards, {wish.rate_mbit:g} Mbit/s each, {host}")
    for board in boards_of(rack, wish):
        state = "" if board.root == OWN_ROOT else "  aarch64"
        state += "" if board.is_on() else "  off"
        print(f"  ssh -F {rack.ssh_config} {board.name}    # {board.address}{state}")


if __name__ == "__main__":
    sys.exit(main())
