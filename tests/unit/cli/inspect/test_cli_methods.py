"""``mpctl methods``: the setting of a method."""

from __future__ import annotations

import json


def test_a_method_prints_its_setting(cli):
    assert json.loads(cli("methods", "eagle3", "--draft", "org/h").out)["model"] == "org/h"
    assert (
        json.loads(cli("methods", "ngram", "--set", "num_speculative_tokens=3").out)[
            "num_speculative_tokens"
        ]
        == 3
    )
    assert (
        json.loads(cli("methods", "suffix", "-o", "json").out)["where"]
        == "argument of --speculative-config"
    )


def test_a_draft_needs_a_method(cli):
    refused = cli("methods", "--draft", "x")
    assert (refused.code, "needs a METHOD" in refused.err) == (2, True)
