"""Virtual boards: several machines on this one, with a network between them, for tests.

A board has a host name, an address, a file system, processes, shared memory and an sshd of its own.
It is made of Linux namespaces, so it takes root and a second. Nothing here knows RankSlice.
"""

from boards.board import Board
from boards.names import RackNames
from boards.needs import why_not
from boards.network import Traffic
from boards.rack import Boards
from boards.roots import make_root, usual_root, why_no_root
from boards.system import BoardsError

__all__ = [
    "Board",
    "Boards",
    "BoardsError",
    "RackNames",
    "Traffic",
    "make_root",
    "usual_root",
    "why_no_root",
    "why_not",
]
