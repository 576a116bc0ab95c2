"""From what a person typed to a spec: defaults, precedence, and every refusal with its field."""

import pytest

from mpctl.errors import InputError
from mpctl.methods import METHODS, build, parse_config
from mpctl.methods.table import UNMANAGED

DRAFT = "/mnt/models/draft"


def config(method, **given):
    return build(method, **given)[0].config()


def ids(method, **given):
    return [(finding.id, finding.severity) for finding in build(method, **given)[1]]


def test_ngram_has_the_modelplane_settings():
    assert config("ngram") == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    }


@pytest.mark.parametrize("name", METHODS)
def test_every_method_builds_from_its_defaults_without_a_remark(name):
    method = METHODS[name]
    spec, remarks = build(name, draft=DRAFT if method.needs_draft in ("head", "model") else None)
    assert remarks == ()
    assert spec.method == name
    assert (spec.config() or {}).get("method") == method.engine_method


def test_later_sources_win():
    actual_config = config(
        "eagle3",
        config={"num_speculative_tokens": 4, "model": "/a", "revision": "x"},
        draft="/b",
        sets=["num_speculative_tokens=6"],
    )
    assert actual_config == {
        "method": "eagle3",
        "num_speculative_tokens": 6,
        "model": "/b",
        "revision": "x",
    }


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("num-speculative-tokens=3", "num_speculative_tokens", 3),
        ("--speculative-config.num_speculative_tokens=3", "num_speculative_tokens", 3),
        ("enforce_eager=true", "enforce_eager", True),
        ("revision=12345", "revision", "12345"),
        ("future_key=[1, 2]", "future_key", [1, 2]),
        ("future_key=True", "future_key", "True"),
        ("future_key=a=b", "future_key", "a=b"),
        ("future.deep.key=1.5", "future", {"deep": {"key": 1.5}}),
    ],
)
def test_sets_are_typed_like_vllm(text, key, value):
    assert config("ngram", sets=[text])[key] == value


def test_null_takes_a_default_away_and_dots_merge():
    actual_config = config("ngram", sets=["prompt_lookup_min=null", "x.a=1", "x.b=2"])
    assert "prompt_lookup_min" not in actual_config
    assert actual_config["x"] == {"a": 1, "b": 2}


SCHEDULE = "num_speculative_tokens_per_batch_size"
REFUSED = [
    ("ngram", ["num_speculative_tokens=true"], "num_speculative_tokens"),
    ("ngram", ['num_speculative_tokens="5"'], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens=0"], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens=-1"], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens=5.0"], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens=many"], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens=null"], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens="], "num_speculative_tokens"),
    ("ngram", ["num_speculative_tokens"], "set"),
    ("ngram", ["=3"], "set"),
    ("ngram", ["prompt_lookup_min=5"], "prompt_lookup_min"),
    ("ngram", ["prompt_lookup_max=0"], "prompt_lookup_max"),
    ("ngram", ["parallel_drafting=true"], "parallel_drafting"),
    ("ngram", ["parallel_drafting=yes"], "parallel_drafting"),
    ("suffix", ["suffix_decoding_min_token_prob=2"], "suffix_decoding_min_token_prob"),
    ("suffix", ["suffix_decoding_max_spec_factor=-1"], "suffix_decoding_max_spec_factor"),
    ("ngram", ["rejection_sample_method=strict"], "rejection_sample_method"),
    ("ngram", ["synthetic_acceptance_rates=0.9"], "synthetic_acceptance_rates"),
    ("ngram", ["use_heterogeneous_vocab=true"], "use_heterogeneous_vocab"),
    ("ngram", ["enable_adaptive_verification=true"], "enable_adaptive_verification"),
    ("eagle3", ["dspark_draft_topk=4"], "dspark_draft_topk"),
    ("eagle3", ["num_speculative_tokens=null"], "num_speculative_tokens"),
    (
        "draft_model",
        ["use_heterogeneous_vocab=true", "draft_sample_method=probabilistic"],
        "draft_sample_method",
    ),
    ("p-eagle", ["parallel_drafting=false"], "parallel_drafting"),
    ("p-eagle", ["parallel_drafting=null"], "parallel_drafting"),
    ("dflash", ["parallel_drafting=false"], "parallel_drafting"),
    ("ngram", ["disable_by_batch_size=4"], "disable_by_batch_size"),
    ("ngram", ["acceptance_method=x"], "acceptance_method"),
    ("ngram", ["speculative_model=x"], "speculative_model"),
    ("ngram", ["ngram-prompt-lookup-max=4"], "ngram_prompt_lookup_max"),
    ("eagle3", ["tensor_parallel_size=2"], "tensor_parallel_size"),
    ("ngram", ["numSpeculativeTokens=5"], "numSpeculativeTokens"),
    ("ngram", ["target_model_config=x"], "target_model_config"),
    ("ngram", ["method=eagle3"], "method"),
    ("ngram", [f"{SCHEDULE}=[]"], SCHEDULE),
    ("ngram", [f'{SCHEDULE}={{"1-4": 5}}'], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[1,8,3],[4,16,1]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[2,8,3]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[1,8,9]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[8,1,3]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[1,8]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[1,8,true]]"], SCHEDULE),
    ("ngram", [f"{SCHEDULE}=[[1,8,0]]"], SCHEDULE),
    ("ngram", ["x..y=1"], "x"),
    ("none", ["num_speculative_tokens=1"], "set"),
]


