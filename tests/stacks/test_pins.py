"""scripts/pins with programs of its own in place of go, pip and npm, which know what a test wants them to know."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.versions import table
from tests.stacks.conftest import ROOT

GATEWAY, KSERVE = (
    table().chart(name).version.lstrip("v") for name in ("envoy-gateway", "kserve-crd")
)
# As the programs answer: go in one line, pip with words of its own, npm as JSON.
FAKES = {
    "go": 'for last; do :; done; [ -n "$GO_FAILS" ] && { echo "reading list: refused" >&2; exit 1; }; echo "$last $GO"',
    "pip": 'echo "kserve (9.9.9)"; echo "Available versions: $PIP"; echo "A new pip 99.0.0" >&2',
    "npm": 'echo \'["0.20.9", "0.21.0", "0.22.0-pre.1"]\'',
}
GO = " ".join(
    f"v{table().chart(name).version.lstrip('v')}"
    for name in ("cert-manager", "dra-driver-nvidia-gpu", "envoy-gateway", "node-feature-discovery")
)


def asked(folder: Path, **environ: str) -> tuple[int, dict[str, str], str]:
    """Exit code, line of each pin, and all lines."""
    for name, text in FAKES.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)
    usual = {"GO": GO, "PIP": KSERVE, "GO_FAILS": "", "PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "pins")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **usual, **environ},
    )
    lines = done.stdout.splitlines()
    rows = {match[1]: line for line in lines if (match := re.search(r"(\w+/\S+)", line))}
    return done.returncode, rows, done.stdout + done.stderr


def newer(version: str, part: int) -> str:
    numbers = [int(each) for each in version.split(".")]
    numbers[part] += 1
    return ".".join(map(str, numbers))


def test_newest_patches_are_ok_and_a_newer_minor_is_a_note(tmp_path: Path) -> None:
    code, rows, text = asked(tmp_path, PIP=f"{newer(KSERVE, 1)}, {KSERVE}, 0.8.0.2")
    assert code == 0, text
    assert rows["charts/kserve-crd"].startswith("ok")
    assert f"{newer(KSERVE, 1)} is the newest release" in rows["charts/kserve-crd"]
    assert rows["npm/cdktf-cli"].startswith("ok")


def test_a_newer_patch_fails_and_is_named(tmp_path: Path) -> None:
    code, rows, text = asked(tmp_path, GO=f"{GO} v{newer(GATEWAY, 2)} v{newer(GATEWAY, 2)}-rc.1")
    assert code == 1
    assert rows["charts/envoy-gateway"].startswith("behind")
    assert f"{newer(GATEWAY, 2)} is the newest patch" in rows["charts/envoy-gateway"]
    assert "stacks/versions.yaml" in text


@pytest.mark.parametrize(
    ("environ", "why"),
    [({"GO_FAILS": "1"}, "refused"), ({"GO": "v0.0.1"}, f"the list lacks {GATEWAY} itself")],
)
def test_no_answer_is_never_ok(tmp_path: Path, environ: dict[str, str], why: str) -> None:
    code, rows, _ = asked(tmp_path, **environ)
    assert code == 2
    assert (
        rows["charts/envoy-gateway"].startswith("no answer") and why in rows["charts/envoy-gateway"]
    )


def test_every_pin_is_listed(tmp_path: Path) -> None:
    _, rows, text = asked(tmp_path)
    pinned = {f"{section}/{name}" for section, pins in table().pins.items() for name in pins}
    assert pinned | {"npm/cdktf-cli"} == set(rows)
    assert rows["images/envoy"].startswith("not asked")
    assert sum(
        int(each) for each in re.findall(r"\d+(?= (?:behind|ok|no answer|not asked))", text)
    ) == len(rows)
