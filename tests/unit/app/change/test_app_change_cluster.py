"""Facts of the cluster that a change needs: the GPU where a rule decides by it, and what a dry run stores."""

import pytest
from session import MemorySession

from mpctl.app.change.change import prepare
from mpctl.app.operate import rollout
from mpctl.app.requests import RolloutRequest, SpeculationRequest
from mpctl.errors import Refused
from mpctl.estimate.shape import find_gpu
from mpctl.lab.plan import service_plan
from mpctl.lab.requests import PlanRequest
from mpctl.platform.kubernetes.gpu_capacity import gpu_products

ADAPTIVE = SpeculationRequest(
    method="eagle3",
    draft="org/head",
    settings=("enable_adaptive_verification=true", "num_speculative_tokens=3"),
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


def test_a_known_fault_of_one_gpu_is_judged_by_the_gpu_of_the_nodes():
    request = SpeculationRequest(method="mtp", settings=("num_speculative_tokens=2",))
    ids = {
        gpu: {finding.id for finding in prepare(OnGpu(gpu), request).findings}
        for gpu in ("GB10", "L4")
    }
    assert "known-bad-kb88" in ids["GB10"]
    assert "known-bad-kb88" not in ids["L4"]


@pytest.mark.parametrize(
    ("gpu", "severity", "unknown"),
    [("L4", "refuse", False), ("H100-SXM", None, False), (None, "note", True)],
)
def test_adaptive_verification_is_judged_by_the_gpu_of_the_nodes(gpu, severity, unknown):
    checked = prepare(OnGpu(gpu), ADAPTIVE).checked
    severities = [
        finding.severity for finding in checked.findings if finding.id == "adaptive-verification"
    ]
    assert severities == ([] if severity is None else [severity])
    assert ("adaptive-verification: checked in part, unknown: gpu" in checked.unchecked) is unknown


@pytest.mark.parametrize(("request_", "asked"), [("none", 0), ("ngram", 0), ("eagle3", 1)])
def test_nodes_are_read_once_for_a_method_that_loads_weights(request_, asked):
    session = OnGpu("L4")
    prepare(
        session,
        SpeculationRequest(method=request_, draft="org/head" if request_ == "eagle3" else None),
    )
    assert session.asked == asked


def test_a_plan_takes_the_gpu_of_the_nodes_unless_one_is_named():
    plan = service_plan.run(
        OnGpu("L4"), PlanRequest(("ngram",), SpeculationRequest("ngram"), traffic="code")
    )
    assert plan.gpu == "L4"
    named = SpeculationRequest("ngram", gpu="H100-SXM")
    assert (
        service_plan.run(OnGpu("L4"), PlanRequest(("ngram",), named, traffic="code")).gpu
        == "H100-SXM"
    )


@pytest.mark.parametrize(
    ("label", "value", "gpu"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-L4", "L4"),
        ("cloud.google.com/gke-accelerator", "nvidia-l4", "L4"),
        ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb", "H100-SXM"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "A100-40GB-SXM"),
        ("karpenter.k8s.aws/instance-gpu-name", "l40s", "L40S"),
        ("eks.amazonaws.com/instance-gpu-name", "h200", "H200-SXM"),
    ],
)
def test_a_node_without_a_dra_driver_names_its_gpu_by_a_label(label, value, gpu):
    (product,) = gpu_products([{"metadata": {"name": "node", "labels": {label: value}}}], [])[
        "node"
    ]
    assert find_gpu(product).name == gpu


def test_a_method_that_no_engine_runs_is_refused_by_that_and_lists_no_drafts():
    with pytest.raises(Refused, match="no vLLM runs mlp_speculator: it ended with the V0 engine"):
        prepare(MemorySession(), SpeculationRequest("mlp_speculator"))


def test_a_key_that_the_engine_exits_on_is_refused():
    change = prepare(
        MemorySession(), SpeculationRequest("ngram", settings=("num_speculative_token=3",))
    )
    assert [finding.id for finding in change.refusals] == ["unknown-key"]
    speculation_request = SpeculationRequest(
        "ngram", settings=("num_speculative_token=3",), accepted=("unknown-key",)
    )
    assert prepare(MemorySession(), speculation_request).refusals == ()


class Dropping(MemorySession):
    """A cluster whose webhook owns the engine's arguments: the dry run answers with the manifest as it is."""

    def with_speculation(self, config, edit=None):
        return self.text()


def test_a_change_that_the_api_server_drops_is_refused_and_not_taken_for_done():
    session = Dropping()
    dropped = r"the API server drops the change to ngram .* with none, as it is now"
    with pytest.raises(Refused, match=dropped) as refused:
        rollout.run(session, RolloutRequest(SpeculationRequest("ngram")))
    assert "kubectl get mutatingwebhookconfigurations" in refused.value.hint
    assert not session.memory.disk.ledger


def test_speculation_that_a_webhook_keeps_on_is_not_taken_for_off():
    session = Dropping()
    text = session.memory.disk.text
    session.memory.disk.text = text.replace(
        "- --max-model-len=8192",
        '- --max-model-len=8192\n      - \'--speculative-config={"method": "ngram"}\'',
    )
    with pytest.raises(
        Refused, match="drops the change to none: its dry run stores the manifest with ngram"
    ):
        rollout.run(session, RolloutRequest(SpeculationRequest("none")))