@pytest.mark.parametrize(("method", "sets", "field"), REFUSED)
def test_refused_with_the_field(method, sets, field):
    with pytest.raises(InputError) as caught:
        build(method, sets=sets)
    assert caught.value.field == field
    assert caught.value.exit_code == 2


def test_a_removed_key_names_its_successor():
    with pytest.raises(InputError) as caught:
        build("ngram", sets=["disable_by_batch_size=4"])
    assert SCHEDULE in caught.value.hint
    assert "0.17.0" in caught.value.message


def test_a_schedule_that_is_right_is_kept():
    actual_config = config(
        "eagle3", draft=DRAFT, sets=[f"{SCHEDULE}=[[17,64,1],[1,16,3],[65,256,0]]"]
    )
    assert actual_config[SCHEDULE] == [[17, 64, 1], [1, 16, 3], [65, 256, 0]]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ngrm", "ngram"),
        ("NGRAM", "ngram"),
        ("eagle-3", "eagle3"),
        ("peagle", "p-eagle"),
        ("draft-model", "draft_model"),
    ],
)
def test_an_unknown_method_names_the_nearest_and_all(name, near):
    with pytest.raises(InputError, match=f"did you mean '{near}'") as caught:
        build(name)
    assert caught.value.field == "spec"
    assert all(method in caught.value.hint for method in METHODS)


def test_an_alias_of_vllm_leads_to_mtp():
    with pytest.raises(InputError, match="did you mean 'mtp'"):
        build("deepseek_mtp")


@pytest.mark.parametrize("name", sorted(UNMANAGED))
def test_user_code_is_not_managed(name):
    with pytest.raises(InputError, match="not managed"):
        build(name)


@pytest.mark.parametrize("name", ["ngram", "ngram_gpu", "suffix"])
def test_a_draft_for_a_method_that_loads_none(name):
    with pytest.raises(InputError) as caught:
        build(name, draft=DRAFT)
    assert caught.value.field == "draft"
    with pytest.raises(InputError):
        build(name, config={"model": DRAFT})


def test_the_method_in_the_configuration_must_agree():
    assert config("ngram", config={"method": "ngram"})["num_speculative_tokens"] == 5
    assert config("mtp", config={"method": "deepseek_mtp"})["method"] == "mtp"
    assert config("p-eagle", config={"method": "eagle3"})["parallel_drafting"] is True
    for other in ("eagle3", 3):
        with pytest.raises(InputError) as caught:
            build("ngram", config={"method": other})
        assert caught.value.field == "method"


def test_one_key_in_two_spellings():
    with pytest.raises(InputError, match="twice"):
        build("ngram", config={"num-speculative-tokens": 3, "num_speculative_tokens": 4})


def test_remarks():
    assert ids("ngram", sets=["num_speculatve_tokens=3"]) == [("unknown-key", "refuse")]
    assert (
        "did you mean 'num_speculative_tokens'"
        in build("ngram", sets=["num_speculatve_tokens=3"])[1][0].reason
    )
    assert ids("ngram", sets=["num_speculative_tokens=1000"]) == [("large-k", "warn")]
    assert ids("ngram", sets=["num_speculative_tokens=32"]) == []
    assert ids("suffix", sets=["prompt_lookup_min=2"]) == [("key-without-effect", "warn")]
    assert ids("eagle3", draft=DRAFT, sets=["parallel_drafting=true"]) == [
        ("parallel-eagle3", "note")
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{'a': 1}", "column 2"),
        ('{"a": 1,\n "b" 2}', "line 2 column 6"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[1]", "must be an object"),
        ("", "not JSON"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_parse_config_says_where(text, says):
    with pytest.raises(InputError, match=says) as caught:
        parse_config(text)
    assert caught.value.field == "spec-config"


def test_parse_config_reads_and_names_the_file():
    assert parse_config(' {"num_speculative_tokens": 3}\n') == {"num_speculative_tokens": 3}
    with pytest.raises(InputError) as caught:
        parse_config('{"a": 1,\n', file="spec.json")
    assert caught.value.message.startswith("spec.json:2: spec-config: ")
