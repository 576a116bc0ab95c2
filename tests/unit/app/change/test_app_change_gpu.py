"""The GPU is read from where the engine runs, when a rule decides by it and nobody named it."""

import pytest
from session import MemorySession

from mpctl.app.change.prepare import prepare
from mpctl.app.requests import SpeculationRequest

ADAPTIVE = SpeculationRequest(
    method="eagle3", draft="org/head", settings=("enable_adaptive_verification=true", "num_speculative_tokens=3")
)


class OnGpu(MemorySession):
    def __init__(self, gpu):
        super().__init__()
        self._gpu, self.asked = gpu, 0

    def gpu(self):
        self.asked += 1
        return self._gpu

    def engine_version(self, _service):
        return "0.33.0"


@pytest.mark.parametrize(
    ("gpu", "severity", "unknown"), [("L4", "refuse", False), ("H100-SXM", None, False), (None, "note", True)]
)
def test_adaptive_verification_is_judged_by_the_gpu_of_the_nodes(gpu, severity, unknown):
    checked = prepare(OnGpu(gpu), ADAPTIVE).checked
    severities = [finding.severity for finding in checked.findings if finding.id == "adaptive-verification"]
    assert severities == ([] if severity is None else [severity])
    assert ("adaptive-verification: checked in part, unknown: gpu" in checked.unchecked) is unknown


def test_no_node_is_read_when_no_rule_needs_the_gpu():
    session = OnGpu("L4")
    prepare(session, SpeculationRequest(method="eagle3", draft="org/head"))
    assert session.asked == 0
