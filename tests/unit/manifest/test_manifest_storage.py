"""A draft staged into a service and out again: the same storage, and the same bytes but for a storageUri that moved."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import EAGLE3, METHODS

from mpctl.errors import InputError
from mpctl.manifest import load
from mpctl.manifest.draft_storage import DRAFT_MOUNT, with_claim, with_entry, without_draft

few = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HF, PVC, OCI = "hf://Qwen/Qwen3-8B", "pvc://models/qwen", "oci://registry.example/qwen:1"
URIS = [HF, PVC, OCI, "s3://bucket/a b", "gs://x/y#z"]

spelled = st.sampled_from([lambda t: t, lambda t: f'"{t}"', lambda t: f"'{t}'"])
remarks = st.sampled_from(["", "  # the target", " #x: y"])
newlines = st.sampled_from(["\n", "\r\n"])


def quoted(draw, text):
    made = draw(spelled)(text)
    return f'"{text}"' if made == text and (" #" in text or ": " in text) else made


@st.composite
def runtimes(draw):
    """A predictor with model: any storage, args, order, comments, block or flow."""
    uri = draw(st.sampled_from(URIS))
    storage = draw(st.sampled_from(["model", "predictor", "uris", "uris-flow", "none"]))
    inner = [["modelFormat:", "  name: vLLM"], ["runtime: kserve-vllmserver" + draw(remarks)]]
    if draw(st.booleans()):
        inner.append(["args:", "- --max-model-len=4096" + draw(remarks), "- '--port=8080'"])
    if draw(st.booleans()):
        inner.append(["# a line of its own", "env: [{name: A, value: 'b'}]"])
    if draw(st.booleans()):
        inner.append(["volumeMounts:", "- name: cache", "  mountPath: /cache"])
    outer = []
    if storage == "model":
        above = draw(st.sampled_from([[], ["# the model, in our registry"]]))
        inner.append([*above, f"storageUri: {quoted(draw, uri)}" + draw(remarks)])
    elif storage == "predictor":
        outer.append([f"storageUri: {quoted(draw, uri)}" + draw(remarks)])
    elif storage == "uris":
        outer.append(
            [
                "storageUris:",
                f"- uri: {quoted(draw, uri)}" + draw(remarks),
                "  mountPath: /mnt/models",
            ]
        )
    elif storage == "uris-flow":
        outer.append([f"storageUris: [{{uri: '{uri}', mountPath: /mnt/models}}]" + draw(remarks)])
    inner = draw(st.permutations(inner))
    flow = storage != "model" and draw(st.booleans()) and "# a line" not in str(inner)
    model = ["model: {modelFormat: {name: vLLM}, runtime: 'kserve-vllmserver'}"] if flow else None
    if model is None and storage == "model" and draw(st.booleans()):
        model = [f"model: {{storageUri: '{uri}', modelFormat: {{name: vLLM}}}}" + draw(remarks)]
    outer.append(model or ["model:", *(f"  {line}" for part in inner for line in part)])
    if draw(st.booleans()):
        outer.append(["minReplicas: 1" + draw(remarks)])
    if draw(st.booleans()):
        outer.append(["volumes:", "- name: cache", "  emptyDir: {}"])
    if draw(st.booleans()):
        outer.append(
            ["volumes: []"] if not any(part[0] == "volumes:" for part in outer) else ["timeout: 5"]
        )
    return write(draw, draw(st.permutations(outer)))


@st.composite
def containers(draw):
    """A predictor with its own container; command, args or a script."""
    start = draw(
        st.sampled_from(
            [
                ["args: ['--model=/mnt/models', --port, '8080']"],
                ["command: [vllm, serve]", "args:", "- /mnt/models" + draw(remarks)],
                [
                    "command: [sh, -c]",
                    "args:",
                    "- |",
                    "  exec vllm serve /mnt/models \\",
                    "    --port 8080",
                ],
                [
                    "command:",
                    "- python3",
                    "- -m",
                    "- vllm.entrypoints.openai.api_server",
                    "args: []",
                ],
            ]
        )
    )
    body = [["image: vllm/vllm-openai:v0.30.0" + draw(remarks)], start]
    if draw(st.booleans()):
        body.append(["volumeMounts: [{name: m, mountPath: /mnt/models}]"])
    lines = [
        "name: kserve-container",
        *(line for part in draw(st.permutations(body)) for line in part),
    ]
    outer = [["containers:", f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]]
    if draw(st.booleans()):
        outer.append(["volumes:", "- {name: m, persistentVolumeClaim: {claimName: models}}"])
    if draw(st.booleans()):
        outer.append(["storageUris:", "- mountPath: /mnt/models", f"  uri: {HF}"])
    return write(draw, draw(st.permutations(outer)))


def write(draw, parts):
    head = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s, namespace: n}\nspec:\n"
    body = "".join(f"    {line}\n" for part in parts for line in part)
    tail = draw(
        st.sampled_from(
            ["", "# end\n", "---\nkind: ConfigMap\napiVersion: v1\ndata: {a: b}\n", "\n\n"]
        )
    )
    text = head + "  predictor:" + draw(remarks) + "\n" + body + tail
    text = text.rstrip("\n") if draw(st.booleans()) else text
    return text.replace("\n", draw(newlines))


EDITS = {
    "entry": lambda service: with_entry(service, "hf://org/draft:main"),
    "claim": lambda service: with_claim(service, "drafts", "org--draft@main"),
}


@few
@given(runtimes() | containers(), st.sampled_from(sorted(EDITS)), st.sampled_from(METHODS))
def test_a_draft_in_and_out_again_leaves_what_is_served(text, edit, config):
    service = load(text)[0]
    try:
        there = EDITS[edit](service)
    except InputError as error:
        assert error.hint, "a refusal says what to do"
        return
    assert without_draft(service) is service
    rolled = there.with_speculation(config)
    assert rolled.speculation() == config
    for left in (
        without_draft(rolled.with_speculation(None)),
        without_draft(rolled).with_speculation(None),
    ):
        assert left.speculation() is None
        assert [(one.uri, one.mount_path) for one in left.storage] == [
            (one.uri, one.mount_path) for one in service.storage
        ]
        if edit == "claim" or "storageUri:" not in text:
            assert left.text == text
    # and what a record kept is what is put back
    assert load(service.to_yaml())[0].text == text


@few
@given(runtimes())
def test_every_block_manifest_can_be_staged(text):
    service = load(text)[0]
    claim = with_claim(service, "drafts", "d")
    assert (
        f"mountPath: {DRAFT_MOUNT}" in claim.text or f'"mountPath": "{DRAFT_MOUNT}"' in claim.text
    )
    entry = with_entry(service, "hf://org/draft")
    assert [one.mount_path for one in entry.storage][-1] == DRAFT_MOUNT
    assert [one.uri for one in entry.storage][:-1] == [one.uri for one in service.storage]


BLOCK = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: chat
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      # where the target comes from
      storageUri: hf://Qwen/Qwen3-8B  # 16 GiB
      args:
      - --max-model-len=8192
"""


