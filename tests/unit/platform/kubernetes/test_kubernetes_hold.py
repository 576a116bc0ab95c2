"""KServe's own autoscaler is held through the service: the pin is never read as a change, and never lost by a write."""

from __future__ import annotations

import pytest
from test_kubernetes_platform import Cluster, deployment, pod, service

from mpctl.platform.kubernetes.api.replies import Stale
from mpctl.platform.kubernetes.autoscaler import _item
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.service.manifest_text import text_of, with_transition_strategy
from mpctl.rollout.ports import Arm


def limited(**limits):
    actual_service = service()
    actual_service["spec"]["predictor"] |= limits
    return actual_service


def hpa(low, high, *, owner="serving.kserve.io/v1beta1"):
    owners = [{"apiVersion": owner, "kind": "InferenceService", "name": "demo", "uid": "u1"}]
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "demo-predictor", "uid": "h", "ownerReferences": owners},
        "spec": {
            "scaleTargetRef": {"name": "demo-predictor"},
            "minReplicas": low,
            "maxReplicas": high,
        },
    }


def opened(*things, held=lambda: None):
    cluster = Cluster(*things)
    return KubernetesPlatform(
        cluster, "ns", "demo", sleep=lambda _: None, recorded_scaling=held
    ), cluster


def limits(cluster):
    predictor = cluster.things["InferenceService", "demo"]["spec"]["predictor"]
    return {k: v for k, v in predictor.items() if k.endswith("Replicas")}


@pytest.mark.parametrize("written", [{"minReplicas": 1, "maxReplicas": 3}, {"maxReplicas": 3}, {}])
def test_it_is_pinned_in_the_service_and_the_pin_is_not_read(written):
    platform, cluster = opened(
        limited(**written), deployment(replicas=2, ready=2), pod(), hpa(1, 3)
    )
    before = platform.read()
    scaling = platform.scaling()
    assert [i["kind"] for i in scaling["items"]] == ["InferenceService"]
    platform.scaler.pin(scaling)
    assert limits(cluster) == {"minReplicas": 2, "maxReplicas": 2}
    assert (
        cluster.things["HorizontalPodAutoscaler", "demo-predictor"]["spec"]["maxReplicas"] == 3
    )  # KServe's to write
    assert platform.read().text == before.text
    assert platform.scaler.unpin(scaling) == ()
    assert limits(cluster) == written
    assert text_of(cluster.things["InferenceService", "demo"]) == before.text


def test_a_later_command_reads_without_the_pin_and_writes_with_it():
    first, cluster = opened(limited(minReplicas=1, maxReplicas=3), deployment(), pod(), hpa(1, 3))
    before, scaling = first.read(), {**first.scaling(), "replicas": 2}
    first.scaler.pin(scaling)
    counts = []
    later = KubernetesPlatform(
        cluster,
        "ns",
        "demo",
        sleep=lambda _: None,
        recorded_scaling=lambda: counts.append(1) or scaling,
    )
    assert later.read().text == before.text
    other = before.text.replace("--model=m", "--model=n")
    later.promote(Arm(other), expect=(Arm(before.text),))
    assert limits(cluster) == {"minReplicas": 2, "maxReplicas": 2}
    assert later.read().text in (other, with_transition_strategy(other, downtime=False))
    later.restore_strategy(Arm(other))
    later.scaler.unpin(scaling)
    assert text_of(cluster.things["InferenceService", "demo"]) == other
    assert counts == [1]


def test_freed_and_grown_it_is_held_again_at_its_size_and_put_back():
    first, cluster = opened(
        limited(minReplicas=1, maxReplicas=8), deployment(replicas=2, ready=2), pod(), hpa(1, 8)
    )
    before, scaling = first.read(), first.scaling()
    first.scaler.pin(scaling)
    first.scaler.unpin(scaling)
    cluster.things["Deployment", "demo-predictor"]["spec"]["replicas"] = 6
    later = KubernetesPlatform(
        cluster, "ns", "demo", sleep=lambda _: None, recorded_scaling=lambda: scaling
    )
    grown = {**scaling, "replicas": later.scaling()["replicas"]}
    assert grown["replicas"] == 6
    assert later.scaler.unpin(scaling) == ()
    later.scaler.pin(grown)
    assert limits(cluster) == {"minReplicas": 6, "maxReplicas": 6}
    assert later.read().text == before.text
    later.promote(Arm(before.text.replace("--model=m", "--model=n")), expect=(Arm(before.text),))
    assert limits(cluster) == {"minReplicas": 6, "maxReplicas": 6}
    assert later.scaler.unpin(grown) == ()
    assert limits(cluster) == {"minReplicas": 1, "maxReplicas": 8}


