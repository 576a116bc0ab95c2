"""Weights on an HTTPRoute of the users': which route, which weights, what gateways say of it, and putting it back."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import Conflict, InputError, MpctlError, Refused
from mpctl.gate.users_traffic import equal_share
from mpctl.platform.kubernetes.api.replies import Stale
from mpctl.platform.kubernetes.httproute import router as routing
from mpctl.platform.kubernetes.httproute import specs as routes
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.httproute.specs import is_known_spec

OWNED = [{"kind": "InferenceService", "name": "demo", "controller": True}]
CONDITIONS = [
    {"type": kind, "status": "True", "observedGeneration": 1}
    for kind in ("Accepted", "ResolvedRefs")
]


def ref(name="demo-predictor", weight=1, **more):
    return {"group": "", "kind": "Service", "name": name, "port": 80, "weight": weight, **more}


def route(*rules, name="users", owners=(), **more):
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "1",
            "generation": 1,
            "ownerReferences": [*owners],
            "labels": {"team": "chat"},
        },
        "spec": {
            "parentRefs": [{"name": "gw"}],
            "rules": [{"backendRefs": [*refs]} for refs in (rules or ([ref()],))],
        },
        "status": {"parents": [{"parentRef": {"name": "gw"}, "conditions": CONDITIONS}]},
        **more,
    }


def weights(spec, rule=0):
    return {r["name"]: r["weight"] for r in spec["rules"][rule]["backendRefs"]}


# Which route


def test_the_only_route_of_the_users_is_taken_and_kserves_own_is_none():
    mine, actual_route, other = (
        route(),
        route(name="demo", owners=OWNED),
        route([ref("else")], name="else"),
    )
    assert routes.select_route([actual_route, other, mine], "demo", None) == mine


def test_several_have_to_be_named_and_a_wrong_name_is_told_which_there_are():
    two = [route(), route(name="b")]
    with pytest.raises(InputError, match="2 HTTPRoutes lead to Service demo-predictor: b, users"):
        routes.select_route(two, "demo", None)
    assert routes.select_route(two, "demo", "b") == two[1]
    with pytest.raises(InputError, match="HTTPRoute c not found") as caught:
        routes.select_route(two, "demo", "c")
    assert caught.value.hint == "available routes: b, users"
    with pytest.raises(InputError, match="has no rule with a backendRef"):
        routes.select_route([*two, route([ref("else")], name="c")], "demo", "c")
    with pytest.raises(InputError, match="owned by a controller"):
        routes.select_route([*two, route(name="c", owners=OWNED)], "demo", "c")


@pytest.mark.parametrize("own", [True, False])
def test_without_one_a_complete_one_is_offered(own):
    theirs = route(name="demo", owners=OWNED)
    theirs["spec"]["parentRefs"] = [{"name": "kserve-gateway", "namespace": "kserve"}]
    with pytest.raises(Refused, match="no HTTPRoute of a user") as caught:
        routes.select_route([theirs] if own else [], "demo", None)
    offered = yaml.safe_load(caught.value.hint.partition("\n")[2])
    assert offered["kind"] == "HTTPRoute"
    assert offered["spec"]["rules"][0]["backendRefs"] == [{"name": "demo-predictor", "port": 80}]
    assert (offered["spec"]["parentRefs"][0]["name"] == "kserve-gateway") is own


def test_a_backend_of_another_kind_or_namespace_or_without_weight_is_not_the_service():
    others = [
        ref(kind="InferencePool"),
        ref(namespace="elsewhere"),
        ref(group="x.io"),
        ref(weight=0),
    ]
    assert routes.routes_to([route([one]) for one in others], "demo-predictor") == []
    assert routes.routes_to([route([ref(namespace="ns")])], "demo-predictor") != []


# Which weights


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (1, {"demo-predictor": 99, "demo-candidate-predictor": 1}),
        (50, {"demo-predictor": 50, "demo-candidate-predictor": 50}),
        (100, {"demo-candidate-predictor": 100}),
    ],
)
def test_a_rule_with_one_backend_gets_percentages(percent, expected):
    found = routes.weighted(
        route([ref(weight=7, filters=["x"])]), "demo", "demo-candidate", percent
    )
    assert weights(found) == expected
    assert all(r["port"] == 80 and r["filters"] == ["x"] for r in found["rules"][0]["backendRefs"])


some = st.lists(
    st.tuples(st.sampled_from(["demo-predictor", "a", "b", "c"]), st.integers(0, 10_000)),
    min_size=1,
    max_size=4,
).filter(lambda pairs: len({name for name, _ in pairs}) == len(pairs))


@given(rules=st.lists(some, min_size=1, max_size=3), percent=st.integers(1, 100))
def test_every_backend_keeps_its_share_and_the_service_and_the_candidate_split_theirs(
    rules, percent
):
    before = route(*[[ref(name, weight) for name, weight in rule] for rule in rules])
    untouched = copy.deepcopy(before)
    spec = routes.weighted(before, "demo", "demo-candidate", percent)
    assert before == untouched
    for place, rule in enumerate(rules):
        old, new = dict(rule), weights(spec, place)
        if not old.get("demo-predictor"):
            assert new == old
            continue
        total, now = sum(old.values()), sum(new.values())
        share = {name: Fraction(weight, total) for name, weight in old.items()}
        item = share.pop("demo-predictor")
        for name, part in share.items():
            assert Fraction(new[name], now) == part
        assert Fraction(new["demo-candidate-predictor"], now) == item * percent / 100
        assert Fraction(new.get("demo-predictor", 0), now) == item * (100 - percent) / 100
        gone = {"demo-predictor"} if percent == 100 else set()
        assert set(new) == set(old) - gone | {"demo-candidate-predictor"}
        assert all(weight <= routes.MOST_WEIGHT for weight in new.values())
        assert all(weight > 0 for name, weight in new.items() if old.get(name, 1))
    assert is_known_spec({**before, "spec": spec}, before, "demo", "demo-candidate")
    assert is_known_spec(before, before, "demo", "demo-candidate")


def test_weights_that_would_get_too_large_are_refused():
    with pytest.raises(Refused, match="would exceed 1,000,000"):
        routes.weighted(route([ref(weight=999_983), ref("a", 7)]), "demo", "demo-candidate", 1)


@given(pods=st.integers(1, 99), percent=st.integers(1, 100))
def test_a_share_is_possible_while_the_candidates_pod_is_no_busier_than_another(pods, percent):
    fits = Fraction(percent, 100) <= Fraction(100 - percent, 100) / pods
    assert (percent <= equal_share(pods)) is fits
    if fits:
        routes.require_possible((percent,), pods, "service ns/demo")
    else:
        with pytest.raises(Refused, match=f"at most {equal_share(pods)} % is possible"):
            routes.require_possible((percent,), pods, "service ns/demo")


def test_the_refused_steps_are_named_and_the_rest_is_offered():
    with pytest.raises(Refused, match="40 %, 50 % of the traffic") as caught:
        routes.require_possible((1, 10, 40, 50), 3, "service ns/demo")
    assert caught.value.hint == "--traffic-steps 1,2,4,8,16,25"
    with pytest.raises(Refused, match="with 120 serving pods even 1 % would load"):
        routes.require_possible((1,), 120, "service ns/demo")


def test_a_step_that_more_than_doubles_the_one_before_is_refused_and_smaller_ones_are_offered():
    routes.require_possible((1, 5, 10, 20, 40, 50), 1, "service ns/demo")
    with pytest.raises(
        Refused,
        match="50 % of the traffic after 10 % is too large a step: at most 20 % is possible",
    ) as it:
        routes.require_possible((10, 50), 1, "service ns/demo")
    assert it.value.hint == "--traffic-steps 10,20,40,50"
    with pytest.raises(Refused, match="10 % of the traffic after 1 %"):
        routes.require_possible((1, 10), 1, "service ns/demo")


# What gateways say


def conditions(**changes):
    return [{**one, **changes.get(one["type"], {})} for one in CONDITIONS]


@pytest.mark.parametrize(
    ("parents", "generation", "seen", "good", "said"),
    [
        ([{"parentRef": {"name": "gw"}, "conditions": CONDITIONS}], 1, True, True, ""),
        ([], 1, False, False, "no gateway"),
        (
            [{"parentRef": {"name": "gw"}, "conditions": CONDITIONS}],
            2,
            False,
            False,
            "gw has not processed",
        ),
        (
            [{"parentRef": {"name": "gw"}, "conditions": CONDITIONS[:1]}],
            1,
            False,
            False,
            "ResolvedRefs",
        ),
        (
            [
                {"parentRef": {"name": "gw"}, "conditions": CONDITIONS},
                {
                    "parentRef": {"name": "b"},
                    "conditions": conditions(
                        ResolvedRefs={"status": "False", "reason": "BackendNotFound"}
                    ),
                },
            ],
            1,
            True,
            False,
            "gateway b: ResolvedRefs is False (BackendNotFound)",
        ),
    ],
)
def test_every_gateway_must_have_taken_the_route_as_it_is_now(
    parents, generation, seen, good, said
):
    actual_route = route(status={"parents": parents})
    actual_route["metadata"]["generation"] = generation
    state = routes.route_status(actual_route)
    assert (state.observed, state.accepted) == (seen, good)
    assert said in state.message


# Writing and putting back


class Api:
    """One route behind the client's methods, and ``others`` that are only listed. ``takes``: whether the gateway looks
    at what is written."""

    def __init__(self, found, *, takes=True, others=()):
        self.found, self.takes, self.stale, self.writes, self.others = (
            found,
            takes,
            0,
            [],
            list(others),
        )

    def list(self, kind, namespace=None):
        return copy.deepcopy([route for route in [self.found, *self.others] if route is not None])

    def get(self, kind, name, namespace=None):
        return copy.deepcopy(self.found)

    def replace(self, kind, body, *, dry_run=False):
        if self.stale:
            self.stale -= 1
            raise Stale("changed meanwhile")
        assert body["metadata"]["resourceVersion"] == self.found["metadata"]["resourceVersion"]
        self.writes.append(body["spec"])
        self.edit(body["spec"], manager="mpctl")

    def edit(self, spec, *, manager="somebody"):
        metadata = self.found["metadata"]
        status = self.found["status"]
        self.found = {**self.found, "spec": copy.deepcopy(spec)}
        version = int(metadata["resourceVersion"]) + 1
        self.found["metadata"] = {
            **metadata,
            "generation": version,
            "resourceVersion": str(version),
            "managedFields": [
                {"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z"}
            ],
        }
        if self.takes:
            parent = {
                **status["parents"][0],
                "conditions": [{**c, "observedGeneration": version} for c in CONDITIONS],
            }
            self.found["status"] = {"parents": [parent]}


def opened(found=None, **more):
    api = Api(found or route(), **more)
    return api, Routes(api, "ns", "demo", sleep=lambda _: None)


def test_a_share_is_written_once_and_the_route_put_back_exactly():
    api, users = opened()
    before = copy.deepcopy(api.found["spec"])
    record = users.record(None)
    for percent in (1, 10, 10):
        users.shift(record, percent)
        users.require_shifted(record, percent)
    assert [weights(spec)["demo-candidate-predictor"] for spec in api.writes] == [1, 10]
    assert users.share_texts() == ("10 %", "90 %")
    with pytest.raises(Conflict, match="gives Service demo-candidate-predictor traffic"):
        users.require_idle()
    assert users.restore(record) == ()
    assert users.restore(record) == ()
    assert api.found["spec"] == before
    assert api.found["metadata"]["labels"] == {"team": "chat"}
    assert len(api.writes) == 3
    assert users.share_texts() == ("", "")
    users.require_idle()


def of_the_candidate(title, **changes):
    """A route as KServe 0.20 writes it for the second InferenceService, where enableGatewayApi is true."""
    owner = {"kind": "InferenceService", "name": "demo-candidate", "controller": True} | changes
    return route([ref("demo-candidate-predictor")], name=title, owners=[owner])


def test_what_kserve_writes_for_the_candidate_is_no_traffic_of_users():
    candidates = [of_the_candidate(name) for name in ("demo-candidate", "demo-candidate-predictor")]
    _, users = opened(others=candidates)
    users.require_idle()
    assert users.share_texts() == ("", "")
    users.shift(users.record(None), 10)
    assert users.share_texts() == ("10 %", "90 %")
    with pytest.raises(Conflict, match="HTTPRoute users gives Service"):
        users.require_idle()


@pytest.mark.parametrize(
    "changes", [{"controller": False}, {"name": "demo"}, {"kind": "Deployment"}]
)
def test_a_route_that_only_looks_like_kserves_still_holds_the_candidate(changes):
    _, users = opened(others=[of_the_candidate("mine", **changes)])
    with pytest.raises(Conflict, match="HTTPRoute mine gives Service"):
        users.require_idle()


def test_a_stale_version_is_read_again():
    api, users = opened()
    api.stale = 2
    users.shift(users.record(None), 10)
    assert len(api.writes) == 1


@pytest.mark.parametrize("way", ["hostnames", "weights", "back"])
def test_what_somebody_else_wrote_is_named_and_left(way):
    api, users = opened()
    record = users.record(None)
    users.shift(record, 10)
    spec = copy.deepcopy(api.found["spec"])
    if way == "hostnames":
        spec["hostnames"] = ["more"]
    elif way == "weights":
        spec["rules"][0]["backendRefs"][0]["weight"] = 91
    else:
        spec = record["spec"]
    api.edit(spec)
    with pytest.raises(Conflict, match="changed by somebody at 2026-01-01T00:00:00Z"):
        users.require_shifted(record, 10)
    if (
        way == "back"
    ):  # a controller that writes its own copy back: not fought, and nothing is left to do
        assert users.restore(record) == ()
        return
    with pytest.raises(Conflict, match="changed by somebody"):
        users.shift(record, 50)
    with pytest.raises(
        Conflict, match=r"changed by somebody .* gives Service demo-candidate-predictor traffic"
    ):
        users.restore(record)  # it would find nobody
    del spec["rules"][0]["backendRefs"][1]
    api.edit(spec)
    (left,) = users.restore(record)
    assert "the change is kept" in left
    assert api.found["spec"] == spec


def test_a_change_of_somebody_else_that_is_taken_back_again_is_no_obstacle():
    api, users = opened()
    record = users.record(None)
    users.shift(record, 10)
    ours = copy.deepcopy(api.found["spec"])
    api.edit(ours | {"hostnames": ["more"]})
    with pytest.raises(Conflict):
        users.restore(record)
    api.edit(ours)
    assert users.restore(record) == ()
    assert api.found["spec"] == record["spec"]


def test_a_route_that_is_gone_is_no_obstacle_on_the_way_back():
    api, users = opened()
    record = users.record(None)
    api.found = None
    with pytest.raises(Conflict, match="was deleted"):
        users.require_shifted(record, 10)
    assert "was deleted" in users.restore(record)[0]
    users.require_idle()


def test_a_gateway_that_does_not_look_is_waited_for_and_named(monkeypatch):
    monkeypatch.setattr(routing, "_ACCEPTED_TIMEOUT_S", 0.0)
    api, users = opened()
    record = users.record(None)
    api.takes = False
    with pytest.raises(MpctlError, match="not accepted within 0 s: gateway gw has not processed"):
        users.shift(record, 10)


def gone(api):
    """The gateway is deleted, and its controller takes its word back."""
    api.takes = False
    api.found["status"] = {"parents": []}


def test_what_somebody_else_wrote_is_left_without_waiting_for_a_gateway(monkeypatch):
    monkeypatch.setattr(routing, "_ACCEPTED_TIMEOUT_S", 0.0)
    api, users = opened()
    record = users.record(None)
    api.takes = False
    api.edit(record["spec"] | {"hostnames": ["more"]})
    (left,) = users.restore(record)
    assert "the change is kept" in left


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "silent"])
def test_where_nothing_was_shifted_no_gateway_has_to_confirm_it(deleted, monkeypatch):
    monkeypatch.setattr(routing, "_ACCEPTED_TIMEOUT_S", 0.0)
    api, users = opened()
    record = users.record(None)
    api.takes = False
    api.edit(record["spec"])  # a new generation that nobody looks at
    if deleted:
        gone(api)
    (told,) = users.restore(record)
    why = "no gateway has accepted it" if deleted else "gateway gw has not processed it yet"
    assert f"HTTPRoute ns/users is restored; {why}" in told
    assert api.writes == []


def test_a_gateway_that_had_the_share_must_have_seen_it_go_unless_it_is_gone(monkeypatch):
    monkeypatch.setattr(routing, "_ACCEPTED_TIMEOUT_S", 0.0)
    api, users = opened()
    record = users.record(None)
    users.shift(record, 10)
    api.takes = False
    for _ in range(2):  # also when an earlier try wrote it
        with pytest.raises(
            MpctlError,
            match=r"is restored, and not processed within 0 s: gateway gw has not processed",
        ):
            users.restore(record)
    gone(api)
    (told,) = users.restore(record)
    assert "no gateway has accepted it" in told
    assert api.found["spec"] == record["spec"]


def test_a_route_of_a_tool_that_writes_it_back_is_refused_unless_forced():
    actual_route = route()
    actual_route["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "chat",
        "meta.helm.sh/release-namespace": "ns",
    }
    _, users = opened(actual_route)
    with pytest.raises(Refused, match=r"HTTPRoute users belongs to Helm \(ns/chat\)"):
        users.record(None)
    assert users.record(None, force=True)["name"] == "users"


def test_a_route_that_no_gateway_takes_is_refused():
    _, users = opened(route(status={"parents": []}))
    with pytest.raises(Refused, match="no gateway has accepted it"):
        users.record(None)


@pytest.mark.parametrize("weight", [0, 1])
def test_a_route_that_names_the_candidates_service_already_is_refused(weight):
    _, users = opened(route([ref(), ref("demo-candidate-predictor", weight)]))
    with pytest.raises(Refused, match="names Service demo-candidate-predictor"):
        users.record(None)
