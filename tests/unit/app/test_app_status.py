"""The status of several services: one that cannot be read does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mpctl.app.session.open import statuses_of
from mpctl.app.session.service_status import Status
from mpctl.errors import MpctlError, Tampered

GOOD = Status(
    "ml", "qwen", "none", 1, "http://qwen", None, (), None, None, supervised=True, problems=()
)


@dataclass(frozen=True)
class Session:
    name: str
    error: MpctlError | None = None
    namespace: str = "ml"

    def status(self) -> Status:
        if self.error is not None:
            raise self.error
        return replace(GOOD, name=self.name)


TAMPERED = Session(
    "llama",
    Tampered("entry 3 of the ledger is missing or forged", hint="mpctl unlock llama --force"),
)


def test_a_service_whose_ledger_was_tampered_with_does_not_hide_the_others():
    good, unread = statuses_of([Session("qwen"), TAMPERED])
    assert good == GOOD
    assert unread.name == "llama"
    assert unread.state == "Unknown"
    assert unread.problems == (
        "tampering: entry 3 of the ledger is missing or forged (mpctl unlock llama --force)",
    )
    assert unread.to_record()["status"]["problems"] == list(unread.problems)


def test_the_only_service_fails_with_its_own_error_and_exit_code():
    with pytest.raises(Tampered):
        statuses_of([TAMPERED])
