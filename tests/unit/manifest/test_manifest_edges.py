"""Odd but valid YAML and shell around the setting: read right, kept, or refused; never cut wrong."""

from __future__ import annotations

import pytest
from service_samples import NGRAM, container, script
from test_manifest_spellings import only

from mpctl.errors import InputError

KEPT = {
    "byte order mark": "\ufeff" + container("args: [m]\n"),
    "tabs before comments": container("args:\t# tab\n- m\t# tab\n- --x \t # tab\n"),
    "old mac line ends": container("args:\n- --model=m\n").replace("\n", "\r"),
    "indentation indicator": script("  vllm serve m\n", "|2"),
    "kept line breaks": script("vllm serve m\n\n\n", "|+"),
    "folded with deeper lines": script("echo a\n\n  b\nc; vllm serve m\n--x 1\n", ">"),
    "quoted over lines": container(
        'args:\n- --model=m\n- "--x=a\n\n    b \\\n    c \\x41\\u00e9\\t"\n'
    ),
    "plain over lines": container("command: [sh, -c]\nargs:\n- vllm serve m\n  --x 1\n\n  true\n"),
    "tagged string": container("args:\n- !!str --model=m\n- !!str 8000\n"),
    "here-document": script("cat > /c <<EOF\nvllm serve no 'quote\nEOF\nvllm serve m\n"),
    "quotes of all kinds": script(
        'vllm serve m --a \'x\'"y"z\\ w --b "\\$HOME" --c $\'d\\n\' --d "$(e "f")"\n'
    ),
    "redirection first": script("2>/dev/null >> /log vllm serve m <&- --port 80\n"),
    "after a function": script("run() { vllm serve m; }\nrun\n"),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    text = KEPT[name]
    changed = only(text).with_speculation(NGRAM)
    assert changed.speculation() == NGRAM
    assert changed.command.model == "m"
    assert changed.with_speculation(None).to_yaml() == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script("vllm serve m <(cat x)\n"), "process substitution"),
        (script('vllm serve "m\n'), "double quote"),
        (script("vllm serve $(m\n"), "never closed"),
        (script("vllm serve `m\n"), "never closed"),
        (script("echo vllm serve m\n"), "no vLLM"),
    ],
)
def test_scripts_that_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        only(text)


def test_settings_survive_kubernetes_and_shell_expansion() -> None:
    """``$(NAME)`` and ``$$`` mean something to Kubernetes, ``$`` to shells: the setting carries none of them."""
    config = {"model": "$(HOME)/$$/$x`y`", "method": "a'b\"c\\d"}
    for text in (container("args: [m]\n"), script("vllm serve m\n")):
        for style in ("json", "dotted"):
            changed = only(text).with_speculation(config, style=style)
            assert changed.speculation() == config
            assert "$" not in changed.to_yaml()


def test_a_word_in_another_flag_is_no_setting() -> None:
    text = container(
        "args: [m, --served-model-name, speculative-config, --x=--speculative-config]\n"
    )
    assert only(text).speculation() is None


def test_services_are_values() -> None:
    text = container("args: [m]\n")
    assert only(text) == only(text)
    assert hash(only(text)) == hash(only(text))
    with pytest.raises(AttributeError):
        only(text).name = "other"
