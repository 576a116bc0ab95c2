"""Virtual time for one process: sleeping moves the clock, and with every second of it the controllers act once.

Install it before anything of mpctl is imported: defaults such as ``sleep=time.sleep`` are bound then. Waits on locks
and events keep real time, since their modules are imported here first.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import queue
import threading
import time

real_monotonic = time.monotonic
_LIBRARIES = (concurrent.futures, queue, threading)  # bound to real time
_BEGIN_S = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
_TICK_S = 1.0
_Real = datetime.datetime


class Clock:
    """Seconds since the process began. ``tick`` is called for every second that passes in a sleep."""

    def __init__(self):
        self.passed_s = 0.0
        self.tick = lambda: None

    def monotonic(self, _clock=None):
        return self.passed_s

    def time(self):
        return _BEGIN_S + self.passed_s

    def sleep(self, seconds):
        end = self.passed_s + max(seconds, 0.0)
        while self.passed_s < end:
            before, self.passed_s = self.passed_s, min(end, self.passed_s + _TICK_S)
            if int(before / _TICK_S) != int(self.passed_s / _TICK_S):
                self.tick()


clock = Clock()


class _Instances(type):
    def __instancecheck__(cls, value):
        return isinstance(value, _Real)


class _Datetime(_Real, metaclass=_Instances):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(clock.time(), tz)


def install():
    """Replace the clocks of ``time`` and ``datetime``."""
    time.sleep, time.time = clock.sleep, clock.time
    time.monotonic = time.perf_counter = time.clock_gettime = clock.monotonic
    datetime.datetime = _Datetime
