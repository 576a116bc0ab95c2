"""The canonical text of an InferenceService: stable, exact in both directions, and what is made from it."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError, Refused
from mpctl.platform.kubernetes.api.objects import last_editor
from mpctl.platform.kubernetes.service.manifest_text import (
    LAST_APPLIED,
    candidate_of,
    object_of,
    object_to_write,
    text_of,
    transition_text,
    with_transition_strategy,
)


def service(**predictor):
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "demo",
            "namespace": "team",
            "uid": "u-1",
            "resourceVersion": "7",
            "generation": 3,
            "creationTimestamp": "2026-11-21T00:00:00Z",
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "time": "2026-11-21T00:00:00Z"}
            ],
            "finalizers": ["inferenceservice.finalizers"],
            "labels": {"team": "a"},
            "annotations": {LAST_APPLIED: "{}", "serving.kserve.io/autoscalerClass": "external"},
        },
        "spec": {
            "predictor": {
                "minReplicas": 2,
                "containers": [{"name": "kserve-container", "args": ["x"]}],
                **predictor,
            }
        },
        "status": {"url": "http://demo"},
    }


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(max_size=20)
    | st.floats(-1e6, 1e6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(values, st.text(max_size=40))
def test_writing_a_text_and_reading_it_again_gives_the_same_bytes(value, argument):
    live = service(extra=value, containers=[{"name": "kserve-container", "args": [argument]}])
    text = text_of(live)
    written = object_to_write(text, live)
    assert text_of({**written, "status": {"new": True}}) == text
    assert object_of(text)["spec"] == live["spec"]


@pytest.mark.parametrize(
    "tricky",
    ["1:30", "yes", "0o17", "1e3", "2026-11-21", "~", "- a", "a: b", "#c", "\u2028", "null", " "],
)
def test_texts_that_yaml_would_take_for_something_else_stay_texts(tricky):
    live = service(containers=[{"name": "kserve-container", "args": [tricky]}])
    assert object_of(text_of(live))["spec"] == live["spec"]


def test_what_only_the_server_writes_is_no_part_of_the_text():
    text = text_of(service())
    record = yaml.safe_load(text)
    assert set(record) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(record["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert LAST_APPLIED not in text
    later = service()
    later["metadata"] |= {"resourceVersion": "99", "generation": 9}
    later["status"] = {}
    assert text_of(later) == text


def test_order_of_keys_does_not_matter():
    live = service()
    turned = {k: live[k] for k in reversed(list(live))}
    assert text_of(turned) == text_of(live)


def test_a_write_keeps_what_is_not_ours_and_is_conditional():
    live = service()
    written = object_to_write(text_of(live), live)
    assert written["metadata"]["resourceVersion"] == "7"
    assert written["metadata"]["uid"] == "u-1"
    assert written["metadata"]["finalizers"] == ["inferenceservice.finalizers"]
    assert written["metadata"]["annotations"][LAST_APPLIED] == "{}"
    assert "managedFields" not in written["metadata"]


def test_a_candidate_is_one_pod_of_its_own_that_nothing_scales():
    text = text_of(service(maxReplicas=5, scaleTarget=3))
    candidate = candidate_of(text, "arm-1", namespace="team")
    assert candidate["metadata"]["name"] == "demo-candidate"
    assert candidate["metadata"]["labels"] == {"team": "a", "mpctl.dev/service": "demo"}
    assert candidate["metadata"]["annotations"] == {
        "serving.kserve.io/autoscalerClass": "none",
        "mpctl.dev/arm": "arm-1",
    }
    predictor = candidate["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 1)
    assert "scaleTarget" not in predictor
    assert predictor["containers"] == service()["spec"]["predictor"]["containers"]


def test_a_candidate_carries_no_trace_of_who_deployed_the_service():
    live = service()
    live["metadata"]["labels"] |= {
        "app.kubernetes.io/instance": "app",
        "kustomize.toolkit.fluxcd.io/name": "apps",
    }
    live["metadata"]["annotations"] |= {
        "argocd.argoproj.io/tracking-id": "a:b/C:d/e",
        "meta.helm.sh/release-name": "r",
    }
    candidate = candidate_of(text_of(live), "arm-1", namespace="team")
    assert set(candidate["metadata"]["labels"]) == {"team", "mpctl.dev/service"}
    assert set(candidate["metadata"]["annotations"]) == {
        "serving.kserve.io/autoscalerClass",
        "mpctl.dev/arm",
    }


def test_a_candidate_stays_in_the_scheduling_group():
    group = {"podGroupName": "team"}
    candidate = candidate_of(text_of(service(schedulingGroup=group)), "arm-1", namespace="team")
    assert candidate["spec"]["predictor"]["schedulingGroup"] == group


def test_a_claim_by_name_would_be_shared():
    text = text_of(service(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]))
    with pytest.raises(Refused, match="ResourceClaim mine by name"):
        candidate_of(text, "arm-1", namespace="team")


RECREATE = {"type": "Recreate"}
ONE_OFF = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


@pytest.mark.parametrize(
    ("strategy", "replicas", "downtime", "needed"),
    [
        (None, 1, False, False),  # KServe's default: 25 % of one pod is none
        (None, 1, True, True),  # it would wait for a second GPU for ever
        (None, 8, True, False),  # two pods may go first
        (RECREATE, 1, False, True),
        (RECREATE, 1, True, False),
        (ONE_OFF, 1, False, True),
        (ONE_OFF, 2, False, False),
        (ONE_OFF, 1, True, False),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, 1, False, True),
        ({"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "0%"}}, 3, False, False),
    ],
)
def test_a_strategy_is_only_set_where_the_services_own_would_not_do(
    strategy, replicas, downtime, needed
):
    text = text_of(service(**({} if strategy is None else {"deploymentStrategy": strategy})))
    actual_transition_text = transition_text(text, replicas, downtime=downtime)
    assert (actual_transition_text != text) is needed
    if needed:
        assert actual_transition_text == with_transition_strategy(text, downtime=downtime)
        wanted, actual_object = object_of(text), object_of(actual_transition_text)
        actual_object["spec"]["predictor"].pop("deploymentStrategy")
        wanted["spec"]["predictor"].pop("deploymentStrategy", None)
        assert actual_object == wanted


def test_who_edited_is_read_from_managed_fields():
    now = service()
    now["metadata"]["managedFields"] += [
        {"manager": "mpctl", "operation": "Update", "time": "2026-11-21T00:02:00Z"},
        {"manager": "argocd", "operation": "Apply", "time": "2026-11-21T00:03:00Z"},
        {
            "manager": "kserve",
            "operation": "Update",
            "time": "2026-11-21T00:04:00Z",
            "subresource": "status",
        },
    ]
    assert last_editor(now, "mpctl") == "argocd at 2026-11-21T00:03:00Z"
    now["metadata"]["managedFields"] = now["metadata"]["managedFields"][-3:-2]
    assert last_editor(now, "mpctl") == "another client"


def test_a_text_that_is_none_is_refused():
    with pytest.raises(InputError):
        object_of("a: [")
    with pytest.raises(InputError):
        object_of("kind: Pod")
