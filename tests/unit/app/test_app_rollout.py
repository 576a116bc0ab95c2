"""A rollout asks each fact once, also for its prediction."""

from collections import Counter
from dataclasses import replace

import pytest
from session import MemorySession

from mpctl.app.operate import rollout, rollout_known
from mpctl.app.requests import DryRun, MeasurementRequest, RolloutRequest, SpeculationRequest

ASKED = RolloutRequest(
    SpeculationRequest("ngram"), MeasurementRequest(rounds=5, requests=4), dry_run=DryRun.SERVER
)
# On a cluster, an edit is a dry run at the server, and each of the others reads objects, logs or files.
QUESTIONS = (
    "with_speculation",
    "engine_version",
    "target_of",
    "model_facts",
    "path_findings",
    "warn_of_owner",
    "holder",
)


class PlacementWishes(MemorySession):
    """A session that counts what it is asked."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __getattribute__(self, name):
        if name in QUESTIONS:
            self.count[name] += 1
        return super().__getattribute__(name)


def test_the_manifest_with_the_change_is_asked_for_once_before_a_rollout():
    session = PlacementWishes()
    assert rollout.run(session, ASKED).preview is not None
    assert session.count.pop("model_facts") == 2  # of the target and of no draft
    assert session.count == dict.fromkeys(set(QUESTIONS) - {"model_facts"}, 1)


def spoken(session, spec, hits, **measurement):
    """The classes of a rollout on a service whose users got ``hits`` of 1,000 prompt tokens from the prefix cache."""
    disk = session.memory.disk
    engine = disk.engines[disk.routed]
    counters = replace(engine.counters, prefix_queries=1000.0, prefix_hits=float(hits))
    disk.engines[disk.routed] = replace(engine, counters=counters)
    request = RolloutRequest(
        SpeculationRequest(spec, draft="head"), MeasurementRequest(**measurement)
    )
    made = rollout_known.with_users_prompts(session, request, None, session.counters())
    return made.measurement.prompts


@pytest.mark.parametrize(
    ("spec", "hits", "measurement", "prompts"),
    [
        ("eagle3", 630, {}, ("conversations",)),
        ("eagle3", 190, {}, ()),  # few hits
        ("ngram", 630, {}, ()),  # reads no hidden states, which is what costs hits
        ("eagle3", 630, {"prompts": ("edits",)}, ("edits",)),
        ("eagle3", 630, {"warm": False}, ()),
    ],
)
def test_users_who_live_from_the_cache_are_measured_by_conversations(
    spec, hits, measurement, prompts
):
    session = MemorySession()
    assert spoken(session, spec, hits, **measurement) == prompts
    said = [line for line in session.console.lines if "63% of their prompts" in line]
    assert len(said) == (prompts == ("conversations",))