def test_a_moved_key_as_people_see_it():
    speculation = with_entry(
        load(BLOCK)[0], "hf://RedHatAI/Qwen3-8B-speculator.eagle3"
    ).with_speculation(EAGLE3)
    lines = speculation.text.splitlines()
    position = lines.index("    storageUris:")
    assert lines[position : position + 6] == [
        "    storageUris:",
        "    - uri: hf://Qwen/Qwen3-8B",
        "      mountPath: /mnt/models",
        "    - uri: hf://RedHatAI/Qwen3-8B-speculator.eagle3",
        "      mountPath: /mnt/mpctl/draft",
        "    model:",
    ]
    assert "storageUri:" not in speculation.text
    assert "# mpctl" not in speculation.text, "a manifest says what is served, not what mpctl did"


def test_leaving_the_draft_keeps_the_target_in_the_list():
    draft = without_draft(with_entry(load(BLOCK)[0], "hf://org/draft"))
    assert [(one.uri, one.mount_path) for one in draft.storage] == [
        ("hf://Qwen/Qwen3-8B", "/mnt/models")
    ]
    assert without_draft(draft) is draft


def test_leaving_the_draft_keeps_the_target_whatever_stands_around_it():
    """A setting inserted near the place that storageUri had must not take the target away."""
    text = (
        BLOCK.replace("      args:\n      - --max-model-len=8192\n", "")
        .replace("      # where the target comes from\n", "")
        .replace(
            "{name: vLLM}\n",
            "{name: vLLM}\n      runtime: vllm-runtime\n      # the model lies in our registry\n",
        )
    )
    rolled = with_entry(load(text)[0], "hf://org/head").with_speculation(EAGLE3)
    for again in (rolled.with_speculation(None), rolled):
        draft = without_draft(again)
        assert [one.uri for one in draft.storage] == ["hf://Qwen/Qwen3-8B"]
        assert draft.speculation() == again.speculation()


