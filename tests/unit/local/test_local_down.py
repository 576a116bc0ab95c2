"""``mpctl local down``: a service that cannot be stopped does not keep the others running."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mpctl import commands
from mpctl.app.session.base import Place
from mpctl.errors import Conflict
from mpctl.local import services as module
from mpctl.local.requests import LocalDownRequest


class Service:
    """A service of this machine; ``held``: another command changes it, ``unfinished``: an operation is open."""

    def __init__(self, name, *, held=False, unfinished=False):
        self.name, self.title, self.stopped, self.held = name, f"service chat/{name}", False, held
        self.platform = SimpleNamespace(remove=self.remove)
        self.store = SimpleNamespace(entries=lambda: unfinished, lease=self.lease)

    def command(self, verb):
        return commands.line(verb, self.name, namespace="chat")

    def remove(self):
        self.stopped = True

    @contextmanager
    def lease(self, purpose):
        if self.held:
            raise Conflict(f"{self.title} is held", hint="wait")
        yield


@pytest.fixture
def down(monkeypatch):
    def run(*services, **asked):
        monkeypatch.setattr(module, "local_sessions", lambda place, console: list(services))
        monkeypatch.setattr(module, "stop_orphans", lambda: ("orphan",))
        monkeypatch.setattr(
            module,
            "unfinished_operation",
            lambda entries: SimpleNamespace(id="rollout-1") if entries else None,
        )
        return module.down(Place(), None, LocalDownRequest(every=True, **asked))

    return run


@pytest.mark.parametrize("held", [("a",), ("a", "c"), ()])
def test_a_service_that_another_command_holds_does_not_keep_the_others_running(down, held):
    services = [Service(name, held=name in held) for name in "abc"]
    stopped = down(*services, orphans=True)
    assert [s.name for s in services if not s.stopped] == list(held)
    assert stopped.titles == tuple(s.title for s in services if s.stopped)
    assert stopped.orphans == ("orphan",)
    if not held:
        stopped.require_all()
        return
    with pytest.raises(Conflict) as caught:
        stopped.require_all()
    assert caught.value.message == "; ".join(f"service chat/{name} is held" for name in held)


def test_an_unfinished_operation_keeps_its_service_running_unless_forced(down):
    services = [Service("a", unfinished=True), Service("b")]
    (conflict,) = down(*services).conflicts
    assert [s.stopped for s in services] == [False, True]
    assert conflict.message == "rollout-1 of service chat/a is unfinished"
    assert down(services[0], force=True).conflicts == ()
    assert services[0].stopped
