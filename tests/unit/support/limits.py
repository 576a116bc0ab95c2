"""Limits of what is done with input that others wrote: a minute, and 512 MiB in addition to what the process has."""

import os
import re
from contextlib import contextmanager
from pathlib import Path

LONGEST_S = 60.0  # of CPU time, also of ended children; what has no bound takes hours
MOST_MIB = 512
_STATUS, _PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _mebibytes(name):
    return int(re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text())[1]) / 1024


def _cpu_s():
    return sum(os.times()[:4])


class Peak:
    """Peak memory of this process since the start of the measurement, in MiB, in addition to what it had."""

    def __init__(self):
        _PEAK.write_text("5")
        self._before = _mebibytes("VmRSS")

    def mebibytes(self):
        return _mebibytes("VmHWM") - self._before


@contextmanager
def within_limits():
    """Fails if the block takes more time or memory."""
    peak, began = Peak(), _cpu_s()
    yield
    took, used = _cpu_s() - began, peak.mebibytes()
    assert took < LONGEST_S, f"{took:.1f} s"
    assert used < MOST_MIB, f"{used:.0f} MiB"
