"""Secrets never reach what is shown or kept."""

import pytest

from mpctl.manifest import masked, plain_secrets, redacted


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key=k1", "--port", "1"], ("--api-key=<hidden>", "--port", "1")),
        (["--api-key", "k1", "k2", "--model", "m"], ("--api-key", "<hidden>", "<hidden>", "--model", "m")),
        (["--hf-token", "t"], ("--hf-token", "<hidden>")),
        (["--api_key=k"], ("--api_key=<hidden>",)),
        (["--ssl-keyfile-password", "p"], ("--ssl-keyfile-password", "<hidden>")),
        (["--tokenizer", "m", "--max-num-batched-tokens=9"], ("--tokenizer", "m", "--max-num-batched-tokens=9")),
        (["serve", "m", "--enforce-eager"], ("serve", "m", "--enforce-eager")),
    ],
)
def test_values_of_secret_flags_are_hidden(arguments, shown):
    assert redacted(arguments) == shown


SECRETS = {
    "a variable": "- name: HF_TOKEN\n  value: PLANTED\n- name: PATH\n  value: /bin",
    "value first": "- value: PLANTED\n  name: DB_PASSWORD",
    "quoted": "  - name: \"AWS_SECRET_ACCESS_KEY\"\n    value: 'PLANTED'",
    "flow style": "env: [{name: VLLM_API_KEY, value: PLANTED}, {name: A, value: b}]",
    "json": '{"name": "HF_TOKEN", "value": "PLANTED"}',
    "a changed value in a diff": "   - name: HF_TOKEN\n-    value: PLANTED\n+    value: PLANTED2\n   - name: A",
    "a flag": "- --api-key=PLANTED",
    "a flag and its value": "- --api-key\n- PLANTED",
    "a flow list": 'args: ["--hf-token", "PLANTED", "--port", "1"]',
    "a shell": "- vllm serve m --api-key PLANTED --port 1",
    "an assignment": "HF_TOKEN=PLANTED vllm serve",
    "a header": "Authorization: Bearer PLANTED",
    "a basic header": "authorization: Basic PLANTED==",
    "a header of its own": "{'Authorization': 'PLANTED'}",
    "a connection string": "postgresql://user:PLANTED@db:5432/x",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_no_planted_secret_is_in_a_masked_text(text):
    assert "PLANTED" not in masked(text)
    assert "<hidden>" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "- name: TOKENIZERS_PARALLELISM\n  value: 'false'\n- name: MAX_TOKENS\n  value: '9'",
        "- --max-num-batched-tokens=9\n- --tokenizer=/m",
        "- name: HF_TOKEN\n  valueFrom:\n    secretKeyRef:\n      key: token\n      name: hf",
        "- --api-key\n- --port=1",
        "http://host:8080/path @ 5",
        '+- --speculative-config={"method":"ngram"}',
    ],
)
def test_what_is_no_secret_stays(text):
    assert masked(text) == text


def test_secrets_in_plain_text_are_named():
    env = (("HF_TOKEN", "hf_x"), ("VLLM_API_KEY", None), ("TOKENIZERS_PARALLELISM", "false"), ("A_KEY", ""))
    assert plain_secrets(env, ()) == ("HF_TOKEN",)
    assert plain_secrets((), ("--api-key", "k", "--port=1")) == ("--api-key",)
    assert plain_secrets((), ("--api-key=k",)) == ("--api-key",)
    assert plain_secrets((), ("--api-key=$(VLLM_API_KEY)", "--hf-token", "$(HF_TOKEN)")) == ()
