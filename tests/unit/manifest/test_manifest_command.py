"""The command line as vLLM's parser sees it, and what else a service says."""

from __future__ import annotations

import pytest
from service_samples import container, script
from test_manifest_spellings import only

from mpctl.errors import InputError
from mpctl.manifest import EngineCommand, Storage, load, select


@pytest.mark.parametrize(
    ("argv", "flag", "value"),
    [
        (["--port=1", "--port", "2"], "port", "2"),
        (["--tensor_parallel_size=2"], "-tp", "2"),
        (["-tp", "4"], "--tensor-parallel-size", "4"),
        (["--enforce-eager", "m", "--port", "1"], "--enforce-eager", None),
        (["--enable-lora", "--port", "1"], "--enable-lora", None),
        (["--seed", "-1"], "--seed", "-1"),
        (["--served-model-name", "a", "b", "--port", "1"], "served_model_name", "a"),
        (["-O3"], "--optimization-level", "3"),
        (["-O", "2"], "--optimization-level", "2"),
        (["--x="], "--x", ""),
    ],
)
def test_values(argv: list[str], flag: str, value: str | None) -> None:
    assert EngineCommand(tuple(argv)).get(flag) == value


def test_switches() -> None:
    command = EngineCommand(
        ("m", "--enable-prefix-caching", "--no-async-scheduling", "--no-enable-prefix-caching")
    )
    assert not command.has("--enable-prefix-caching")
    assert not command.has("async_scheduling")
    assert EngineCommand(("--no-enforce-eager", "--enforce-eager")).has("enforce-eager")
    assert command.model == "m"
    assert dict(EngineCommand(("--port", "1", "--headless")).flags()) == {
        "--port": "1",
        "--headless": None,
    }


@pytest.mark.parametrize(
    ("body", "entrypoint", "argv"),
    [
        ("args: [m, --port, 80]\n", None, ("m", "--port", "80")),
        ("command: [vllm, serve]\nargs: [m]\n", ("vllm", "serve"), ("m",)),
        ("command: [/opt/bin/vllm]\nargs: [serve, m]\n", ("/opt/bin/vllm", "serve"), ("m",)),
        ("command: [tini, --, sh, -c]\nargs: ['vllm serve m']\n", ("vllm", "serve"), ("m",)),
        ("command: [sh, -c, 'vllm serve \"$@\"', x]\nargs: [m, --a]\n", ("vllm", "serve"), ("m", "--a")),
        ("command: [bash, -lc, 'MODEL=/m; exec vllm serve $MODEL']\n", ("vllm", "serve"), ("/m",)),
        ("command: [bash, -c, 'vllm serve ${M:-/d} --p `x` --q \"$(y z)\"']\n", ("vllm", "serve"),
         ("/d", "--p", "`x`", "--q", "$(y z)")),
        ("command: [sh, -c, 'cat <<E\nvllm serve no\nE\nif true; then vllm serve m; fi']\n".replace("\n", "\n\n", 3)
         .replace("fi']\n\n", "fi']\n"), ("vllm", "serve"), ("m",)),
        ("command: [sh, -c, 'A=1 nohup vllm serve m >/l 2>&1 & wait']\n", ("vllm", "serve"), ("m",)),
        ("env:\n- {name: M, value: /w}\n- {name: S, valueFrom: {x: y}}\nargs: [$(M), $(S), $(N), $$(M)]\n", None,
         ("/w", "$(S)", "$(N)", "$(M)")),
    ],
)  # fmt: skip
def test_the_words_the_engine_gets(body: str, entrypoint, argv) -> None:
    command = only(container(body)).command
    assert (command.entrypoint, command.argv) == (entrypoint, argv)


def test_variables_of_a_script_are_read_from_the_environment_and_not_touched() -> None:
    text = (
        script('vllm serve "$MODEL" --port ${PORT} --host $HOST\n')
        + "      env:\n      - {name: MODEL, value: a b}\n"
    )
    service = only(text)
    assert service.command.argv == ("a b", "--port", "${PORT}", "--host", "$HOST")
    assert service.model == "a b"
    assert service.env == (("MODEL", "a b"),)
    assert (
        'serve "$MODEL" --port ${PORT} --host $HOST --spec'
        in service.with_speculation({"a": 1}).to_yaml()
    )


def test_a_service_says_what_it_is() -> None:
    text = container(
        "args: [m]\nenv:\n- {name: A, value: x}\n- {name: B, valueFrom: {}}\n- {name: C}\n"
    )
    service = only(text)
    assert (service.kind, service.name, service.namespace) == ("InferenceService", "svc", "chat")
    assert (service.image, service.container) == ("vllm/vllm-openai:v0.23.0", "kserve-container")
    assert service.env == (("A", "x"), ("B", None), ("C", ""))
    assert service.to_yaml() == text


def test_storage() -> None:
    head = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s, annotations: {a: b}}\n"
    one = only(
        head + "spec: {predictor: {model: {runtime: kserve-vllmserver, storageUri: pvc://m}}}\n"
    )
    assert one.storage == (Storage("pvc://m", "/mnt/models"),)
    assert (one.model, one.runtime, one.command.argv) == (None, "kserve-vllmserver", ())
    two = only(
        head
        + "spec: {predictor: {storageUris: [{uri: hf://a, mountPath: /m/a}], model: {runtime: my-vllm}}}\n"
    )
    assert two.storage == (Storage("hf://a", "/m/a"),)


def test_select() -> None:
    second = container("args: [m]\n").replace("name: svc", "name: llama-chat")
    services = load(container("args: [m]\n") + "---\n" + second)
    assert select(services, "svc") is services[0]
    assert select(services[:1], None) is services[0]
    with pytest.raises(InputError, match="svc, llama-chat"):
        select(services, None)
    with pytest.raises(InputError, match="llama-chat") as caught:
        select(services, "llama_chat")
    assert caught.value.hint == "did you mean llama-chat?"
