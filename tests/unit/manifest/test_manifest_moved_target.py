"""A target that staging moved into storageUris, and where it goes when the draft leaves."""

from __future__ import annotations

from typing import Any

from mpctl.manifest import load_one
from mpctl.manifest.draft_storage import with_entry, without_draft
from mpctl.manifest.merge.three_way import with_recorded_storage
from mpctl.manifest.text.yaml_tree import dump
from mpctl.platform.kubernetes.service.manifest_text import object_of

TARGET = "hf://org/target"


def service(**model: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "llm"},
        "spec": {
            "predictor": {"model": {"args": ["--seed=1"], "modelFormat": {"name": "vLLM"}, **model}}
        },
    }


def unstaged(record: dict[str, Any]) -> dict[str, Any]:
    """What is left of a service after a draft was staged and removed."""
    staged = with_entry(load_one(dump(record), "llm"), "hf://org/draft")
    return object_of(without_draft(staged).to_yaml())


def staged(record: dict[str, Any]) -> dict[str, Any]:
    return object_of(with_entry(load_one(dump(record), "llm"), "hf://org/draft").to_yaml())


def test_the_target_returns_to_the_field_that_was_recorded():
    was = service(storageUri=TARGET)
    now = unstaged(was)
    assert "storageUri" not in now["spec"]["predictor"]["model"]
    now["spec"]["predictor"]["minReplicas"] = 3  # somebody else's change stays
    was_then = service(storageUri=TARGET)
    was_then["spec"]["predictor"]["minReplicas"] = 3
    assert dump(with_recorded_storage(now, [was, staged(was)])) == dump(was_then)


def test_a_list_of_the_users_own_stays_a_list():
    was = service()
    was["spec"]["predictor"]["storageUris"] = [{"uri": TARGET, "mountPath": "/mnt/models"}]
    now = unstaged(was)
    assert with_recorded_storage(now, [was]) == now == was
    assert with_recorded_storage(now, [service(storageUri=TARGET), was]) == was  # the newest counts


def test_another_target_than_the_recorded_one_stays_where_it_is():
    now = unstaged(service(storageUri="hf://org/newer"))
    assert with_recorded_storage(now, [service(storageUri=TARGET)]) is now


def test_without_a_record_of_the_time_before_the_draft_nothing_moves():
    was = service(storageUri=TARGET)
    now = unstaged(was)
    assert with_recorded_storage(now, []) is now
    assert with_recorded_storage(now, [staged(was)]) is now
