"""What keeps boards of aarch64 from being is told, with the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boards import emulation, roots
from boards.emulation import why_no_emulation
from boards.fixtures import skip_without_boards
from boards.roots import why_no_root

pytestmark = pytest.mark.ci


@pytest.fixture(autouse=True)
def _another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a machine whose kernel has binfmt_misc, and that is not of aarch64 itself."""
    skip_without_boards()
    monkeypatch.setattr("boards.emulation.is_mounted", lambda: True)
    if os.uname().machine == "aarch64":
        pytest.skip("this machine is of aarch64 itself")


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Let these programs alone be installed, each of which prints a text."""
    for name, text in texts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
    for module in (emulation, roots):
        monkeypatch.setattr(module, "SYSTEM_PATH", str(folder))


def test_a_missing_qemu_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch)
    told = why_no_emulation()
    assert "need qemu-user-static 10 or later, but there is none" in told
    assert "apt-get install --yes qemu-user-static/bookworm-backports" in told


def test_an_old_qemu_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, qemu_aarch64_static="qemu-aarch64 version 7.2.15")
    assert f"{tmp_path}/qemu-aarch64-static is of version 7;" in why_no_emulation()


def test_a_missing_debootstrap_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, qemu_aarch64="qemu-aarch64 version 10.0.2")
    assert "apt-get install debootstrap" in why_no_root(tmp_path / "root")


def test_a_root_that_is_there_needs_no_debootstrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, qemu_aarch64="qemu-aarch64 version 10.0.2")
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "debian_version").write_text("12.0\n")
    assert "" == why_no_root(tmp_path / "root")


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "boards of aarch64 need root" in why_no_emulation()
