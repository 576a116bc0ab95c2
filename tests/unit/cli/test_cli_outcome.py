"""How an operation ended, as an exit code; who asks."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace

import pytest

from mpctl.app.session import base
from mpctl.cli import outcome
from mpctl.errors import MpctlError, RolledBack
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
