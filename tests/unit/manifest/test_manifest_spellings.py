"""Every spelling of the setting: read, replaced in place, removed."""

from __future__ import annotations

import difflib

import pytest
from service_samples import EAGLE3, NGRAM, container, script

from mpctl.errors import InputError
from mpctl.manifest import load


def only(text: str):
    (service,) = load(text, file="svc.yaml")
    return service


def changes(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


SMALL = {"method": "ngram", "num_speculative_tokens": 5}
JSON = '{"method": "ngram", "num_speculative_tokens": 5}'
TIGHT = '{"method":"ngram","num_speculative_tokens":5}'
ESCAPED = JSON.replace('"', '\\"')

SPELLINGS = {
    "double joined": container(
        f'args:\n- "--model=m"\n- "--speculative-config={ESCAPED}"  # why\n- "--port=1"\n'
    ),
    "single joined": container(f"args:\n- --model=m\n- '--speculative-config={JSON}'\n"),
    "plain joined": container(f"args:\n- --model=m\n- --speculative-config={TIGHT}\n- --port=1\n"),
    "underscore": container(f"args:\n- --model=m\n- --speculative_config={TIGHT}\n"),
    "short alias": container(f"args:\n- --model=m\n- -sc\n- '{JSON}'\n- --port=1\n"),
    "short alias joined": container(f"args:\n- --model=m\n- '-sc={JSON}'\n"),
    "abbreviated": container(f"args:\n- --model=m\n- '--speculative={JSON}'\n"),
    "apart": container(f"args:\n- --model\n- m\n- --speculative-config\n- '{JSON}'\n"),
    "apart, value double": container(
        f'args:\n- --model=m\n- --speculative-config\n- "{ESCAPED}"\n'
    ),
    "apart, value literal": container(
        f"args:\n- --model=m\n- --speculative-config\n- |-\n  {JSON}\n- --port=1\n"
    ),
    "literal": container(f"args:\n- --model=m\n- |-\n  --speculative-config={JSON}\n- --port=1\n"),
    "literal clipped": container(
        f"args:\n- --model=m\n- |\n  --speculative-config={JSON}\n\n# end\n"
    ),
    "folded": container(f"args:\n- --model=m\n- >-\n  --speculative-config={JSON}\n- --port=1\n"),
    "flow": container(f"args: [--model=m, '--speculative-config={JSON}', --port=1]\n"),
    "flow over lines": container(
        f"args: [\n  --model=m,\n  '--speculative-config={JSON}',  # why\n  --port=1,\n]\n"
    ),
    "flow alone": container(f"command: [vllm, serve, m]\nargs: ['--speculative-config={JSON}']\n"),
    "in command": container(f"command: [vllm, serve, m, '--speculative-config={JSON}']\n"),
    "escaped break": container(
        f'args:\n- "--model=m"\n- "--speculative\\\n    -config={ESCAPED}"\n'
    ),
    "literal script": script(
        f"exec vllm serve m \\\n  --speculative-config '{JSON}' \\\n  --port 80\n"
    ),
    "literal script joined": script(
        f"vllm serve m --speculative-config='{JSON}' --port 80 && echo done\n"
    ),
    "script whole word quoted": script(f"vllm serve m '--speculative-config={JSON}' --port 80\n"),
    "script double quotes": script(f'vllm serve m --speculative-config "{ESCAPED}" --port 80\n'),
    "script alias": script(f"vllm serve m -sc '{JSON}'\n"),
    "folded script": script(f"exec vllm serve m\n--speculative-config '{JSON}'\n--port 80\n", ">-"),
    "plain script": container(
        f"command: [sh, -c]\nargs:\n- exec vllm serve m --speculative-config '{TIGHT}' --port 80\n"
    ),
    "double script": container(
        f"command: [sh, -c]\nargs:\n- \"exec vllm serve m --speculative-config '{ESCAPED}'\\n\"\n"
    ),
    "single script": container(
        f"command: [sh, -c]\nargs:\n- 'exec vllm serve m --speculative-config ''{JSON}'' --port 80'\n"
    ),
    "crlf": container(f"args:\n- --model=m\n- '--speculative-config={JSON}'\n- --port=1\n").replace(
        "\n", "\r\n"
    ),
    "no final newline": container(f"args:\n- --model=m\n- '--speculative-config={JSON}'"),
    "script at the end of a file": script(f"vllm serve m --speculative-config '{JSON}'").rstrip(
        "\n"
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_of_json_is_read_replaced_and_put_back(name: str) -> None:
    text = SPELLINGS[name]
    service = only(text)
    assert service.speculation() == SMALL
    assert service.with_speculation(SMALL).to_yaml() is text
    changed = service.with_speculation(EAGLE3)
    assert changed.speculation() == EAGLE3
    before, after = changes(text, changed.to_yaml()), changed.to_yaml()
    assert len(before) == 2, before
    assert "eagle3" in before[1]
    assert changed.with_speculation(SMALL).to_yaml() == text, after


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_of_json_is_removed_and_the_rest_kept(name: str) -> None:
    text = SPELLINGS[name]
    without = only(text).with_speculation(None)
    assert without.speculation() is None
    assert without.command.model == "m"
    assert "ngram" not in without.to_yaml()
    remaining = iter(text)
    assert all(char in remaining for char in without.to_yaml()), (
        "something was written, not only removed"
    )
    assert len(text) - len(without.to_yaml()) < 150
    assert (only(text).command.flags().items() ^ without.command.flags().items()) == {
        ("--speculative-config", only(text).command.get("-sc"))
    }


DOTTED = {
    "joined": container(
        "args:\n- --model=m\n- --speculative-config.method=ngram\n- --speculative-config.num_speculative_tokens=5\n"
    ),
    "apart": container(
        "args:\n- --model\n- m\n- --speculative-config.method\n- ngram\n"
        "- --speculative-config.num_speculative_tokens\n- '5'\n"
    ),
    "alias": container('args: ["--model=m", "-sc.method=ngram", "-sc.num_speculative_tokens=5"]\n'),
    "script": script(
        "vllm serve m \\\n  --speculative-config.method ngram \\\n"
        "  --speculative-config.num_speculative_tokens 5 \\\n  --port 80\n"
    ),
}


@pytest.mark.parametrize("name", DOTTED)
def test_dotted_keys_stay_dotted(name: str) -> None:
    text = DOTTED[name]
    service = only(text)
    assert service.speculation() == SMALL
    speculation = service.with_speculation(EAGLE3)
    assert speculation.speculation() == EAGLE3
    assert "{" not in speculation.to_yaml()
    assert speculation.with_speculation(SMALL).to_yaml() == text
    assert service.with_speculation(None).speculation() is None
    three = service.with_speculation({**SMALL, "num_speculative_tokens": 3}).to_yaml()
    assert len(changes(text, three)) == 2


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--speculative-config.num-speculative-tokens=5"], {"num_speculative_tokens": 5}),
        (["--speculative_config.method=ngram"], {"method": "ngram"}),
        (["--speculative-config.max_model_len=2k"], {"max_model_len": 2000}),
        (["--speculative-config.max_model_len=2K"], {"max_model_len": 2048}),
        (["--speculative-config.a.b=true", "--speculative-config.a.c=x"], {"a": {"b": True, "c": "x"}}),
        (["--speculative-config.a+=1,2", "--speculative-config.a+", "3"], {"a": ["1", "2", "3"]}),
        (['--speculative-config.a=[1]', '--speculative-config.a=[2]'], {"a": [1, 2]}),
        (['-sc={"a":1}', "-sc.b=2"], {"b": 2}),
        (['-sc={"a":1}', '-sc={"b":2}'], {"b": 2}),
        (["--spec-method=ngram", "--spec-tokens", "4"], {"method": "ngram", "num_speculative_tokens": 4}),
        (['-sc={"prompt_lookup_max":3}', "--spec-method=ngram"], {"prompt_lookup_max": 3, "method": "ngram"}),
    ],
)  # fmt: skip
def test_the_setting_is_read_as_vllm_reads_it(args: list[str], expected) -> None:
    text = container("args:\n- --model=m\n" + "".join(f"- '{arg}'\n" for arg in args))
    service = only(text)
    assert service.speculation() == expected
    assert service.with_speculation(EAGLE3).speculation() == EAGLE3
    assert service.with_speculation(None).to_yaml() == container("args:\n- --model=m\n")


def test_words_behind_two_dashes_are_no_setting() -> None:
    text = container(f"args:\n- --model=m\n- --\n- '--speculative-config={JSON}'\n")
    service = only(text)
    assert service.speculation() is None
    assert service.with_speculation(None).to_yaml() == text
    with pytest.raises(InputError, match="behind --"):
        service.with_speculation(EAGLE3)


@pytest.mark.parametrize("value", ["null", "None", ""])
def test_an_empty_setting_is_none_and_is_removed_but_not_filled(value: str) -> None:
    service = only(container(f"args:\n- --model=m\n- '--speculative-config={value}'\n"))
    assert service.speculation() is None
    with pytest.raises(InputError, match="sets nothing"):
        service.with_speculation(EAGLE3)
    assert service.with_speculation(None).to_yaml() == container("args:\n- --model=m\n")


def test_style_changes_the_spelling_in_place() -> None:
    text = container(f"args:\n- --model=m\n- '--speculative-config={JSON}'  # keep\n- --port=1\n")
    dotted = only(text).with_speculation(NGRAM, style="dotted")
    assert dotted.speculation() == NGRAM
    assert changes(text, dotted.to_yaml())[1:] == [
        "+      - '--speculative-config.method=ngram'  # keep",
        "+      - '--speculative-config.num_speculative_tokens=5'",
        "+      - '--speculative-config.prompt_lookup_max=4'",
        "+      - '--speculative-config.prompt_lookup_min=2'",
    ]
    assert dotted.with_speculation(SMALL, style="json").to_yaml() == text


def test_a_key_that_dotted_flags_cannot_carry_is_refused_or_written_as_json() -> None:
    with pytest.raises(InputError, match=r"a\.b"):
        only(container("args:\n- --model=m\n")).with_speculation({"a.b": 1}, style="dotted")
    assert only(DOTTED["joined"]).with_speculation({"a.b": 1}).speculation() == {"a.b": 1}


@pytest.mark.parametrize("bad", [{}, {"a": float("nan")}, {"a": {1, 2}}, {"a": {1: 2}}])
def test_a_config_that_is_not_json_is_refused(bad) -> None:
    with pytest.raises(InputError):
        only(container("args:\n- --model=m\n")).with_speculation(bad)


def test_a_negative_value_is_no_flag_whose_line_break_is_followed():
    text = script("vllm serve m \\\n  --served-model-name \\\n  ''\n")
    first = {"method": None, "model": None}
    original = load(text)[0].with_speculation(first, style="dotted")
    assert original.with_speculation({"method": -1}).with_speculation(first).text == original.text
