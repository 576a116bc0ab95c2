"""Methods and drafts as values: settings in the words of an engine, and the catalogue by target and method."""

from __future__ import annotations

import pytest

from mpctl.app.inspect.drafts import list_drafts
from mpctl.app.inspect.methods import support_of, write_setting
from mpctl.app.requests import DraftsRequest, MethodRequest
from mpctl.errors import InputError


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", '"method": "eagle3"'),
        ("sglang", "--speculative-algorithm EAGLE3"),
        ("tensorrt-llm", "org/head"),
    ],
)
def test_a_setting_is_written_in_the_words_of_an_engine(engine, text):
    setting = write_setting(MethodRequest("eagle3", engine, "org/head"))
    assert setting.engine == engine
    assert text in setting.text
    assert setting.where


def test_a_method_that_an_engine_cannot_run_has_a_reason():
    support = support_of("sglang")
    assert support.unsupported["ngram"] is None
    assert support.unsupported["suffix"]
    with pytest.raises(InputError):
        write_setting(MethodRequest("suffix", "sglang"))


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