def test_limits_that_somebody_else_wrote_meanwhile_are_seen_and_left():
    platform, cluster = opened(
        limited(minReplicas=1, maxReplicas=3), deployment(), pod(), hpa(1, 3)
    )
    before, scaling = platform.read(), {**platform.scaling(), "replicas": 2}
    platform.scaler.pin(scaling)
    cluster.things["InferenceService", "demo"]["spec"]["predictor"] |= {
        "minReplicas": 4,
        "maxReplicas": 4,
    }
    assert platform.read().text != before.text
    (told,) = platform.scaler.unpin(scaling)
    assert "was changed meanwhile" in told
    assert limits(cluster) == {"minReplicas": 4, "maxReplicas": 4}


def test_one_that_cannot_scale_is_left_alone_and_no_ledger_is_asked_for():
    def never():
        raise AssertionError("the limits differ, so nothing can be pinned")

    platform, _ = opened(
        limited(minReplicas=1, maxReplicas=2), deployment(), pod(), hpa(1, 1), held=never
    )
    assert platform.scaling() is None
    platform.read()


def test_somebody_elses_autoscaler_is_pinned_itself():
    platform, _ = opened(limited(), deployment(), pod(), hpa(1, 3, owner="example.com/v1"))
    assert [i["kind"] for i in platform.scaling()["items"]] == ["HorizontalPodAutoscaler"]


def edited_by(record, manager):
    record["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Update", "time": "2026-11-23T08:00:00Z"}
    ]
    return record


def test_a_change_of_another_writer_is_described_with_its_name_time_and_fields():
    platform, cluster = opened(service(), deployment(), pod())
    known = (Arm(platform.read().text),)
    assert platform.describe_foreign_change(known) is None
    edited = edited_by(service(), "kubectl-label")
    edited["metadata"]["labels"] = {"owner": "search"}
    cluster.things["InferenceService", "demo"] = edited
    change = platform.describe_foreign_change(known)
    assert change.startswith(
        "service ns/demo was changed by kubectl-label at 2026-11-23T08:00:00Z meanwhile: metadata.labels"
    )
    del cluster.things["InferenceService", "demo"]
    assert platform.describe_foreign_change(known) == "service ns/demo was deleted"


def test_a_change_of_a_pinned_autoscaler_is_described():
    actual_hpa = hpa(1, 2)
    actual_hpa["metadata"] |= {"name": "theirs", "ownerReferences": []}
    platform, cluster = opened(service(), deployment(), pod(), actual_hpa)
    known, scaling = (Arm(platform.read().text),), platform.scaling()
    platform.scaler.pin(scaling)
    assert platform.describe_foreign_change(known, scaling) is None
    changed = edited_by(cluster.things["HorizontalPodAutoscaler", "theirs"], "somebody")
    changed["spec"]["maxReplicas"] = 3
    change = platform.describe_foreign_change(known, scaling)
    assert change.startswith(
        "HorizontalPodAutoscaler theirs was changed by somebody at 2026-11-23T08:00:00Z meanwhile: "
    )
    assert "maxReplicas 3" in change


class StaleOnce(Cluster):
    """Answers the first read of the autoscaler with what it was before, and refuses a write of an old version."""

    def __init__(self, before, *things):
        super().__init__(*things)
        self.before = [before]

    def get(self, kind, name, namespace=None):
        stale = kind.name == "HorizontalPodAutoscaler" and self.before
        return self.before.pop() if stale else super().get(kind, name, namespace)

    def replace(self, kind, body, *, dry_run=False):
        if body["metadata"].get("resourceVersion") != self.things[
            kind.name, body["metadata"]["name"]
        ]["metadata"].get("resourceVersion"):
            raise Stale("it was modified")
        return super().replace(kind, body, dry_run=dry_run)


def test_an_unpin_that_reads_the_autoscaler_as_it_was_before_the_pin_unpins_it_all_the_same():
    before, pinned = hpa(1, 3, owner="team/v1"), hpa(2, 2, owner="team/v1")
    before["metadata"]["resourceVersion"], pinned["metadata"]["resourceVersion"] = "1", "2"
    cluster = StaleOnce(before, service(), deployment(replicas=2, ready=2), pod(), pinned)
    scaling = {"replicas": 2, "items": [_item(before)]}
    assert KubernetesPlatform(cluster, "ns", "demo").scaler.unpin(scaling) == ()
    assert cluster.things["HorizontalPodAutoscaler", "demo-predictor"]["spec"]["maxReplicas"] == 3
