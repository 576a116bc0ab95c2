"""Checks shared by tests of errors: nothing changed, and the error names its object and the next step."""

import time
from contextlib import contextmanager

# Written by whoever looks or tries; no state.
_TRACES = {
    "lease.lock",
    "lease.json",
    "desired.lock",
    "supervisor.lock",
    "supervisor.log",
    "observed.json",
}


def snapshot(mpctl):
    """The contents of every state file, and the engines."""
    files = {
        str(p.relative_to(mpctl.state)): p.read_bytes()
        for p in mpctl.state.rglob("*")
        if p.is_file() and p.name not in _TRACES and p.suffix != ".log"
    }
    return files, sorted(p.pid for p in mpctl.engines())


@contextmanager
def unchanged(mpctl):
    before = snapshot(mpctl)
    yield
    assert snapshot(mpctl) == before


def said(done, *parts):
    """Check that the error line holds the parts, a hint follows, and there is no stack trace."""
    error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    for part in parts:
        assert part in done.stderr, f"{part!r} is missing from {done.stderr!r}"
    assert "hint: " in done.stderr[done.stderr.index(error) :]
    assert "Traceback" not in done.stderr


def wait_for(condition, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
