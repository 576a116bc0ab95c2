"""``mpctl methods``: the setting of a method in the words of three engines."""

from __future__ import annotations

import json

import yaml


def test_methods_in_other_words(cli):
    assert cli("methods", "eagle3", "--draft", "org/h", "--engine", "sglang").out.startswith(
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/h"
    )
    assert yaml.safe_load(cli("methods", "mtp", "--engine", "tensorrt-llm").out) == {
        "speculative_config": {"decoding_type": "MTP", "max_draft_len": 1}
    }
    assert json.loads(cli("methods", "ngram").out)["method"] == "ngram"
    refused = cli("methods", "suffix", "--engine", "sglang")
    assert refused.code == 2
    assert "keeps no suffix trees" in refused.err
    assert "dspark" not in cli("methods", "--engine", "tensorrt-llm", "-o", "name").out
    assert cli("methods", "--draft", "x").code == 2
    assert "did you mean" in cli("methods", "--engine", "sglnag").err
