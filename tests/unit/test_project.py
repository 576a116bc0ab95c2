"""What the documents promise, checked against the tree."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from mpctl.errors import EXIT_CODES, MpctlError

ROOT = Path(__file__).parent.parent.parent


def test_documented_exit_codes_are_those_of_the_code():
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    table = re.findall(r"^\| (\d) \| (.+) \|$", page, re.MULTILINE)
    assert {int(code) for code, _ in table} == set(EXIT_CODES)
    for code, text in table:
        assert text.lower() == EXIT_CODES[int(code)].lower()


def test_every_error_has_a_documented_code():
    def below(kind):
        return [kind, *(c for child in kind.__subclasses__() for c in below(child))]

    assert {kind.exit_code for kind in below(MpctlError)} == set(EXIT_CODES) - {0}


def test_commands_named_in_the_readme_exist_and_can_be_run():
    text = (ROOT / "README.md").read_text()
    scripts = set(re.findall(r"\./(scripts/[a-z-]+)", text))
    assert {"scripts/demo", "scripts/test"} <= scripts
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_locks_name_no_host():
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text(), lock.name


def test_the_wheel_holds_the_package_alone_with_its_prompts(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mpctl"}
    assert "mpctl/experiment/prompts/edits.jsonl" in names
    assert "mpctl/platform/local/in_engine/serve.py" in names
    assert "mpctl/py.typed" in names


def test_no_document_was_left_unfinished():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"@[A-Z]+@|TODO|FIXME", page.read_text()), page.name
