"""Diffs of manifests: every difference shows, no secret does."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from mpctl.app.change.change import unified

NAMES = ("a", "b")
ENV = "env:\n- name: HF_TOKEN\n  value: PLANTED\n- name: A\n  value: '1'\n- name: B\n  value: '2'\nargs:\n- one\n"


def test_a_secret_whose_name_is_outside_the_hunk_is_hidden():
    text = unified(ENV, ENV.replace("value: '1'", "value: '9'"), NAMES)
    assert "+  value: '9'" in text
    assert "PLANTED" not in text
    assert " - name: HF_TOKEN" not in unified(ENV, ENV.replace("'2'", "'9'"), NAMES)
    assert "PLANTED" not in unified(ENV, ENV.replace("'2'", "'9'"), NAMES)


def test_a_changed_secret_is_a_difference_without_its_values():
    text = unified(ENV, ENV.replace("PLANTED", "PLANTED2"), NAMES)
    assert "-  value: <hidden>\n+  value: <hidden>" in text
    assert "PLANTED" not in text


@given(
    st.lists(st.sampled_from(["a: 1", "b: 2", "- c", ""]), max_size=6), st.booleans(), st.booleans()
)
def test_without_secrets_it_is_the_diff_of_difflib(lines, end, changed):
    before = "\n".join(lines) + ("\n" if end and lines else "")
    after = before + "d: 4\n" if changed else before.replace("b", "e")
    plain = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), *NAMES
    )
    text = "".join(x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in plain)
    assert unified(before, after, NAMES) == text.rstrip("\n")
