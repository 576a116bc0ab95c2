"""Lanes and shared fixtures, for whichever tests are named."""

pytest_plugins = ("tests.lanes", "tests.cluster.fixtures")
