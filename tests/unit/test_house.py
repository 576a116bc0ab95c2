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
    """Builds a checkout with one room of one module of five code lines, under a budget."""

    def build(budget: str) -> Path:
        room = tmp_path / "mpctl" / "gate"
        room.mkdir(parents=True)
        (room / "rules.py").write_text(MODULE)
        (room / "__init__.py").write_text("")
        (tmp_path / "pyproject.toml").write_text(f"[tool.house.rooms]\n{budget}\n")
        return tmp_path

    return build


def test_lines_without_comments_docstrings_and_blanks_count(checkout):
    answer = house(checkout("gate = {code = 5, modules = 1}"), "--check")
    assert answer.returncode == 0, answer.stderr
    assert "gate               5        5        1        1" in answer.stdout


@pytest.mark.parametrize(
    "budget",
    ["gate = {code = 4, modules = 1}", "gate = {code = 5, modules = 0}", "report = {code = 5, modules = 1}"],
    ids=["more lines", "more modules", "no budget"],
)
def test_a_room_above_its_budget_or_without_one_fails(checkout, budget):
    answer = house(checkout(budget), "--check")
    assert answer.returncode == 1
    assert answer.stderr.startswith("above its budget, or without one: gate\n")


@pytest.mark.parametrize(("length", "code"), [(50, 0), (51, 1)])
def test_a_function_of_more_than_50_lines_fails(checkout, length, code):
    root = checkout("gate = {code = 90, modules = 1}")
    body = "    number += 1\n" * (length - 2)
    with (root / "mpctl" / "gate" / "rules.py").open("a") as module:
        module.write(f"\n\ndef count(number: int) -> int:\n{body}    return number\n")
    answer = house(root, "--check")
    assert (answer.returncode, "count" in answer.stderr) == (code, bool(code))


def test_a_stay_is_a_run_of_functions_of_one_module():
    stays = runpy.run_path(str(HOUSE.parent / "walks"))["stays"]
    steps = [("plan.py", "run"), ("plan.py", "read"), ("spec.py", "build"), ("plan.py", "rank")]
    assert stays(steps) == [("plan.py", ["run", "read"]), ("spec.py", ["build"]), ("plan.py", ["rank"])]
