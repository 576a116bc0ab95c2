"""A method's row is the only place that names it."""

import ast
from pathlib import Path

import pytest

from mpctl.errors import InputError
from mpctl.methods import METHODS, build

ROOT = Path(__file__).parents[3]
# What a checkpoint's configuration reveals by its fields is no property of a method.
NAMES_CHECKPOINTS = {"estimate/checkpoint.py"}


OF_REQUESTS = "experiment/prompt_files.py"  # a completion request has a field that is called suffix


def test_no_other_module_names_a_method():
    names = set(METHODS) - {"none"}
    entries = {}
    for path in (ROOT / "mpctl").rglob("*.py"):
        file = path.relative_to(ROOT / "mpctl").as_posix()
        if file == OF_REQUESTS or file in NAMES_CHECKPOINTS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in names
        }
        if texts:
            entries[file] = texts
    assert entries == {}


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_row_is_complete(method):
    assert method.loads_weights == (method.checkpoint is not None)
    assert method.for_one_target <= method.loads_weights


def notes_section() -> str:
    """The section of docs/reference/methods.md that the rows give."""
    lines = []
    for method in METHODS.values():
        lines += (
            [f"- **{method.name}**:", *(f"    - {note}" for note in method.notes)]
            if method.notes
            else []
        )
    return "\n".join(lines)


def test_the_page_has_every_note():
    page = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    section = page.partition("<!-- notes: begin -->\n")[2].partition("\n<!-- notes: end -->")[0]
    assert section == notes_section(), "paste notes_section() between the marks"


def test_what_verifies_adaptively_runs_on_model_runner_v2():
    adaptive = [row for row in METHODS.values() if row.adaptive_since]
    assert adaptive
    assert all(row.v2_runner and row.loads_weights for row in adaptive)


@pytest.mark.parametrize("name", ["ngram", "suffix", "p-eagle"])
def test_drafts_without_probabilities_do_not_verify_adaptively(name):
    with pytest.raises(InputError, match="has no meaning with"):
        build(
            name,
            draft="/d" if name == "p-eagle" else None,
            sets=("enable_adaptive_verification=true",),
        )


def test_an_estimate_of_acceptance_needs_logits():
    sets = ("enable_adaptive_verification=true", "use_local_argmax_reduction=true")
    with pytest.raises(InputError, match="leaves no logits"):
        build("eagle3", draft="/d", sets=sets)
    build("dspark", sets=sets)
