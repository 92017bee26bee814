"""Accounts on a board besides root's, which the rack's key opens, too."""

from __future__ import annotations

from boards.board import Board


def add_account(board: Board, name: str) -> None:
    """Make an account on a board; its sessions find the same programs as root's."""
    board.run(["sh", "-c", ADD, "sh", name])


ADD = """
set -eu
useradd --create-home --shell /bin/sh --password '*' "$1"
mkdir -m 0700 "/home/$1/.ssh"
cp /root/.ssh/authorized_keys /root/.ssh/environment "/home/$1/.ssh"
chown -R "$1:" "/home/$1/.ssh"
chmod a+x /root  # a Python may lie below it
"""
