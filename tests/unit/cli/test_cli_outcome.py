"""How an operation ended, as an exit code; who asks; and going down past what is unfinished."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mpctl.app.session import base, local
from mpctl.cli import outcome
from mpctl.errors import Conflict, MpctlError, RolledBack
from mpctl.platform.local import orphans
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Plan, Strategy

PLAN = Plan(kind=Kind.ROLLOUT, strategy=Strategy.IN_PLACE, baseline="a", text="b", spec="ngram")


def ended(**changes):
    return Operation("rollout-1", PLAN, "2026-01-01", "x", ending=Ending.FAILED, detail="boom", **changes)


def conclusion(operation):
    asked = SimpleNamespace(name="svc", title="service chat/svc", console=None)
    with pytest.raises(MpctlError) as caught:
        outcome._conclude(asked, operation)
    return caught.value


def test_failed_before_anything_was_changed_is_an_error_and_no_rollback():
    error = conclusion(ended())
    assert (type(error), error.exit_code) == (MpctlError, 1)
    assert error.message == "rollout-1 failed and service chat/svc was not changed: boom"


def test_failed_and_taken_back():
    error = conclusion(ended(done={"record": {"revision": 1}}))
    assert (type(error), error.exit_code) == (RolledBack, 7)
    assert error.message == "rollout-1 failed and service chat/svc was restored: boom"


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")])
def test_a_user_without_a_name_is_named_by_number(monkeypatch, error):
    def nameless():
        raise error

    monkeypatch.setattr(base.getpass, "getuser", nameless)
    assert re.fullmatch(rf"uid-{os.getuid()}@.+", base.who())


class Standing:
    """A service as ``local down`` sees it; ``held`` by another operator or not."""

    def __init__(self, name, *, held=False):
        self.name, self.title, self.down = name, f"service chat/{name}", False
        self.platform = SimpleNamespace(remove=self.remove)
        self.store = SimpleNamespace(entries=tuple, lease=self.lease)
        self.held = held

    def remove(self):
        self.down = True

    @contextmanager
    def lease(self, purpose):
        if self.held:
            raise Conflict(f"{self.title} is held", hint="wait")
        yield


@pytest.mark.parametrize("busy", [("a",), ("a", "c"), ()])
def test_down_all_goes_past_what_is_busy(cli, monkeypatch, busy):
    services = {name: Standing(name, held=name in busy) for name in "abc"}
    stopped = []
    monkeypatch.setattr(local, "known_services", lambda namespace: [("chat", name) for name in services])
    monkeypatch.setattr(local, "LocalSession", lambda namespace, name, console: services[name])
    monkeypatch.setattr(orphans, "stop_orphans", lambda: stopped.append(1) or ())
    done = cli("local", "down", "--all", "--orphans")
    assert [name for name, service in services.items() if not service.down] == list(busy)
    assert stopped == [1]
    assert done.code == (3 if busy else 0)
    for name, service in services.items():
        assert (f"{service.title} is held" if name in busy else f"{service.title} is down") in done.err


def test_down_all_goes_past_an_unfinished_operation(cli, monkeypatch):
    services = {name: Standing(name) for name in "ab"}
    services["a"].store.entries = lambda: "unfinished"
    monkeypatch.setattr(local, "known_services", lambda namespace: [("chat", name) for name in services])
    monkeypatch.setattr(local, "LocalSession", lambda namespace, name, console: services[name])
    monkeypatch.setattr(
        "mpctl.rollout.operation.open_operation",
        lambda entries: SimpleNamespace(id="rollout-1") if entries == "unfinished" else None,
    )
    done = cli("local", "down", "--all")
    assert [service.down for service in services.values()] == [False, True]
    assert done.code == 3
    assert "rollout-1 of service chat/a is unfinished" in done.err
