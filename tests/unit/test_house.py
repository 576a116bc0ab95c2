"""scripts/house holds each room of the package to its budget."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2] / "scripts" / "house"
MODULE = '''"""A docstring
of two lines."""

# A comment.
LIMIT = 3  # another


def double(number: int) -> int:
    """Return twice the number."""
    return (
        2 * number
    )
'''


def house(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HOUSE), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def checkout(tmp_path):
    """Builds a checkout with one room of 18 nodes, one of them of the empty __init__.py, under a budget."""

    def build(rooms: str = "gate = 18", sums: str = "sum = 18\ncore = 18", wide: str = "") -> Path:
        room = tmp_path / "mpctl" / "gate"
        room.mkdir(parents=True)
        (room / "rules.py").write_text(MODULE)
        (room / "__init__.py").write_text("")
        (tmp_path / "pyproject.toml").write_text(
            f'[tool.house]\n{sums}\nannexes = ["lab"]\n[tool.house.rooms]\n{rooms}\n[tool.house.wide]\n{wide}\n'
        )
        return tmp_path

    return build


def test_the_nodes_of_a_room_count_and_its_lines_do_not(checkout):
    root = checkout("gate = 18")
    module = root / "mpctl" / "gate" / "rules.py"
    before = house(root, "--check")
    module.write_text(MODULE.replace("(\n        2 * number\n    )", "2 * number"))
    after = house(root, "--check")
    assert (before.returncode, before.stderr) == (0, "")
    assert after.stdout == before.stdout
    assert "gate               18       18" in before.stdout


@pytest.mark.parametrize(
    ("rooms", "sums", "named"),
    [
        ("gate = 16", "sum = 90\ncore = 90", "gate"),
        ("report = 5", "sum = 90\ncore = 90", "gate"),
        ("gate = 18", "sum = 16\ncore = 90", "sum"),
        ("gate = 18", "sum = 90\ncore = 16", "core"),
    ],
    ids=["a room", "no budget", "the sum", "the core"],
)
def test_a_room_or_a_sum_above_its_budget_or_without_one_fails(checkout, rooms, sums, named):
    answer = house(checkout(rooms, sums), "--check")
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"above its budget, or without one: {named}\n")


def test_an_annex_counts_in_the_sum_and_not_in_the_core(checkout):
    root = checkout("gate = 18\nlab = 17", "sum = 35\ncore = 18")
    (root / "mpctl" / "lab").mkdir()
    (root / "mpctl" / "lab" / "plan.py").write_text(MODULE)
    answer = house(root, "--check")
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("body", "wide", "code"),
    [
        ("    def method_{}(self) -> None: ...", "", 1),
        ("    field_{}: int = 0", "", 1),
        ("    field_{}: int = 0", "Wide = 31", 0),
        ("    field_{}: int = 0", "Wide = 30", 1),
    ],
    ids=["methods", "fields", "a named exception", "an exception that grew"],
)
def test_a_class_of_more_than_30_methods_or_fields_fails_unless_it_is_named(
    checkout, body, wide, code
):
    root = checkout("gate = 900", "sum = 900\ncore = 900", wide)
    members = "\n".join(body.format(number) for number in range(31))
    with (root / "mpctl" / "gate" / "rules.py").open("a") as module:
        module.write(f"\n\n@dataclass(frozen=True)\nclass Wide:\n{members}\n")
    answer = house(root, "--check")
    assert (answer.returncode, "Wide has 31" in answer.stderr) == (code, bool(code))


@pytest.mark.parametrize(("statements", "code"), [(139, 0), (140, 1)])
def test_a_function_of_more_than_425_nodes_fails(checkout, statements, code):
    """Seven nodes are the function's own, three are each statement's."""
    root = checkout("gate = 900", "sum = 900\ncore = 900")
    body = "    number += 1\n" * statements
    with (root / "mpctl" / "gate" / "rules.py").open("a") as module:
        module.write(f"\n\ndef count(number: int) -> int:\n{body}    return number\n")
    answer = house(root, "--check")
    assert (answer.returncode, "count" in answer.stderr) == (code, bool(code))


@pytest.mark.parametrize(
    ("allowed", "problem"),
    [
        ("", "imports inside functions: gate/rules.py has 1\n"),
        ('"app/" = 1', "imports inside functions: gate/rules.py has 1\n"),
        ('"gate/" = 0', "imports inside functions: gate/ has 1\n"),
        ('"gate/" = 1', ""),
    ],
)
def test_an_import_inside_a_function_needs_a_place_with_a_reason(checkout, allowed, problem):
    root = checkout("gate = 900", "sum = 900\ncore = 900")
    with (root / "pyproject.toml").open("a") as project:
        project.write(f"[tool.house.imports]\n{allowed}\n")
    with (root / "mpctl" / "gate" / "rules.py").open("a") as module:
        module.write("\n\ndef load() -> None:\n    import json\n")
    answer = house(root, "--check")
    assert answer.returncode == bool(problem)
    assert answer.stderr.startswith(problem) if problem else not answer.stderr


def test_a_stay_is_a_run_of_functions_of_one_module():
    stays = runpy.run_path(str(HOUSE.parent / "walks"))["stays"]
    steps = [("plan.py", "run"), ("plan.py", "read"), ("spec.py", "build"), ("plan.py", "rank")]
    assert stays(steps) == [
        ("plan.py", ["run", "read"]),
        ("spec.py", ["build"]),
        ("plan.py", ["rank"]),
    ]
