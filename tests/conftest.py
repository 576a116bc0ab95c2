"""Lanes and shared fixtures, for whichever tests are named."""

import pytest

from mpctl import commands

pytest_plugins = ("tests.lanes", "tests.cluster.fixtures")


@pytest.fixture(autouse=True)
def _own_reader(monkeypatch):
    """A command line that a test runs in this process chooses how messages print commands, for that test alone."""
    monkeypatch.setattr(commands, "_reader", commands.Reader())