def test_what_somebody_added_since_is_kept():
    entry = with_entry(load(BLOCK)[0], "hf://org/draft")
    more = entry.text.replace(
        "      mountPath: /mnt/mpctl/draft\n",
        "      mountPath: /mnt/mpctl/draft\n    - uri: hf://org/adapter\n      mountPath: /mnt/adapter\n",
    )
    draft = without_draft(load(more)[0])
    assert [one.uri for one in draft.storage] == ["hf://Qwen/Qwen3-8B", "hf://org/adapter"]


@pytest.mark.parametrize(
    ("there", "now"),
    [
        ("uri: hf://Qwen/Qwen3-8B\n", "uri: hf://Qwen/Qwen3-8B:new\n"),
        ("mountPath: /mnt/models\n", "mountPath: /mnt/models/target\n"),
    ],
)
def test_a_target_changed_since_is_kept(there, now):
    changed = with_entry(load(BLOCK)[0], "hf://org/draft").text.replace(there, now)
    draft = without_draft(load(changed)[0])
    assert now in draft.text
    assert [one.uri for one in draft.storage] == [changed.partition("- uri: ")[2].splitlines()[0]]
    again = with_entry(draft, "hf://org/other")
    assert without_draft(again).text == draft.text


def test_a_target_that_came_since_is_kept_and_one_that_went_stays_away():
    bare = BLOCK.replace("      storageUri: hf://Qwen/Qwen3-8B  # 16 GiB\n", "")
    entry = "    - uri: hf://Qwen/Qwen3-8B\n      mountPath: /mnt/models\n"
    came = with_entry(load(bare)[0], "hf://org/draft").text.replace(
        "storageUris:\n", "storageUris:\n" + entry
    )
    assert [one.uri for one in without_draft(load(came)[0]).storage] == ["hf://Qwen/Qwen3-8B"]
    went = with_entry(load(BLOCK)[0], "hf://org/draft").text.replace(entry, "")
    assert without_draft(load(went)[0]).text == bare


@pytest.mark.parametrize(
    ("text", "edit", "says"),
    [
        (
            BLOCK.replace("    model:\n", "    model: &m\n") + "    extra: *m\n",
            "claim",
            "an edit would change both",
        ),
        (
            BLOCK.replace("      args:\n      - --max-model-len=8192\n", "      volumeMounts:\n"),
            "claim",
            "is empty",
        ),
        (
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s}\n"
            "spec: {predictor: {model: {modelFormat: {name: vLLM}, storageUri: 'hf://a/b'}}}\n",
            "entry",
            "one flow mapping",
        ),
    ],
)
def test_what_cannot_be_edited_is_refused_with_its_line(text, edit, says):
    with pytest.raises(InputError, match=says) as caught:
        EDITS[edit](load(text, file="s.yaml")[0])
    assert caught.value.file == "s.yaml"
    assert caught.value.line
    assert caught.value.hint


def test_a_second_draft_is_refused():
    for edit in ("entry", "claim"):
        there = EDITS[edit](load(BLOCK)[0])
        with pytest.raises(InputError, match="already"):
            EDITS[edit](there)
