"""The name of the operator that a record keeps."""

from __future__ import annotations

import os
import re

import pytest

from mpctl.app.session import base


@pytest.mark.parametrize(
    "error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")]
)
def test_a_user_without_a_name_is_named_by_number(monkeypatch, error):
    def nameless():
        raise error

    monkeypatch.setattr(base.getpass, "getuser", nameless)
    assert re.fullmatch(rf"uid-{os.getuid()}@.+", base.who())
