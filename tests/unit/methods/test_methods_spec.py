"""A spec is a value: frozen, hashable, and what the engine is given comes back from it."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.methods import METHODS, Spec, build, from_config
from mpctl.methods.spec import FrozenMap

NAMES = st.sampled_from(sorted(METHODS))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(st.from_regex(r"x_[a-z]{1,8}", fullmatch=True), JSON, max_size=4)


@given(NAMES, UNKNOWN, st.integers(1, 40))
def test_round_trip_through_the_engines_configuration(name, unknown, k):
    if name == "none":
        spec, _ = build(name)
    else:
        draft = "/mnt/models/draft" if METHODS[name].loads_weights else None
        spec, _ = build(name, draft=draft, config=unknown | {"num_speculative_tokens": k})
    again = from_config(spec.config())
    assert again == spec
    assert hash(again) == hash(spec)
    assert from_config(json.loads(json.dumps(spec.config()))) == spec


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), JSON, max_size=5))
def test_whatever_runs_is_carried(config):
    if not isinstance(config.get("method", "x"), str):
        config["method"] = "eagle3"
    spec = from_config(config)
    if config and config.get("method") != "":
        assert {
            key: value
            for key, value in spec.config().items()
            if value is not None or key != "method"
        } == {key: value for key, value in config.items() if value is not None or key != "method"}


@pytest.mark.parametrize(
    ("config", "method"),
    [
        (None, "none"),
        ({}, "none"),
        ({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}, "eagle3"),
        ({"method": "eagle3", "model": "/d", "parallel_drafting": True}, "p-eagle"),
        ({"method": "eagle3", "model": "/d", "parallel_drafting": False}, "eagle3"),
        ({"method": "deepseek_mtp"}, "mtp"),
        ({"method": "qwen3_5_mtp"}, "mtp"),
        ({"method": "[ngram]"}, "ngram"),
        ({"model": "[ngram]"}, "ngram"),
        ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, "eagle3"),
        ({"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, "eagle"),
        ({"model": "z-lab/Qwen3-8B-DFlash-b16"}, "dflash"),
        ({"model": "deepseek-ai/dspark_qwen3_8b_block7"}, "dspark"),
        ({"model": "Qwen/Qwen3-0.6B"}, "inferred"),
        ({"model": "my_module.MyProposer"}, "custom_class"),
        ({"num_speculative_tokens": 3}, "inferred"),
        ({"method": "lilicorr"}, "lilicorr"),
        ({"method": "none"}, "?none"),
    ],
)
def test_what_a_running_service_carries(config, method):
    spec = from_config(config)
    assert spec.method == method
    assert spec.config() == (config or None)


def test_dashes_are_normalised_as_vllm_does():
    assert (
        from_config({"method": "ngram", "prompt-lookup-max": 4}).settings["prompt_lookup_max"] == 4
    )


def test_the_order_of_keys_does_not_matter():
    config = from_config({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4})
    two = from_config({"prompt_lookup_max": 4, "method": "ngram", "prompt_lookup_min": 2})
    assert config == two and hash(config) == hash(two)


def test_one_and_true_are_not_the_same_setting():
    assert from_config({"method": "ngram", "k": 1}) != from_config({"method": "ngram", "k": True})


def test_a_spec_cannot_be_changed():
    fields = {"a": [1, {"b": 2}]}
    spec = Spec("ngram", fields)
    fields["a"].append(3)
    assert spec.config()["a"] == [1, {"b": 2}]
    spec.config()["a"].append(4)
    assert spec.config()["a"] == [1, {"b": 2}]
    with pytest.raises(AttributeError):
        spec.method = "suffix"
    with pytest.raises(TypeError):
        spec.settings["a"] = 1
    assert copy.deepcopy(spec) == spec
    assert hash(FrozenMap(fields)) == hash(FrozenMap(fields))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (None, "none"),
        (
            {
                "method": "ngram",
                "num_speculative_tokens": 5,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            },
            "ngram K=5 lookup 2..4",
        ),
        (
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
            "ngram K=5 lookup 4..4",
        ),
        ({"method": "suffix"}, "suffix"),
        ({"method": "eagle3", "num_speculative_tokens": 3, "model": "/d"}, "eagle3 K=3 draft /d"),
        (
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "model": "/d",
                "num_speculative_tokens_per_batch_size": [[1, 8, 3]],
            },
            "eagle3 K<=3 by batch size draft /d",
        ),
        ({"method": "custom_class", "model": "a.B"}, "custom_class (not managed) draft a.B"),
    ],
)
def test_describe(config, text):
    assert from_config(config).describe() == text


def test_k_is_a_number_or_unknown():
    assert build("ngram")[0].k == 5
    assert build("suffix")[0].k is None
    assert from_config({"method": "ngram", "num_speculative_tokens": True}).k is None
