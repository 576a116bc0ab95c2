"""How long an engine on this machine may take."""

import pytest

from mpctl.local.session import LocalSession


@pytest.mark.parametrize(("asked", "waited"), [(None, 600), (30.0, 30)])
def test_ten_minutes_unless_another_time_is_asked_for(asked, waited):
    assert LocalSession.__new__(LocalSession).ready_timeout_s(asked) == waited
