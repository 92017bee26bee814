"""Let a reader meet files that a fuzzer makes, guided by which lines they reach.

``make fuzz`` runs it for each reader, in an environment of its own. By hand:
``python tests/fuzz/guided.py plan -max_total_time=60``; what follows the reader's name goes to
libFuzzer. A file that does harm is left in this folder as ``crash-...``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rankslice", "yaml", "json"]):
    from targets import KERAS_TARGETS, TARGETS, Target, meet


def dictionary(target: Target) -> str:
    """Return the words of a reader's files in libFuzzer's form."""
    quoted = ("".join(f"\\x{letter:02x}" for letter in word) for word in target.words)
    return "".join(f'"{word}"\n' for word in quoted if word and len(word) < 400)


def main() -> None:
    """Take the reader's name and libFuzzer's options, and run until they say to stop."""
    target = (TARGETS | KERAS_TARGETS)[sys.argv[1]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(target.seeds):
            (corpus / str(number)).write_bytes(seed)
        (folder / "words").write_text(dictionary(target))
        limits = ["-timeout=20", "-rss_limit_mb=2048", f"-dict={folder / 'words'}"]
        atheris.Setup(
            [sys.argv[0], *limits, *sys.argv[2:], str(corpus)],
            lambda content: meet(target, folder, content),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
