"""A service that admission changes on every write: exact means that every recorded field is as recorded."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kubernetes_platform import Cluster, deployment, pod, service

from mpctl.errors import Conflict
from mpctl.platform.kubernetes.api.objects import added_fields
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.service.manifest_text import text_of
from mpctl.rollout.ports import Arm

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


class Admitting(Cluster):
    """Sets a field that the writer left out, as a defaulting webhook does; a dry run stores nothing."""

    default = True

    def replace(self, kind, body, *, dry_run=False):
        body = copy.deepcopy(body)
        if self.default and kind.name == "InferenceService":
            body["spec"]["predictor"].setdefault("timeout", 60)
        return body if dry_run else super().replace(kind, body)


@pytest.fixture
def opened():
    cluster = Admitting(service(), deployment(), pod())
    return KubernetesPlatform(cluster, "ns", "demo", sleep=lambda _: None), cluster


def test_what_admission_adds_to_the_recorded_service_is_named(opened):
    platform, cluster = opened
    recorded = Arm(platform.read().text)
    other = Arm(recorded.manifest.replace("--model=m", "--model=n"))
    platform.promote(other, expect=(recorded,))
    platform.restore_strategy(other)
    platform.promote(recorded, expect=(other,))
    platform.restore_strategy(recorded)
    live = platform.read()
    assert live.text != recorded.manifest
    assert platform.added_fields(recorded, live) == ("spec.predictor.timeout",)
    writes = len(cluster.written)
    platform.promote(recorded, expect=(other,))
    platform.restore_strategy(recorded)
    assert len(cluster.written) == writes  # it is as it should be


def test_the_same_field_written_by_somebody_is_a_foreign_edit(opened):
    platform, cluster = opened
    recorded = Arm(platform.read().text)
    cluster.default = False
    cluster.things["InferenceService", "demo"]["spec"]["predictor"]["timeout"] = 60
    assert platform.added_fields(recorded, platform.read()) is None
    with pytest.raises(Conflict):
        platform.promote(Arm(recorded.manifest + "# other\n"), expect=(recorded,))


def test_a_recorded_field_that_admission_overwrites_is_no_exact_way_back(opened):
    platform, cluster = opened
    cluster.things["InferenceService", "demo"]["spec"]["predictor"]["timeout"] = 30
    recorded = Arm(text_of(cluster.things["InferenceService", "demo"]))
    cluster.things["InferenceService", "demo"]["spec"]["predictor"]["timeout"] = 60
    assert platform.added_fields(recorded, platform.read()) is None


@given(VALUES)
def test_nothing_is_added_to_the_same(value):
    assert added_fields(value, copy.deepcopy(value)) == ()


@given(st.dictionaries(st.text("ab", max_size=2), VALUES, max_size=3), VALUES)
def test_a_new_key_is_added_and_a_lost_one_is_a_difference(value, other):
    assert added_fields(value, {**value, "new": other}) == ("new",)
    assert added_fields({**value, "new": other}, value) is None


@given(VALUES, VALUES)
def test_another_value_is_a_difference(before, after):
    added = added_fields({"at": before}, {"at": after})
    # As JSON, in which false is not 0; equal in Python, they are two values of a manifest.
    assert added is not None or json.dumps(before, sort_keys=True) != json.dumps(
        after, sort_keys=True
    )
    if not isinstance(before, dict | list):
        assert (added is None) == (before != after or type(before) is not type(after))
