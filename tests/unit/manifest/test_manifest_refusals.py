"""What cannot be read or edited safely is refused with file, line and field."""

from __future__ import annotations

import pytest
from service_samples import EAGLE3, HEAD, container, script
from test_manifest_spellings import only

from mpctl.errors import InputError
from mpctl.manifest import load

DEPLOYMENT = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: d}
spec:
  engines:
  - name: e
    members:
    - role: Standalone
      template:
        spec:
          containers:
          - name: engine
            image: vllm/vllm-openai:v0.23.0
            args: ["--model=m"]
"""
SERVICE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: s}
spec:
  endpoints:
  - selector: {matchLabels: {modelplane.ai/deployment: d}}
"""
MEMBER = DEPLOYMENT[DEPLOYMENT.index("    - role") :]
ENGINE = DEPLOYMENT[DEPLOYMENT.index("  - name: e\n") :]
ARGS = "spec.predictor.containers[0].args"

UNREADABLE = {
    "nothing": ("", None, None, "no served model"),
    "empty documents": ("---\n---\n# only this\n", None, None, "no served model"),
    "another kind": ("apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n", None, None, "no served model"),
    "not a mapping": ("- a\n", 1, None, "mapping"),
    "syntax": ("a: 1\nb: c: d\n", 2, None, "not valid YAML"),
    "tab": ("a:\n\t- b\n", 2, None, "not valid YAML"),
    "control character": ("a: 1\nb: \x01\n", 2, None, "unprintable"),
    "duplicate key": (container("args: [m]\nimage: x\n"), 13, "image", "twice"),
    "custom tag": (container("args: !Sub [m]\n"), 12, None, "custom tag"),
    "template": ("apiVersion: v1\n{{ if x }}: 1\n", 2, None, "key"),
    "alias without anchor": ("a: *b\n", 1, None, "no anchor"),
    "merge key": (
        "x: &x {image: vllm}\n" + container("<<: *x\nargs: [m]\n"), 11, "spec.predictor.containers[0]", "merge"),
    "list of objects": ("apiVersion: v1\nkind: List\nitems: []\n", 2, "kind", "List"),
    "old api": ("apiVersion: serving.kserve.io/v1alpha2\nkind: InferenceService\n", 1, None, "v1alpha2"),
    "no predictor": ("apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\n"
                     "spec: {a: 1}\n",
                     4, "spec", "predictor"),
    "several nodes": (HEAD.replace("    containers:", "    workerSpec: {size: 2}\n    containers:"), 9,
                      "spec.predictor.workerSpec", "several nodes"),
    "no vllm": (HEAD.replace("vllm/vllm-openai:v0.23.0", "nginx"), 10, "spec.predictor.containers", "no vLLM engine"),
    "no vllm format": ("apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\n"
                       "spec:\n  predictor:\n    model: {modelFormat: {name: sklearn}}\n", 6, "spec.predictor.model",
                       "no vLLM engine"),
    "unknown command": (container("command: [/entry.sh]\nargs: [m]\n"), 12, "spec.predictor.containers[0].command",
                        "no vLLM engine"),
    "script without an engine": (script("sleep 1\n"), 14, ARGS + "[0]", "no vLLM engine"),
    "script with two engines": (script("vllm serve a & vllm serve b\n"), 14, ARGS + "[0]", "more than one"),
    "open quote": (script("vllm serve 'a\n"), 14, ARGS + "[0]", "single quote is never closed"),
    "two engines": (HEAD.replace("name: kserve-container", "name: a") + "    - image: vllm\n      name: b\n", 12,
                    "spec.predictor.containers[1]", "more than one container"),
    "same name": (container("args: [m]\n") + "---\n" + container("args: [m]\n"), 14, None, "twice"),
    "args a mapping": (container("args: {a: b}\n"), 12, ARGS, "list"),
    "args of mappings": (container("args:\n- m\n- a: b\n"), 14, ARGS + "[1]", "text"),
    "leader and worker": (DEPLOYMENT.replace("Standalone", "Leader"), 8, "spec.engines[0].members[0].role", "Leader"),
    "several members": (DEPLOYMENT + MEMBER, 8, "spec.engines[0].members", "2 members"),
    "several engines": (DEPLOYMENT + ENGINE, 6, "spec.engines", "2 engines"),
    "prefill and decode": (DEPLOYMENT.replace("spec:\n  engines", "spec:\n  serving: {mode: PrefillDecode}\n  engines"),
                           5, "spec.serving.mode", "PrefillDecode"),
    "both generations": (DEPLOYMENT + "  template: {spec: {engines: []}}\n", 6, "spec.engines", "both"),
    "no engine container": (DEPLOYMENT.replace("name: engine", "name: main"), 12,
                            "spec.engines[0].members[0].template.spec.containers", '"engine"'),
    "not vllm": (DEPLOYMENT.replace("vllm/vllm-openai:v0.23.0", "lmsysorg/sglang"), 12,
                 "spec.engines[0].members[0].template.spec.containers[0]", "the engine is SGLang"),
    "route to nowhere": (DEPLOYMENT.replace("{name: d}", "{name: x}") + "---\n" + SERVICE, 21,
                         "spec.endpoints[0].selector.matchLabels.modelplane.ai/deployment", "not in this file"),
    "route elsewhere": (DEPLOYMENT + "---\n" + SERVICE.replace("modelplane.ai/deployment", "x"), 21,
                        "spec.endpoints[0]", "does not select"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable(name: str) -> None:
    text, line, field, reason = UNREADABLE[name]
    with pytest.raises(InputError, match=reason) as caught:
        load(text, file="svc.yaml")
    assert (caught.value.file, caught.value.line, caught.value.field) == ("svc.yaml", line, field)


def test_a_route_joins_its_deployment() -> None:
    (service,) = load(SERVICE + "---\n" + DEPLOYMENT)
    assert service.endpoints == ("s",)


UNEDITABLE = {
    "shell variable": (script('vllm serve m --speculative-config "$SPEC"\n'), 14, "variables or the shell"),
    "substitution": (script("vllm serve m --speculative-config=$(cat /spec)\n"), 14, "variables or the shell"),
    "part of the value": (script("vllm serve m -sc '{\"model\": \"'$DRAFT'\"}'\n"), 14, "variables or the shell"),
    "kubernetes variable": (container("env:\n- {name: S, value: x}\nargs: ['--speculative-config=$(S)']\n"), 14,
                            "variables"),
    "variable with flags": (script("vllm serve m $MORE\n") + "      env: [{name: MORE, value: -sc x}]\n", 14, "MORE"),
    "variable called so": (script("vllm serve m $SPEC_ARGS\n"), 14, "SPEC_ARGS"),
    "array": (script("A=(--speculative-config x)\nvllm serve m \"${A[@]}\"\n"), 14, "another command"),
    "broken json": (container("args:\n- m\n- '--speculative-config={a}'\n"), 14, "not valid JSON"),
    "json taken apart by the shell": (script('vllm serve m --speculative-config={"a":1}\n'), 14, "not valid JSON"),
    "json list": (container("args:\n- m\n- '--speculative-config=[1]'\n"), 14, "JSON object"),
    "no value": (container("args:\n- m\n- --speculative-config\n"), 14, "no value"),
    "short flag twice told": (container("args: [m, '-sc={\"method\":\"a\"}', --spec-method=b]\n"), 12,
                              "exclude each other"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEDITABLE)
def test_a_setting_that_cannot_be_read_is_not_edited(name: str) -> None:
    text, line, reason = UNEDITABLE[name]
    service = only(text)
    for act in (service.speculation, lambda: service.with_speculation(EAGLE3)):
        with pytest.raises(InputError, match=reason) as caught:
            act()
        assert (caught.value.file, caught.value.line) == ("svc.yaml", line)


def test_shared_arguments_are_read_but_not_edited() -> None:
    head, tail = container("args: &a\n- m\n"), "      ports: []\n  other: *a\n"
    service = only(head + tail)
    assert service.command.argv == ("m",)
    with pytest.raises(InputError, match="shared"):
        service.with_speculation(EAGLE3)
    item = only("x: &s '--speculative-config={\"a\":1}'\n" + container("args: [m, *s]\n"))
    assert item.speculation() == {"a": 1}
    with pytest.raises(InputError, match="shared") as caught:
        item.with_speculation(EAGLE3)
    assert caught.value.line == 13
    removed = item.with_speculation(None).to_yaml()
    assert removed == "x: &s '--speculative-config={\"a\":1}'\n" + container("args: [m]\n")


def test_anchors_elsewhere_do_not_matter() -> None:
    text = container("args: &unused\n- &m m\nlabels: &l {a: b}\nmore: *l\nmodel: *m\n")
    assert only(text).with_speculation(EAGLE3).with_speculation(None).to_yaml() == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (container("args:\n"), "empty"),
        (container("command: [sh, -c, vllm serve m]\n"), "quote the script|cannot hold"),
        (container("args:\n- # why\n  m\n"), "cannot be edited safely"),
    ],
)
def test_places_that_cannot_be_edited(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        only(text).with_speculation(EAGLE3)
