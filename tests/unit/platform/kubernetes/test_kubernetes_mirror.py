"""RequestMirror filters on the users' HTTPRoute: which are written, what a gateway must support, the restore."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kubernetes_route import opened, ref, route

from mpctl.errors import Conflict, Refused
from mpctl.platform.kubernetes.httproute import specs

OWN = {"type": "RequestMirror", "requestMirror": {"backendRef": ref("audit", 1)}}
HEADER = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {"add": [{"name": "a", "value": "b"}]},
}


def copies(spec, rule=0):
    return [
        one["requestMirror"]
        for one in spec["rules"][rule].get("filters", [])
        if one["type"] == "RequestMirror"
    ]


@pytest.mark.parametrize(("percent", "share"), [(100, {}), (50, {"percent": 50})])
def test_a_mirror_is_one_filter_more_and_changes_nothing_else(percent, share):
    actual_route = route([ref()], [ref("else")])
    actual_route["spec"]["rules"][0]["filters"] = [HEADER]
    before = copy.deepcopy(actual_route)
    spec = specs.mirrored(actual_route, "demo", "demo-candidate", percent)
    backend = {"group": "", "kind": "Service", "name": "demo-candidate-predictor", "port": 80}
    assert copies(spec) == [{"backendRef": backend, **share}]
    assert spec["rules"][0]["filters"][0] == HEADER
    spec["rules"][0]["filters"].pop()
    assert spec == actual_route["spec"] == before["spec"]


@given(
    st.integers(1, 100),
    st.lists(st.sampled_from([[ref()], [ref("else")], [ref(), ref("else", 3)]]), min_size=1),
)
def test_every_rule_that_serves_users_gets_exactly_one(percent, rules):
    actual_route = route(*rules)
    spec = specs.mirrored(actual_route, "demo", "demo-candidate", percent)
    for index, refs in enumerate(rules):
        assert len(copies(spec, index)) == any(one["name"] == "demo-predictor" for one in refs)
        assert (
            spec["rules"][index]["backendRefs"]
            == actual_route["spec"]["rules"][index]["backendRefs"]
        )
    fields = {**actual_route, "spec": spec}
    assert specs.is_known_spec(fields, actual_route, "demo", "demo-candidate")
    assert set(specs.mirrors_of(fields, "demo-candidate-predictor")) <= {float(percent)}


def test_a_rule_that_serves_others_too_is_not_mirrored():
    specs.require_own_rules(route([ref(), ref("else", 0)], [ref("else")]), "demo", "route")
    with pytest.raises(Refused, match="a rule of it has other backends"):
        specs.require_own_rules(route([ref("else")], [ref(), ref("else", 9)]), "demo", "route")


def test_a_service_without_pods_is_refused_where_room_is_asked_for():
    specs.require_equal_load(100, 0, "route")


@pytest.mark.parametrize(
    ("percent", "filters", "needed"),
    [
        (100, [], {specs.MIRROR}),
        (50, [], {specs.MIRROR, specs.SHARE}),
        (100, [OWN], {specs.MIRROR, specs.SEVERAL}),
    ],
)
def test_the_features_that_a_gateway_needs(percent, filters, needed):
    actual_route = route()
    actual_route["spec"]["rules"][0]["filters"] = filters
    assert set(specs.needed_features(actual_route, "demo", percent)) == needed


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([{"name": specs.MIRROR}, {"name": specs.SHARE}], ""),
        ([specs.MIRROR, specs.SHARE], ""),  # before Gateway API 1.3
        ([{"name": specs.MIRROR}], "GatewayClass gw lists no HTTPRouteRequestPercentageMirror"),
        ([], "GatewayClass gw does not list which features it supports"),
    ],
)
def test_a_gateway_that_cannot_mirror_is_refused_by_name(listed, said):
    fields = {"metadata": {"name": "gw"}, "status": {"supportedFeatures": listed}}
    needed = (specs.MIRROR, specs.SHARE)
    if not said:
        specs.require_supported(needed, [fields], "HTTPRoute ns/users")
        return
    with pytest.raises(Refused, match=said) as caught:
        specs.require_supported(needed, [fields], "HTTPRoute ns/users")
    assert "--traffic-steps" in caught.value.hint


@pytest.mark.parametrize(
    ("percent", "pods", "most"), [(100, 1, None), (50, 2, None), (51, 2, 50), (100, 3, 33)]
)
def test_copies_may_load_the_candidate_no_more_than_a_serving_pod(percent, pods, most):
    if most is None:
        specs.require_equal_load(percent, pods, "service")
        return
    with pytest.raises(Refused) as caught:
        specs.require_equal_load(percent, pods, "service")
    assert caught.value.hint == f"--mirror {most}"


def test_a_mirror_is_written_once_and_the_route_put_back_exactly():
    api, users = opened()
    before = copy.deepcopy(api.found["spec"])
    record = users.record(None)
    for _ in range(2):
        users.mirror(record, 50)
        users.require_mirrored(record, 50)
    assert len(api.writes) == 1
    assert users.share_texts() == ("copies of 50 %", "100 %")
    with pytest.raises(Conflict, match="gives Service demo-candidate-predictor traffic"):
        users.require_idle()
    users.shift(record, 10)  # the first traffic step ends it
    assert copies(api.found["spec"]) == []
    users.mirror(record, 50)
    assert users.restore(record) == ()
    assert api.found["spec"] == before
    users.require_idle()


def test_a_foreign_change_of_a_mirrored_route_is_named_and_kept():
    api, users = opened()
    record = users.record(None)
    users.mirror(record, 50)
    spec = copy.deepcopy(api.found["spec"])
    spec["hostnames"] = ["more"]
    api.edit(spec)
    with pytest.raises(Conflict, match="changed by somebody"):
        users.require_mirrored(record, 50)
    with pytest.raises(Conflict, match="gives Service demo-candidate-predictor traffic"):
        users.restore(record)


def test_a_route_that_copies_to_the_candidates_service_already_is_refused():
    actual_route = route()
    actual_route["spec"]["rules"][0]["filters"] = [
        {"type": "RequestMirror", "requestMirror": {"backendRef": ref("demo-candidate-predictor")}}
    ]
    _, users = opened(actual_route)
    with pytest.raises(Refused, match="which exists only during rollouts"):
        users.record(None)
