"""Says once what is missing, instead of one skip for each test."""

from __future__ import annotations

import pytest

from tests.stacks.conftest import missing


def test_the_tools_of_these_tests_are_here() -> None:
    if reason := missing():
        pytest.skip(reason)
