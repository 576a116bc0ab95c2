"""Secrets never reach what is shown or kept."""

import pytest
import yaml

from mpctl.manifest import masked, plain_secrets, redacted, split_secrets


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key=k1", "--port", "1"], ("--api-key=<hidden>", "--port", "1")),
        (
            ["--api-key", "k1", "k2", "--model", "m"],
            ("--api-key", "<hidden>", "<hidden>", "--model", "m"),
        ),
        (["--hf-token", "t"], ("--hf-token", "<hidden>")),
        (["--api_key=k"], ("--api_key=<hidden>",)),
        (["--ssl-keyfile-password", "p"], ("--ssl-keyfile-password", "<hidden>")),
        (
            ["--tokenizer", "m", "--max-num-batched-tokens=9"],
            ("--tokenizer", "m", "--max-num-batched-tokens=9"),
        ),
        (["serve", "m", "--enforce-eager"], ("serve", "m", "--enforce-eager")),
    ],
)
def test_values_of_secret_flags_are_hidden(arguments, shown):
    assert redacted(arguments) == shown


@pytest.mark.parametrize(
    ("arguments", "public", "secret"),
    [
        ("m --api-key k1 k2 --port 1", "m --port 1", "--api-key k1 k2"),
        ("--api-key=k --model m", "--model m", "--api-key=k"),
        ("--model m --hf-token", "--model m", "--hf-token"),
        ("--tokenizer m", "--tokenizer m", ""),
    ],
)
def test_secret_flags_are_split_from_the_others(arguments, public, secret):
    assert split_secrets(arguments.split()) == (tuple(public.split()), tuple(secret.split()))


BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
OPENSSH = "-----BEGIN OPENSSH PRIVATE KEY-----"
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
    "a block": "- name: TLS_KEY\n  value: |\n    PLANTED\n    a PLANTED\n\n    PLANTED\n- name: A\n  value: b",
    "a block scalar before its name": "- value: >-\n    PLANTED\n    PLANTED\n  name: TLS_KEY",
    "a comment behind the name": "- name: HF_TOKEN  # of the team\n  value: PLANTED",
    "arguments in an engine's log": "INFO non-default args: {'model': 'm', 'api_key': ['PLANTED']}",
    "a query": "https://hub/x?a=b&token=PLANTED&c=d",
    "an ADO.NET connection string": "Server=db;User Id=u;Password=PLANTED;Encrypt=true",
    "a storage account": "AccountName=a;AccountKey=PLANTED==;EndpointSuffix=core",
    "a token under a harmless name": "- name: EXTRA\n  value: hf_PLANTEDabcdefghij",
    "line ends of Windows": "- name: HF_TOKEN\r\n  value: PLANTED\r\n- name: A\r\n",
    "a private key": f"- name: TLS\n  value: |\n    {BEGIN}\n    PLANTED/abc\n    PLANTED==\n    {END}\n- name: A",
    "a flag and its values": "args:\n- --api-key\n- PLANTED\n- PLANTED2\n- --port=1",
    "a flag and its values in a flow list": 'args: ["--api-key", "PLANTED", "PLANTED2", "--port", "1"]',
    "a private key in one line": f'- name: TLS\n  value: "{BEGIN}\\nPLANTED\\nPLANTED\\n{END}\\n"',
    "a private key in a diff": f"+  value: |\n+    {BEGIN}\n+    PLANTED\n+    {END}\n",
    "a folded private key": f'  value: "{BEGIN}\\n\n    PLANTED\\n\n    {END}"',
    "a private key of SSH": f"{OPENSSH}\nPLANTED\nPLANTED\n-----END OPENSSH PRIVATE KEY-----",
    "a private key that is cut off": f"{BEGIN}\nPLANTEDPLANTED",
    "a private key in an annotation": f"annotations:\n  x: |\n    {BEGIN}\n    PLANTED\n    {END}\n",
    "a private key in base64": "- name: TLS\n  value: LS0tLS1CRUdJTiBQUklWQVRFIEtFWSPLANTED",
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
        "- args:\n  - --api-key\n- image: x\n- name: y",
        "http://host:8080/path @ 5",
        '+- --speculative-config={"method":"ngram"}',
        "value: |\n  -----BEGIN CERTIFICATE-----\n  MIIB\n  -----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_secret_stays(text):
    assert masked(text) == text


def test_a_masked_manifest_keeps_its_other_lines():
    text = "- name: TLS_KEY\n  value: |\n    one\n    two\n- name: PATH\n  value: |\n    kept\n"
    assert masked(text) == text.replace(
        "|\n    one\n    two", "<hidden>\n    <hidden>\n    <hidden>"
    )


def test_secrets_in_plain_text_are_named():
    env = (
        ("HF_TOKEN", "hf_x"),
        ("VLLM_API_KEY", None),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("A_KEY", ""),
    )
    assert plain_secrets(env, ()) == ("HF_TOKEN",)
    assert plain_secrets((), ("--api-key", "k", "--port=1")) == ("--api-key",)
    assert plain_secrets((), ("--api-key=k",)) == ("--api-key",)
    assert plain_secrets((), ("--api-key=$(VLLM_API_KEY)", "--hf-token", "$(HF_TOKEN)")) == ()


PLANTED = {
    "HF_TOKEN": "PLANTED",
    "EXTRA": "hf_PLANTEDabcdefghij",
    "DATABASE": "postgresql://user:PLANTED@db:5432/x",
    "STORAGE": "AccountName=a;AccountKey=PLANTED==",
    "TLS": f"{BEGIN}\nPLANTED\n{END}\n",
    "HEADERS": "Authorization: Bearer PLANTED",
    "SETTINGS": '{"api_key": "PLANTED"}',
    "URL": "https://hub/x?token=PLANTED",
    "CERTIFICATE": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "MODE": "fast",
    "ADDRESS": "http://host:8080/x",
    "INDIRECT": "postgresql://user:$(DB_PASSWORD)@db/x",
}


@pytest.mark.parametrize(("name", "value"), PLANTED.items(), ids=PLANTED)
def test_the_check_for_plain_secrets_finds_exactly_what_masking_hides(name, value):
    secret = "PLANTED" in value
    manifest = yaml.safe_dump([{"name": name, "value": value}])
    assert ("<hidden>" in masked(manifest)) == secret or "$(" in value
    assert "PLANTED" not in masked(manifest)
    assert plain_secrets(((name, value),), ()) == ((name,) if secret else ())
    if name != "HF_TOKEN":  # its value alone looks like nothing
        assert plain_secrets((), (f"--option={value}",)) == (("--option",) if secret else ())
        assert plain_secrets((), ("--option", value)) == (("--option",) if secret else ())
