"""The command and environment of a local engine: secrets are in no command line."""

import json

import pytest

from mpctl.local.engine import api_key, engine_command, engine_environment, read_service
from mpctl.local.in_engine.serve import with_more

MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: demo}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      args: %s
"""


def engine(arguments):
    service = read_service(MANIFEST % json.dumps(["--model=org/m", *arguments]))
    return service, engine_command("python", service, 8001), engine_environment(service, {})


@pytest.mark.parametrize(
    ("arguments", "key", "passed"),
    [
        (["--api-key=PLANTED"], "PLANTED", None),
        (["--api-key", "PLANTED", "--seed=1"], "PLANTED", None),
        (["--api_key=PLANTED"], "PLANTED", None),
        (["--api-key=old", "--api-key=PLANTED"], "PLANTED", None),
        (["--api-key", "PLANTED", "PLANTED2"], None, ["--api-key", "PLANTED", "PLANTED2"]),
        (["--hf-token=PLANTED", "--api-key=PLANTED"], "PLANTED", ["--hf-token=PLANTED"]),
        (["--hf-token", "PLANTED"], None, ["--hf-token", "PLANTED"]),
    ],
)
def test_secret_flags_reach_the_engine_by_its_environment(arguments, key, passed):
    service, command, environment = engine(arguments)
    assert "PLANTED" not in " ".join(command)
    assert not any("key" in word or "token" in word for word in command)
    assert environment.get("VLLM_API_KEY") == key
    assert json.loads(environment.get("MPCTL_SECRET_ARGUMENTS", "null")) == passed
    if any("api" in word for word in arguments):
        assert api_key(service) == "PLANTED"


@pytest.mark.parametrize(
    "own", [["org/model"], ["--model=org/model"], ["--model", "org/model"]], ids=" ".join
)
def test_a_model_of_a_drill_comes_before_the_one_of_the_manifest(own):
    line, drill = (
        ["vllm", "serve", *own, "--port=1"],
        ["--model", "/v2", "--served-model-name", "m"],
    )
    flags = [word for word in own if word != "org/model" or own[0] != word]
    assert with_more(line, drill) == [
        "vllm",
        "serve",
        "--model",
        "/v2",
        *flags,
        "--port=1",
        "--served-model-name",
        "m",
    ]
    assert with_more(line, ["--api-key", "k"]) == [*line, "--api-key", "k"]


def test_other_flags_stay_in_the_command_line():
    _, command, environment = engine(["--tokenizer=org/t", "--max-num-batched-tokens=9"])
    assert command[3:-4] == ["--model=org/m", "--tokenizer=org/t", "--max-num-batched-tokens=9"]
    assert "MPCTL_SECRET_ARGUMENTS" not in environment


@pytest.mark.parametrize(
    ("arguments", "inherited", "expected"),
    [
        (["--enforce-eager"], {}, "1"),
        (["--enforce-eager"], {"TORCHDYNAMO_DISABLE": "0"}, "0"),
        (["--enforce-eager", "--no-enforce-eager"], {}, None),
        ([], {}, None),
    ],
)
def test_an_engine_that_shall_not_compile_compiles_nothing_at_its_first_answer(
    arguments, inherited, expected
):
    environment = engine_environment(engine(arguments)[0], inherited)
    assert environment.get("TORCHDYNAMO_DISABLE") == expected
