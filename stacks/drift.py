"""Compare what runs with what is written: ``scripts/drift``, or ``python -m stacks.drift``.

Synthesises the app of ``cdktf.json`` with the same environment variables as ``cdktf``, then plans every stack without a
lock and without changing anything. Exit codes, as `mpctl diff` has them: 0 no drift; 1 drift; 2 a stack could not be
compared, which says nothing about drift.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpctl.errors import InputError

NONE, DRIFT, FAILED = 0, 1, 2
# `terraform plan -detailed-exitcode`: 0 no changes, 1 error, 2 changes.
OF_TERRAFORM = {0: NONE, 1: FAILED, 2: DRIFT}
CHANGE = re.compile(r"^ +# (.+? (?:will be|must be|has been|has changed).*)$", re.MULTILINE)
MINUTES = 20


@dataclass(frozen=True)
class Compared:
    """One stack: its code of this module, and the changes or the error."""

    stack: str
    code: int
    lines: tuple[str, ...]


def synthesise(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """The folders of the stacks that the project's app writes."""
    app = json.loads(Path("cdktf.json").read_text("utf-8"))["app"]
    command = shlex.split(app)
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    done = subprocess.run(command, env={**environ, "CDKTF_OUTDIR": str(folder)}, check=False)
    return (
        sorted(path.parent for path in folder.glob("stacks/*/cdk.tf.json"))
        if done.returncode == 0
        else []
    )


def run_terraform(
    terraform: str, folder: Path, environ: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run one command of Terraform in *folder*, without its hints for people and its check for a newer version."""
    return subprocess.run(
        [terraform, *arguments],
        cwd=folder,
        env={**environ, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=MINUTES * 60,
        check=False,
    )


def compare(folder: Path, terraform: str, environ: Mapping[str, str]) -> Compared:
    """Plan one stack."""
    for arguments in (("init",), ("plan", "-detailed-exitcode", "-lock=false")):
        done = run_terraform(terraform, folder, environ, *arguments, "-input=false", "-no-color")
        if done.returncode == 1:
            return Compared(
                folder.name, FAILED, tuple((done.stderr or done.stdout).strip().splitlines())
            )
    return Compared(
        folder.name, OF_TERRAFORM.get(done.returncode, FAILED), tuple(CHANGE.findall(done.stdout))
    )


def terraform_binary(environ: Mapping[str, str]) -> str:
    """The chosen program, else the first one on the path.

    Raises:
        InputError: there is none.
    """
    found = environ.get("TERRAFORM_BINARY_NAME")
    if found := found or shutil.which("terraform"):
        return found
    raise InputError("terraform not found", hint="install Terraform 1.10 or later")


def report(comparisons: Iterable[Compared]) -> str:
    """A line for each stack, and one for each change in it."""
    verdict = {NONE: "no drift", DRIFT: "drift", FAILED: "could not be compared"}
    return "".join(
        f"{comparison.stack}: {verdict[comparison.code]}\n"
        + "".join(f"  {line}\n" for line in comparison.lines)
        for comparison in comparisons
    )


def main(arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Compare every stack, or those that *arguments* name."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(f"{__doc__}\n")
        return NONE
    try:
        terraform = terraform_binary(environ)
    except InputError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return FAILED
    # As deep below the checkout as cdktf.out: commands of a stack are relative to its folder.
    with tempfile.TemporaryDirectory(prefix="drift.", dir=".") as folder:
        stacks = synthesise(Path(folder).resolve(), environ)
        if unknown := sorted(set(arguments) - {path.name for path in stacks}):
            known = ", ".join(path.name for path in stacks) or "none"
            sys.stderr.write(
                f"error: no stack {', '.join(unknown)}\nhint: the stacks are {known}\n"
            )
            return FAILED
        comparisons = [
            compare(path, terraform, environ)
            for path in stacks
            if not arguments or path.name in arguments
        ]
    sys.stdout.write(report(comparisons))
    return max((comparison.code for comparison in comparisons), default=FAILED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
