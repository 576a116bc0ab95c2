"""A rollout asks each fact once, also for its prediction."""

from collections import Counter

from session import MemorySession

from mpctl.app.operate import rollout
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
    "ownership_warning",
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
