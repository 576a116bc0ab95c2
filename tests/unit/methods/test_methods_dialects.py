"""SGLang's and TensorRT-LLM's spellings: their documentation's examples, refusals by name, and there and back."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.methods import METHODS, Spec, build
from mpctl.methods.dialects import DIALECTS, sglang, trtllm

# A busy machine is slow; that is no finding.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

HEAD = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"


def spec(method, *sets, draft=None):
    return build(method, draft=draft, sets=sets)[0]


# docs.sglang.io: the XiaomiMiMo example of Multi Token Prediction, the SpecV2 example of STANDALONE (top-k 1), and the
# EAGLE3 and NGRAM examples with the one chain that vLLM drafts.
SGLANG = [
    (
        spec("mtp"),
        "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 2",
    ),
    (
        spec("draft_model", "num_speculative_tokens=4", draft="Qwen/Qwen2.5-1.5B-Instruct"),
        "--speculative-algorithm STANDALONE --speculative-draft-model-path Qwen/Qwen2.5-1.5B-Instruct "
        "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5",
    ),
    (
        spec("eagle3", "revision=abc", draft=HEAD),
        f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {HEAD} --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-draft-model-revision abc",
    ),
    (
        Spec("ngram", {"num_speculative_tokens": 5}),
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 6 --speculative-ngram-max-bfs-breadth 1",
    ),
    (
        spec("dflash", draft="/d"),
        "--speculative-algorithm DFLASH --speculative-draft-model-path /d --speculative-num-draft-tokens 8",
    ),
    (
        spec("dspark", draft="/d"),
        "--speculative-algorithm DSPARK --speculative-draft-model-path /d --speculative-num-draft-tokens 8",
    ),
    (Spec("none"), ""),
]


@pytest.mark.parametrize(("one", "words"), SGLANG)
def test_sglangs_words(one, words):
    assert " ".join(sglang.write(one)) == words
    assert sglang.read(words.split()) == one


def test_mtp_as_its_documentation_spells_it():
    words = (
        "python3 -m sglang.launch_server --model XiaomiMiMo/MiMo-7B-RL --host 0.0.0.0 --trust-remote-code "
        "--speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 2 --mem-fraction-static 0.7 --cuda-graph-max-bs 8 --log-level warning"
    )
    assert sglang.read(words.split()) == spec("mtp")
    dashes = [word.replace("--speculative-num-steps", "--speculative_num_steps") for word in words.split()]
    assert sglang.read(dashes) == spec("mtp")
    assert sglang.read(["--model", "x"]).is_none


@pytest.mark.parametrize(
    ("words", "says"),
    [
        # the documentation's EAGLE-3 example drafts a tree
        (
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path x --speculative-num-steps 3 "
            "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
            "drafts a tree",
        ),
        ("--speculative-algorithm EAGLE3 --speculative-draft-model-path x", "left to the engine"),
        (
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path x --speculative-num-steps 3 "
            "--speculative-eagle-topk 1 --speculative-num-draft-tokens 9",
            "do not agree on a chain",
        ),
        ("--speculative-algorithm LOOKAHEAD", "LOOKAHEAD has no equal"),
        ("--speculative-algorithm", "has no value"),
        (
            "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 "
            "--speculative-accept-threshold-acc 0.9",
            "accept-threshold-acc has no equal",
        ),
        (
            "--speculative-algorithm NEXTN --speculative-num-steps one --speculative-eagle-topk 1",
            "whole number",
        ),
    ],
)
def test_what_sglang_says_and_a_spec_cannot(words, says):
    with pytest.raises(InputError, match=says):
        sglang.read(words.split())


# TensorRT-LLM's page: the YAML of "Usage with trtllm-bench and trtllm-serve", and its Python examples as YAML.
TRTLLM = [
    (
        spec("eagle3", "num_speculative_tokens=4", draft=HEAD),
        f"speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 4\n  speculative_model: {HEAD}",
    ),
    (
        spec("draft_model", draft="/path/to/draft_model"),
        "disable_overlap_scheduler: true\nspeculative_config:\n  decoding_type: Draft_Target\n  max_draft_len: 3\n"
        "  speculative_model: /path/to/draft_model",
    ),
    (
        spec("ngram", "num_speculative_tokens=3", "prompt_lookup_min=null"),
        "disable_overlap_scheduler: true\nspeculative_config:\n  decoding_type: NGram\n  max_draft_len: 3\n"
        "  max_matching_ngram_size: 4\n  is_public_pool: false",
    ),
    (
        spec("mtp", "num_speculative_tokens=3"),
        "speculative_config:\n  decoding_type: MTP\n  max_draft_len: 3",
    ),
    (
        spec("draft_model", "num_speculative_tokens=4", "parallel_drafting=true", draft="/path/to/pard_model"),
        "speculative_config:\n  decoding_type: PARD\n  max_draft_len: 4\n  speculative_model: /path/to/pard_model",
    ),
    (
        spec("dflash", "num_speculative_tokens=4", draft="/path/to/dflash_model"),
        "speculative_config:\n  decoding_type: DFlash\n  max_draft_len: 4\n  speculative_model: /path/to/dflash_model",
    ),
    (Spec("none"), ""),
]


@pytest.mark.parametrize(("one", "text"), TRTLLM)
def test_tensorrt_llms_file(one, text):
    assert trtllm.text(one) == text
    assert trtllm.read(yaml.safe_load(text) or {}) == one


def test_tensorrt_llms_aliases():
    made = {"decoding_type": "Eagle", "max_draft_len": 4, "speculative_model_dir": "/d"}
    assert trtllm.read({"speculative_config": made, "enable_attention_dp": True}) == spec(
        "eagle3", "num_speculative_tokens=4", draft="/d"
    )
    layers = {"decoding_type": "MTP", "max_draft_len": 2, "num_nextn_predict_layers": 2}
    assert trtllm.read({"speculative_config": layers}).k == 2


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ({"decoding_type": "SA", "max_draft_len": 4}, "SA has no equal"),
        ({"decoding_type": "Eagle3", "speculative_model": "x", "use_dynamic_tree": True}, "use_dynamic_tree"),
        ({"decoding_type": "NGram", "max_draft_len": 3}, "shared by all requests"),
        ([], "must be a mapping"),
    ],
)
def test_what_tensorrt_llm_says_and_a_spec_cannot(inner, says):
    with pytest.raises(InputError, match=says):
        trtllm.read({"speculative_config": inner})


RUNS = {
    "sglang": {"none", "ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash", "dspark"},
    "tensorrt-llm": {"none", "ngram", "eagle3", "mtp", "draft_model", "dflash"},
}


@pytest.mark.parametrize("engine", DIALECTS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_written_or_refused_by_name(engine, method):
    draft = "/d" if METHODS[method].loads_weights and not METHODS[method].target_layers else None
    one = Spec("none") if method == "none" else spec(method, draft=draft)
    why = DIALECTS[engine].unsupported(one)
    assert (why is None) is (method in RUNS[engine])
    if why is not None:
        assert f"cannot run {method}: " in why
        assert "it has no such method" not in why or method == "mlp_speculator"
    assert DIALECTS[engine].source


@pytest.mark.parametrize("key", ["kv_cache_dtype=fp8", "rejection_sample_method=block", "draft_tensor_parallel_size=1"])
@pytest.mark.parametrize("engine", DIALECTS)
def test_a_setting_without_a_word_is_refused_by_name(engine, key):
    name = key.partition("=")[0]
    why = DIALECTS[engine].unsupported(spec("eagle3", key, draft="/d"))
    assert why == f"{DIALECTS[engine].title} has no setting for {name}"


def test_what_is_missing_is_asked_for():
    for one, says in (
        (Spec("eagle3", {"num_speculative_tokens": 3}), "needs a draft"),
        (Spec("eagle3", {"model": "/d"}), "number of tokens"),
    ):
        for dialect in DIALECTS.values():
            assert says in dialect.unsupported(one)


@pytest.mark.parametrize("engine", DIALECTS)
def test_defaults_of_ours_are_left_to_the_engine_and_other_values_are_refused(engine):
    dialect = DIALECTS[engine]
    assert dialect.unsupported(spec("ngram")) is None
    assert "prompt_lookup_min" not in dialect.text(spec("ngram"))
    assert "prompt_lookup_min" in dialect.unsupported(spec("ngram", "prompt_lookup_min=3"))


@pytest.mark.parametrize("key", ["attention_backend=FLASH_ATTN", "moe_backend=triton"])
def test_names_of_vllms_backends_are_not_sglangs(key):
    assert DIALECTS["sglang"].unsupported(spec("eagle3", key, draft="/d")).endswith(key.partition("=")[0])


def test_sglangs_block_sizes_and_documented_names():
    head = "--speculative-draft-model-path /d"
    assert sglang.read(f"--speculative-algorithm DFLASH {head} --speculative-dflash-block-size 8".split()) == spec(
        "dflash", draft="/d"
    )
    assert sglang.read(f"--speculative-algorithm DSPARK {head} --speculative-dspark-block-size 7".split()) == spec(
        "dspark", draft="/d"
    )
    made = {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model": "/d"}
    assert trtllm.read({"speculative_config": made}) == spec("draft_model", draft="/d")


paths = st.from_regex(r"/?[a-zA-Z][\w./-]{0,20}", fullmatch=True).filter(lambda text: text not in METHODS)
counts = st.integers(1, 64)


@patient
@given(
    st.sampled_from(sorted(RUNS["sglang"] - {"none", "ngram"})),
    counts,
    paths,
    st.dictionaries(st.sampled_from(["revision", "quantization"]), paths),
)
def test_drafts_there_and_back_in_sglang(method, k, draft, more):
    settings = {"num_speculative_tokens": k, **more, "model": draft}
    one = Spec(method, settings)
    assert sglang.read(sglang.write(one)) == one


@patient
@given(st.sampled_from(["eagle3", "draft_model", "dflash"]), counts, paths, st.booleans())
def test_drafts_there_and_back_in_tensorrt_llm(method, k, draft, parallel):
    settings = {"num_speculative_tokens": k, "model": draft}
    if parallel and method == "draft_model":
        settings["parallel_drafting"] = True
    one = Spec(method, settings)
    assert trtllm.read(yaml.safe_load(trtllm.text(one))) == one
