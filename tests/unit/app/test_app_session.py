"""How long an engine may take: as asked, else ten minutes, in a cluster at least three starts measured there."""

from types import SimpleNamespace

import pytest

from mpctl.app.session.cluster import ClusterSession
from mpctl.app.session.local import LocalSession


def cluster(measured):
    session = ClusterSession.__new__(ClusterSession)
    session._platform = SimpleNamespace(cold_start_s=measured)
    return session


def never():
    raise AssertionError("nothing is read when a time is asked for")


@pytest.mark.parametrize(("measured", "waited"), [(None, 600), (12, 600), (200, 600), (420, 1260)])
def test_a_cluster_is_waited_for_three_of_its_own_starts(measured, waited):
    assert cluster(lambda: measured).ready_timeout_s(None) == waited


def test_what_is_asked_for_wins():
    assert cluster(never).ready_timeout_s(30.0) == 30
    assert LocalSession.__new__(LocalSession).ready_timeout_s(30.0) == 30


def test_on_this_machine_it_is_ten_minutes():
    assert LocalSession.__new__(LocalSession).ready_timeout_s(None) == 600
