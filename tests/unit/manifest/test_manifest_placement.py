"""Where a new setting goes, and that taking it away again gives the original bytes."""

from __future__ import annotations

import pytest
from service_samples import METHODS, NGRAM, container, script
from test_manifest_spellings import changes, only

from mpctl.manifest import load

SMALL = {"method": "ngram", "num_speculative_tokens": 5}
JSON = '{"method": "ngram", "num_speculative_tokens": 5}'
DOUBLE = '"--speculative-config={\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 5}"'
SINGLE = f"'--speculative-config={JSON}'"

ADDED = {
    "block, double": (container('args:\n- "--model=m"\n'), [f"+      - {DOUBLE}"]),
    "block, single": (container("args:\n- '--model=m'\n"), [f"+      - {SINGLE}"]),
    "block, plain": (container("args:\n- --model=m\n"), [f"+      - {SINGLE}"]),
    "block, apart": (
        container("args:\n  - --model\n  - m\n  - --enforce-eager # last\n# after\n"),
        ["+        - --speculative-config", f"+        - '{JSON}'"],
    ),
    "number": (
        container("args:\n- --model=m\n- --port\n- 8000\n"),
        ["+      - --speculative-config", f"+      - '{JSON}'"],
    ),
    "after a literal": (
        container('args:\n- "--model=m"\n- |\n  --chat-template=x\n  y\n\nports: []\n'),
        [f"+      - {DOUBLE}"],
    ),
    "no args": (container(""), ["+      args:", f"+      - {SINGLE}"]),
    "after command": (
        container("command: [sleep]\n").replace("[sleep]", "[/usr/bin/vllm, serve, m]"),
        [
            "-      command: [/usr/bin/vllm, serve, m]",
            f"+      command: [/usr/bin/vllm, serve, m, {SINGLE}]",
        ],
    ),
    "empty flow": (container("args: []\n"), ["-      args: []", f"+      args: [{SINGLE}]"]),
    "script": (
        script("set -e\nexec vllm serve m \\\n  --port 80\n"),
        [
            "-          --port 80",
            "+          --port 80 \\",
            f"+          --speculative-config '{JSON}'",
        ],
    ),
    "script before operators": (
        script("cd /tmp && vllm serve m --port=80 --x=$Y > /log 2>&1 || sleep 9 # why\n"),
        [
            "-        cd /tmp && vllm serve m --port=80 --x=$Y > /log 2>&1 || sleep 9 # why",
            f"+        cd /tmp && vllm serve m --port=80 --x=$Y --speculative-config='{JSON}' "
            "> /log 2>&1 || sleep 9 # why",
        ],
    ),
    "script with a comment": (
        script("vllm serve m # --port 80\n"),
        [
            "-        vllm serve m # --port 80",
            f"+        vllm serve m --speculative-config '{JSON}' # --port 80",
        ],
    ),
    "script with positional words": (
        container(
            'command: [bash, -euo, pipefail, -c, \'exec vllm serve m "$@"\', --]\nargs: [--port, "80"]\n'
        ),
        [
            "-      command: [bash, -euo, pipefail, -c, 'exec vllm serve m \"$@\"', --]",
            "+      command: [bash, -euo, pipefail, -c, 'exec vllm serve m --speculative-config "
            f"''{JSON}'' \"$@\"', --]",
        ],
    ),
    "folded script": (
        script("exec vllm serve m\n--port 80\n", ">"),
        ["+        --speculative-config '" + JSON + "'"],
    ),
    "crlf": (container("args:\n- --model=m\n").replace("\n", "\r\n"), [f"+      - {SINGLE}"]),
    "no final newline": (container("args:\n- --model=m"), [f"+      - {SINGLE}"]),
    "module": (
        container(
            "command: [python3, -m, vllm.entrypoints.openai.api_server]\nargs:\n- --model\n- m\n"
        ),
        ["+      - --speculative-config", f"+      - '{JSON}'"],
    ),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_new_setting_is_written_like_its_siblings_and_leaves_no_trace(name: str) -> None:
    text, expected = ADDED[name]
    service = only(text)
    changed = service.with_speculation(SMALL)
    assert changes(text, changed.to_yaml()) == expected
    assert changed.speculation() == SMALL
    assert changed.with_speculation(None).to_yaml() == text
    for config in METHODS:
        for style in ("json", "dotted"):
            other = service.with_speculation(config, style=style)
            assert other.speculation() == config
            assert other.with_speculation(None).to_yaml() == text
            assert other.command.model == service.command.model


FLOW = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: svc}
spec: {predictor: {model: {modelFormat: {name: vLLM}, storageUri: "pvc://m"}}}
"""
JSON_FILE = (
    '{"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "svc"},\n'
    ' "spec": {"predictor": {"model": {"modelFormat": {"name": "vLLM"}}}}}\n'
)


@pytest.mark.parametrize("text", [FLOW, JSON_FILE, FLOW.replace("}}}}", "}, args: []}}}")])
def test_flow_mappings_gain_and_lose_args(text: str) -> None:
    changed = only(text).with_speculation(NGRAM)
    assert changed.speculation() == NGRAM
    assert changed.with_speculation(None).to_yaml() == text


def test_a_json_file_stays_json() -> None:
    import json

    changed = only(JSON_FILE).with_speculation(NGRAM)
    args = json.loads(changed.to_yaml())["spec"]["predictor"]["model"]["args"]
    assert len(args) == 1 and args[0].startswith("--speculative-config={")


@pytest.mark.parametrize("dash", ["", "  "])
def test_args_that_were_missing_follow_the_indentation_of_the_file(dash: str) -> None:
    text = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: svc\n"
        f"  finalizers:\n  {dash}- a\nspec:\n  predictor:\n    model:\n      modelFormat:\n        name: vLLM\n"
        "      resources: {}\n"
    )
    changed = only(text).with_speculation(SMALL)
    assert changes(text, changed.to_yaml()) == ["+      args:", f"+      {dash}- {SINGLE}"]
    assert changed.with_speculation(None).to_yaml() == text


def test_the_last_argument_goes_without_leaving_a_broken_list() -> None:
    first = container("").replace(
        "name: kserve-container\n      image", f"args:\n      - {SINGLE}\n      image"
    )
    without = only(first).with_speculation(None)
    assert "    - args: []\n      image:" in without.to_yaml()
    assert without.with_speculation(SMALL).with_speculation(None).to_yaml() == without.to_yaml()
    commented = container(f"args: # why\n- {SINGLE}\n")
    assert only(commented).with_speculation(None).to_yaml() == container("args: []\n")


def test_comments_between_flow_items_stay() -> None:
    text = container(f"args: [\n  --model=m, # a\n  {SINGLE}, # b\n  --port=1 # c\n]\n")
    without = only(text).with_speculation(None).to_yaml()
    assert all(comment in without for comment in ("# a", "# b", "# c"))
    assert load(without)[0].command.argv == ("--model=m", "--port=1")


def test_only_the_chosen_service_of_a_file_changes() -> None:
    other = container("args:\n- --model=m\n").replace("name: svc", "name: other")
    text = container("args:\n- --model=m\n") + "---\n" + other + "...\n---\n# nothing\n"
    first, second = load(text)
    changed = second.with_speculation(SMALL)
    assert changed.to_yaml().startswith(container("args:\n- --model=m\n"))
    again, edited = load(changed.to_yaml())
    assert again.speculation() is None
    assert edited.speculation() == SMALL
    assert first.text == second.text != changed.text
