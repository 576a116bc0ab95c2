"""One target under a coverage-guided fuzzer: ``python -m tests.fuzz.run NAME FOLDER [libFuzzer options]`` (atheris).

Inputs that reach new code are kept below FOLDER. One that fails is written to tests/fuzz/corpus/NAME as
``crash-<digest>``; commit it with the fix.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mpctl"]):
    from tests.fuzz.targets import CORPUS, TARGETS


def main():
    name, path = sys.argv[1], Path(sys.argv[2]) / sys.argv[1]
    path.mkdir(parents=True, exist_ok=True)
    options = [
        f"-artifact_prefix={CORPUS / name}/",
        "-timeout=10",
        "-rss_limit_mb=2048",
        *sys.argv[3:],
    ]
    atheris.Setup([sys.argv[0], *options, str(path), str(CORPUS / name)], TARGETS[name])
    atheris.Fuzz()


main()
