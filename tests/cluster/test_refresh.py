"""A stale head trained anew with the real Job controller: killed after every entry and object, never a second Job."""

import pytest

from .test_training_job import TRAINER, demo, planted_objects, traffic, volume

__all__ = ["demo", "traffic", "volume"]  # fixtures


@pytest.mark.usefixtures("demo", "volume")
def test_a_refresh_killed_after_each_entry_and_object_is_continued_without_a_second_job(
    namespace, mpctl, traffic
):
    """Entries: opened, reserve, train, and card with the end; objects: claim, ConfigMap, Job and the card's."""
    options = (str(traffic), TRAINER)
    for _ in range(7):
        mpctl(*options, code=-9, kill_after=1, killer="killed_refresh")
        mpctl("status", "demo")  # nothing that serves is under way
    done = mpctl(*options, kill_after=0, killer="killed_refresh")
    assert done.stdout.startswith("refresh-1 offered demo-1: tokens per step 3.10")
    assert namespace.jobs_made() == 1
    (refresh,) = mpctl.json("history", "demo")["operations"]
    assert (refresh["id"], refresh["ending"]) == ("refresh-1", "offered")
    assert planted_objects(namespace) == []
    assert "planted" not in done.stdout + done.stderr
