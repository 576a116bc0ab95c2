"""Every configuration whose verdict by the real class (vLLM 0.32.0) was captured, against ours.

We may be stricter than the engine, with a reason; where we are not, we agree or leave it to a check that has the
model at hand. The captured lines are in tests/data/vllm.
"""

import re
from pathlib import Path

import pytest

from mpctl.errors import InputError
from mpctl.methods import CheckpointFacts, ServiceFacts, build, from_config
from tests.preflight import preflight_findings

CAPTURED = Path(__file__).parents[2] / "data" / "vllm" / "bad_configs_0.32.0.txt"
LINE = re.compile(r"""^(?P<quote>['"])(?P<label>.+)(?P=quote)\s+[\d.]+s (?P<verdict>.+)$""")

N = {"num_speculative_tokens": 5}
D = {"model": "/mnt/models/draft", "num_speculative_tokens": 3}
SCHEDULE = "num_speculative_tokens_per_batch_size"

# label: method, configuration. None stands for "remove our default", as the capture left the key out.
GIVEN = {
    "ok ngram": ("ngram", N | {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
    "ngram no lookup keys": ("ngram", N | {"prompt_lookup_min": None, "prompt_lookup_max": None}),
    "ngram only max": ("ngram", N | {"prompt_lookup_min": None, "prompt_lookup_max": 4}),
    "ngram only min": ("ngram", N | {"prompt_lookup_min": 2, "prompt_lookup_max": None}),
    "ngram min>max": ("ngram", N | {"prompt_lookup_min": 4, "prompt_lookup_max": 2}),
    "ngram min=0": ("ngram", N | {"prompt_lookup_min": 0}),
    "ngram no num_speculative_tokens": ("ngram", {"num_speculative_tokens": None}),
    "num=-1": ("ngram", {"num_speculative_tokens": -1}),
    "num=0": ("ngram", {"num_speculative_tokens": 0}),
    "num='5' (string)": ("ngram", {"num_speculative_tokens": "5"}),
    "num=5.5": ("ngram", {"num_speculative_tokens": 5.5}),
    "num=true": ("ngram", {"num_speculative_tokens": True}),
    "num=1000": ("ngram", {"num_speculative_tokens": 1000}),
    "unknown method": ("medusaa", N),
    "method NGRAM upper": ("NGRAM", N),
    "method [ngram]": ("[ngram]", N),
    "unknown key": ("ngram", N | {"foo": 1}),
    "removed disable_by_batch_size": ("ngram", N | {"disable_by_batch_size": 4}),
    "removed acceptance_method": ("ngram", N | {"acceptance_method": "rejection_sampler"}),
    "old key speculative_model": ("ngram", N | {"speculative_model": "/models/draft"}),
    "dash keys": ("ngram", {"num-speculative-tokens": 5, "prompt-lookup-max": 4}),
    "camelCase keys": ("ngram", {"numSpeculativeTokens": 5}),
    "tensor_parallel_size": ("draft_model", D | {"tensor_parallel_size": 1}),
    "draft tp 2 on tp1": ("draft_model", D | {"draft_tensor_parallel_size": 2}),
    "eagle3 no model": ("eagle3", {"num_speculative_tokens": 3}),
    "eagle3 missing path": ("eagle3", D | {"model": "/nonexistent/eagle3"}),
    "eagle3 with non-eagle model": ("eagle3", D),
    "eagle3 no num": ("eagle3", {"model": "/mnt/models/draft", "num_speculative_tokens": None}),
    "draft_model no model": ("draft_model", {"num_speculative_tokens": 3}),
    "draft max_model_len > draft": ("draft_model", D | {"max_model_len": 99999}),
    "draft max_model_len 512": ("draft_model", D | {"max_model_len": 512}),
    "draft quantization fp8": ("draft_model", D | {"quantization": "fp8"}),
    "draft quantization bogus": ("draft_model", D | {"quantization": "bogus"}),
    "mtp on non-mtp model": ("mtp", {"num_speculative_tokens": 1}),
    "deepseek_mtp alias": ("deepseek_mtp", {"num_speculative_tokens": 1}),
    "medusa no model": ("medusa", {"num_speculative_tokens": 3}),
    "suffix no num": ("suffix", {}),
    "suffix prob 2": ("suffix", {"suffix_decoding_min_token_prob": 2}),
    "rejection strict (old value)": ("ngram", N | {"rejection_sample_method": "strict"}),
    "synthetic w/o length": ("ngram", N | {"rejection_sample_method": "synthetic"}),
    "synthetic len 10": (
        "ngram",
        N | {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 10},
    ),
    "synthetic len, standard": ("ngram", N | {"synthetic_acceptance_length": 2}),
    "parallel_drafting with ngram": ("ngram", N | {"parallel_drafting": True}),
    "dynamic bad schedule": ("ngram", N | {SCHEDULE: [[8, 1, 3]]}),
    "dynamic overlap": ("ngram", N | {SCHEDULE: [[1, 8, 3], [4, 16, 1]]}),
    "dynamic k > num": ("ngram", N | {SCHEDULE: [[1, 8, 9]]}),
    "dynamic str key map": ("ngram", N | {SCHEDULE: {"1-4": 5}}),
    "adaptive verification on ngram": ("ngram", N | {"enable_adaptive_verification": True}),
    "enforce_eager key": ("ngram", N | {"enforce_eager": True}),
}

# What the engine accepts and we refuse, each with its reason.
STRICTER = {
    "num='5' (string)": "a text that happens to be a number; the next engine may not convert it",
    "num=true": "read as K 1, which nobody means",
    "parallel_drafting with ngram": "accepted and ignored",
    "dynamic bad schedule": "accepted here, refused or ignored when the schedule is first used",
    "dynamic overlap": "as above",
    "dynamic k > num": "cut to the static K without a word",
    "eagle3 with non-eagle model": "accepted; the preflight refuses it once the checkpoint's kind is known",
    "method [ngram]": "not a method's name in our command line; read from a running service all the same",
}

# What the engine refuses and build() lets through, and what catches it instead.
LATER = {
    "unknown key": "kept with a warning: a newer engine may know it",
    "draft max_model_len > draft": "preflight draft-max-model-len, with the draft's context",
    "eagle3 missing path": "whoever stages the artifacts; no path can be seen from here",
    "draft quantization bogus": "the list of quantisations is the engine's and grows with every release",
    "mtp on non-mtp model": "needs the target's config.json",
    "synthetic len, standard": "the engine at its start; the preflight refuses the method that it belongs to",
}

# Captured without a method: read from running services, never built.
WITHOUT_METHOD = {
    "model ngram, no method": ({"model": "ngram", "num_speculative_tokens": 5}, "ngram"),
    "eagle3 path autodetect, no method": (
        {"model": "/mnt/models/eagle3", "num_speculative_tokens": 3},
        "eagle3",
    ),
    "no method no model": ({"num_speculative_tokens": 3}, "inferred"),
    "empty {}": ({}, "none"),
    "json list": (None, "none"),
}

FACTS = ServiceFacts(
    tensor_parallel=1, draft=CheckpointFacts(draft_kind="model", context=2048), served_context=2048
)


def captured():
    lines = CAPTURED.read_text().splitlines()[1:]
    matches = [LINE.match(line) for line in lines]
    return {match["label"]: match["verdict"] for match in matches}


def ours(label):
    """Refused by build() or by the preflight's refusals, or accepted."""
    method, config = GIVEN[label]
    try:
        spec, _ = build(method, config=config)
    except InputError as error:
        return str(error)
    refused = [
        finding for finding in preflight_findings(spec, FACTS) if finding.severity == "refuse"
    ]
    return refused[0].reason if refused and label not in ("eagle3 missing path",) else None


def test_every_captured_line_is_in_a_table():
    assert set(captured()) == set(GIVEN) | set(WITHOUT_METHOD)
    assert set(STRICTER) | set(LATER) <= set(GIVEN)


@pytest.mark.parametrize("label", GIVEN)
def test_we_agree_with_the_engine_or_say_why_not(label):
    accepted = captured()[label].startswith("OK")
    refusal = ours(label)
    if label in STRICTER:
        assert (accepted or label == "method [ngram]") and refusal, STRICTER[label]
    elif label == "draft max_model_len > draft":
        assert not accepted and refusal
    elif label in LATER:
        assert not accepted and refusal is None, LATER[label]
    else:
        assert accepted == (refusal is None), refusal


@pytest.mark.parametrize("label", WITHOUT_METHOD)
def test_without_a_method(label):
    config, method = WITHOUT_METHOD[label]
    assert from_config(config).method == method
