"""Restoring what mpctl changed while what others changed stays."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.manifest import foreign_changes, load_one
from mpctl.manifest.merge.three_way import ClashError, kept_fields, merge, own_changes
from mpctl.manifest.text.yaml_tree import dump

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
OTHER = {"method": "ngram", "num_speculative_tokens": 7}
SERVICE = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "qwen", "namespace": "chat", "labels": {"team": "ml"}},
    "spec": {
        "predictor": {
            "minReplicas": 1,
            "model": {
                "modelFormat": {"name": "vLLM"},
                "storageUri": "hf://org/model",
                "args": ["--max-model-len=4096", "--port", "8080", "--enforce-eager"],
                "env": [{"name": "LOG", "value": "info"}],
            },
        }
    },
}
BEFORE = dump(SERVICE)
# A user's own file: comments, flow style, a shell script.
FILE = """\
# ours
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}  # the name
spec:
  predictor:
    minReplicas: 1

    containers:
      - name: kserve-container
        image: vllm/vllm-openai:v0.32.0
        command: [sh, -c]
        args:
          - |
            # the engine
            exec vllm serve org/model --max-model-len 4096 \\
              --port 8080
"""


def with_spec(text, config=NGRAM):
    return load_one(text, None).with_speculation(config).to_yaml()


def canonical(text):
    return dump(yaml.safe_load(text))


AFTER = canonical(with_spec(BEFORE))


def edited(text, change):
    document = yaml.safe_load(text)
    change(document, document["spec"]["predictor"]["model"])
    return dump(document)


def argument(name, value):
    def change(document, model):
        model["args"] = [a for a in model["args"] if not a.startswith(f"{name}=")] + [
            f"{name}={value}"
        ]

    return change


FOREIGN = {
    "label": (lambda d, m: d["metadata"]["labels"].update(tier="gold"), "metadata.labels.tier"),
    "changed label": (
        lambda d, m: d["metadata"]["labels"].update(team="x"),
        "metadata.labels.team",
    ),
    "removed label": (lambda d, m: d["metadata"]["labels"].pop("team"), "metadata.labels.team"),
    "annotation": (
        lambda d, m: d["metadata"].update(annotations={"a": "b"}),
        "metadata.annotations",
    ),
    "replicas": (
        lambda d, m: d["spec"]["predictor"].update(minReplicas=3),
        "spec.predictor.minReplicas",
    ),
    "argument": (argument("--max-num-seqs", 8), "spec.predictor.model.args --max-num-seqs"),
    "changed argument": (
        argument("--max-model-len", 8),
        "spec.predictor.model.args --max-model-len",
    ),
    "removed argument": (
        lambda d, m: m["args"].remove("--enforce-eager"),
        "spec.predictor.model.args --enforce-eager",
    ),
    "first argument": (
        lambda d, m: m["args"].insert(0, "--seed=1"),
        "spec.predictor.model.args --seed",
    ),
    "environment": (
        lambda d, m: m["env"].append({"name": "A", "value": "b"}),
        "spec.predictor.model.env[A]",
    ),
    "variable": (
        lambda d, m: m["env"][0].update(value="debug"),
        "spec.predictor.model.env[LOG].value",
    ),
    "model": (
        lambda d, m: m.update(storageUri="hf://org/other"),
        "spec.predictor.model.storageUri",
    ),
    "volume": (
        lambda d, m: d["spec"]["predictor"].update(volumes=[{"name": "v", "emptyDir": {}}]),
        "spec.predictor.volumes",
    ),
}
each_change = pytest.mark.parametrize("change", FOREIGN)


@each_change
def test_another_writers_change_is_kept_and_the_setting_goes(change):
    act, path = FOREIGN[change]
    merged = merge(BEFORE, edited(AFTER, act), AFTER, [BEFORE, AFTER])
    assert merged.text == edited(BEFORE, act)
    assert merged.preserved == (path,)


@each_change
def test_in_the_middle_of_a_rollout_the_live_manifest_may_have_no_setting_yet(change):
    act, _ = FOREIGN[change]
    assert merge(BEFORE, edited(BEFORE, act), AFTER, [BEFORE, AFTER]).text == edited(BEFORE, act)


@each_change
def test_a_rollback_can_bring_a_setting_back(change):
    act, _ = FOREIGN[change]
    live = edited(BEFORE, act)
    text = merge(AFTER, live, BEFORE, [BEFORE, AFTER]).text
    assert load_one(text, None).speculation() == NGRAM
    assert foreign_changes(live, text) == ()


def test_without_another_change_every_byte_is_restored():
    assert merge(BEFORE, AFTER, AFTER, [BEFORE, AFTER]).text == BEFORE
    assert merge(AFTER, BEFORE, BEFORE, [BEFORE, AFTER]).text == AFTER
    assert merge(FILE, with_spec(FILE), with_spec(FILE), [FILE]).text == FILE


@each_change
def test_a_changed_setting_is_a_conflict_of_that_field_alone(change):
    act, _ = FOREIGN[change]
    live = edited(canonical(with_spec(BEFORE, OTHER)), act)
    with pytest.raises(ClashError) as caught:
        merge(BEFORE, live, AFTER, [BEFORE, AFTER])
    (clash,) = caught.value.clashes
    assert clash.path == "spec.predictor.model.args --speculative-config"
    assert '"num_speculative_tokens": 4' in str(clash.before)
    assert '"num_speculative_tokens": 7' in str(clash.after)


def test_a_setting_that_mpctl_recorded_once_is_restored_over():
    other = canonical(with_spec(BEFORE, OTHER))
    assert merge(BEFORE, other, AFTER, [BEFORE, other, AFTER]).text == BEFORE
    assert (
        merge(BEFORE, other, BEFORE, [BEFORE, other]).text == BEFORE
    )  # it came back after a rollback


def test_a_key_that_another_writer_added_to_the_setting_is_a_conflict():
    live = edited(AFTER, argument("--speculative-config.num_speculative_tokens", 9))
    with pytest.raises(ClashError) as caught:
        merge(BEFORE, live, AFTER, [BEFORE, AFTER])
    assert [c.path for c in caught.value.clashes] == [
        "spec.predictor.model.args --speculative-config.num_speculative_tokens"
    ]


def staged(document, model):
    del model["storageUri"]
    document["spec"]["predictor"]["storageUris"] = [
        {"uri": "hf://org/model", "mountPath": "/mnt/models"},
        {"uri": "hf://org/draft", "mountPath": "/mnt/mpctl/draft"},
    ]


STAGED = edited(AFTER, staged)


@each_change
def test_a_staged_draft_goes_with_its_setting(change):
    if change == "model":
        return
    act, _ = FOREIGN[change]
    assert merge(BEFORE, edited(STAGED, act), STAGED, [BEFORE, STAGED]).text == edited(BEFORE, act)
    assert merge(BEFORE, edited(STAGED, act), BEFORE, [BEFORE, STAGED]).text == edited(BEFORE, act)


def test_another_artifact_beside_a_staged_draft_is_a_conflict():
    live = STAGED.replace("uri: hf://org/model", "uri: hf://org/newer")
    with pytest.raises(ClashError) as caught:
        merge(BEFORE, live, STAGED, [BEFORE, STAGED])
    assert [c.path for c in caught.value.clashes] == ["spec.predictor.storageUris"]


def test_a_claims_volume_goes_and_another_volume_stays():
    def claim(document, model):
        document["spec"]["predictor"]["volumes"] = [
            {"name": "mpctl-draft", "persistentVolumeClaim": {"claimName": "drafts"}}
        ]
        model["volumeMounts"] = [{"name": "mpctl-draft", "mountPath": "/mnt/mpctl/draft"}]

    def other(document, model):
        document["spec"]["predictor"].setdefault("volumes", []).append(
            {"name": "cache", "emptyDir": {}}
        )

    left = edited(AFTER, claim)
    merged = merge(BEFORE, edited(left, other), left, [BEFORE, left])
    assert merged.text == edited(BEFORE, other)
    assert merge(BEFORE, left, left, [BEFORE, left]).text == BEFORE


def test_a_users_file_keeps_its_comments():
    spec = with_spec(FILE)
    live = spec.replace("minReplicas: 1", "minReplicas: 3  # more")
    assert merge(FILE, live, spec, [FILE, spec]).text == FILE.replace(
        "minReplicas: 1", "minReplicas: 3  # more"
    )


def test_words_of_a_script_are_merged():
    spec = with_spec(FILE)
    live = spec.replace("--max-model-len 4096", "--max-model-len 8192")
    assert live != spec
    text = merge(FILE, live, spec, [FILE, spec]).text
    assert text == FILE.replace("--max-model-len 4096", "--max-model-len 8192")


def test_a_script_whose_setting_was_changed_is_a_conflict():
    spec = with_spec(FILE)
    with pytest.raises(ClashError):
        merge(FILE, with_spec(FILE, OTHER), spec, [FILE, spec])


def test_an_older_revision_takes_no_recorded_change_of_others_back():
    act = FOREIGN["label"][0]
    labelled = edited(AFTER, act)
    assert merge(BEFORE, labelled, labelled, [BEFORE, AFTER, labelled]).text == edited(BEFORE, act)


def test_fields_are_named_apart():
    live = edited(canonical(with_spec(BEFORE, OTHER)), FOREIGN["label"][0])
    assert kept_fields(AFTER, live) == ("metadata.labels.tier",)
    assert own_changes(AFTER, live) == ("spec.predictor.model.args --speculative-config",)
    assert own_changes(AFTER, edited(AFTER, FOREIGN["label"][0])) == ()


names = st.sampled_from(
    ["--seed", "--max-num-seqs", "--block-size", "--dtype", "--swap-space", "--quantization"]
)
arguments = st.lists(
    st.tuples(names, st.integers(1, 9), st.booleans()), max_size=5, unique_by=lambda a: a[0]
)
configs = st.sampled_from([None, NGRAM, OTHER])


def spelled(found):
    return [
        word
        for name, value, joined in found
        for word in ([f"{name}={value}"] if joined else [name, str(value)])
    ]


def service(found, labels, config):
    document = yaml.safe_load(BEFORE)
    document["spec"]["predictor"]["model"]["args"] = spelled(found)
    document["metadata"]["labels"] = labels
    text = dump(document)
    return text if config is None else canonical(with_spec(text, config))


@settings(max_examples=60, deadline=None)
@given(
    arguments,
    arguments,
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    configs,
    configs,
    st.data(),
)
def test_no_foreign_change_is_lost_and_no_setting_of_ours_stays(
    first, second, labels, before, after, data
):
    """Whatever others change, the result is theirs but for the setting, which is the recorded one."""
    target, actual_service = service(first, {}, before), service(first, {}, after)
    live = service(second, labels, data.draw(st.sampled_from([before, after])))
    merged = merge(target, live, actual_service, [target, actual_service]).text
    assert load_one(merged, None).speculation() == before
    assert foreign_changes(live, merged) == ()
    assert merge(target, merged, actual_service, [target, actual_service]).text == merged
    if (first, labels) == (second, {}):
        assert merged == target


@each_change
def test_a_rollback_can_stage_a_draft_again(change):
    if change == "model":
        return
    live = edited(BEFORE, FOREIGN[change][0])
    text = merge(STAGED, live, BEFORE, [BEFORE, STAGED]).text
    assert own_changes(STAGED, text) == ()
    assert foreign_changes(live, text) == ()
