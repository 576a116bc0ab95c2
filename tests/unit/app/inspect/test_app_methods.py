"""Drafts as values: the catalogue by target and method."""

from __future__ import annotations

import pytest

from mpctl.app.inspect.methods import list_drafts
from mpctl.app.inspect_requests import DraftsRequest
from mpctl.errors import InputError


def test_drafts_are_listed_by_target_and_by_method():
    everything = list_drafts(DraftsRequest()).drafts
    of_target = list_drafts(DraftsRequest("Qwen/Qwen3-8B")).drafts
    assert {d.target for d in of_target} == {"Qwen/Qwen3-8B"}
    assert len(of_target) < len(everything)
    assert {d.method for d in list_drafts(DraftsRequest(method="dspark")).drafts} == {"dspark"}


def test_a_catalogue_of_ones_own_replaces_the_drafts_of_its_targets(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("targets:\n  Qwen/Qwen3-8B:\n    - {repo: ours/head, method: eagle3, k: 4}\n")
    listed = list_drafts(DraftsRequest("Qwen/Qwen3-8B", catalogue_file=str(mine))).drafts
    assert [d.name for d in listed] == ["ours/head"]


def test_an_unknown_method_is_refused_with_the_nearest_one():
    with pytest.raises(InputError, match="unknown method 'egle3'") as caught:
        list_drafts(DraftsRequest(method="egle3"))
    assert (caught.value.field, caught.value.hint) == ("--method", "did you mean eagle3?")
