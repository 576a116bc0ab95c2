"""Generated services and settings: nothing is lost, nothing outside the setting changes."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from service_samples import HEAD

from mpctl.manifest import foreign_changes, load
from mpctl.manifest.text.shell_words import quote

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

nasty = st.text(
    st.sampled_from("a '\"\\$`{}[]():;,#&|<>!%@~*?-+=./é日😀\n\t\x7f\u0085\u2028\ufeff\ud800"),
    max_size=8,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | nasty
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["method", "model", "num_speculative_tokens", "prompt_lookup_max", "x"])
odd_keys = nasty.map(lambda key: key.replace("-", "_"))
configs = st.dictionaries(keys, values, min_size=1, max_size=4)
odd_configs = st.dictionaries(keys | odd_keys, values, min_size=1, max_size=4)

words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"]), max_size=8
)
flags = st.lists(
    st.one_of(
        st.tuples(
            st.just("--served-model-name"), words.filter(lambda word: not word.startswith("-"))
        ),
        st.tuples(st.just("--port"), st.just("8000")),
        st.tuples(st.just("--enforce-eager")),
        words.map(lambda word: (f"--chat-template={word}",)),
    ),
    max_size=4,
).map(lambda groups: [word for group in groups for word in group])
indents = st.sampled_from(["", "  "])
comments = st.sampled_from(["", "  # why: because", " #x"])
ends = st.sampled_from(
    ["\n", "\n\n# end\n", "", "\n---\nkind: ConfigMap\ndata: {a: b}\n", "\n      ports: []\n"]
)


def single(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def double(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


quoting = st.sampled_from([single, double, json.dumps])


@st.composite
def listed(draw) -> str:
    """A container with its arguments in a block or flow list, or without any."""
    args = ["m", *draw(flags)]
    form = draw(st.sampled_from(["block", "flow", "lines", "commented", "none"]))
    if form == "none":
        return HEAD.rstrip("\n") + draw(ends)
    spelled = [draw(quoting)(arg) for arg in args]
    indent = draw(indents)
    if form == "block":
        body = "args:" + "".join(f"\n      {indent}- {item}{draw(comments)}" for item in spelled)
    elif form == "flow":
        body = f"args: [{', '.join(spelled)}]"
    elif form == "commented":
        remark = st.sampled_from(["", "  # why, indeed", "\n        # alone, with a comma"])
        items = "".join(f"\n        {item}{draw(remark)}\n        ," for item in spelled[:-1])
        body = f"args: [{items}\n        {spelled[-1]}{draw(remark)}\n      ]"
    else:
        body = (
            "args: [\n        "
            + ",\n        ".join(spelled)
            + draw(st.sampled_from(["", ","]))
            + "\n      ]"
        )
    return HEAD + "      " + body + draw(ends)


@st.composite
def scripted(draw) -> str:
    """A container that starts its engine from a shell script."""
    glue = draw(st.sampled_from([" ", " \\\n  ", "  "]))
    before = draw(st.sampled_from(["", "set -e; ", "echo 'vllm serve x' && ", "A=1 exec "]))
    after = draw(
        st.sampled_from(
            ["", " > /log 2>&1", " && echo 'done'", " # --port 80", " & wait $!", ' "$@"']
        )
    )
    script = before + glue.join(["vllm serve m", *(quote(flag) for flag in draw(flags))]) + after
    style = draw(st.sampled_from(["|", "|-", "single", "double", ">-"]))
    if style in ("|", "|-"):
        item = style + "".join("\n          " + line for line in script.split("\n"))
    elif style == ">-":
        assume("\n" not in script and not script.endswith(" "))
        item = style + "\n          " + script
    elif style == "single":
        assume("\n" not in script)
        item = single(script)
    else:
        item = json.dumps(script)
    return HEAD + "      command: [bash, -lc]\n      args:\n      - " + item + draw(ends)


newlines = st.sampled_from(["\n", "\r\n"])


@few
@given(listed() | scripted(), newlines, odd_configs, configs, st.sampled_from(["json", "dotted"]))
def test_turning_speculation_on_and_off_gives_the_original_bytes(
    text, newline, odd, config, style
) -> None:
    text = text.replace("\n", newline)
    service = load(text)[0]
    for setting, spelling in ((odd, "json"), (config, style)):
        changed = service.with_speculation(setting, style=spelling)
        assert changed.speculation() == setting
        assert load(changed.to_yaml())[0].speculation() == setting
        assert changed.with_speculation(None).to_yaml() == text
        assert foreign_changes(text, changed.to_yaml()) == ()


@few
@given(listed() | scripted(), configs, configs, st.sampled_from(["json", "dotted"]))
def test_replacing_and_putting_back_gives_the_original_bytes(text, first, second, style) -> None:
    original = load(text)[0].with_speculation(first, style=style)
    changed = original.with_speculation(second)
    assert changed.speculation() == second
    assert changed.with_speculation(None).to_yaml() == text
    assert changed.with_speculation(first).to_yaml() == original.to_yaml()
    assert foreign_changes(original.to_yaml(), changed.to_yaml()) == ()
