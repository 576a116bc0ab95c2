"""What the documents promise, checked against the tree."""

import json
import re
import subprocess
import sys
import tomllib
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


def test_everything_that_scripts_and_workflows_fetch_is_pinned_by_hash():
    """What they install comes from a lock with hashes, and an action from a commit: a tag can be moved."""
    workflows = list((ROOT / ".github" / "workflows").glob("*.yaml"))
    used = [use for flow in workflows for use in re.findall(r"uses: *(\S+)", flow.read_text())]
    assert len(used) >= 3
    assert [use for use in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use)] == []
    assert all("\npermissions: {" in flow.read_text() for flow in workflows)
    for script in (path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == ""):
        text = re.sub(r"\\\n\s*", "", script.read_text())
        for line in (
            line for line in text.splitlines() if re.search(r"(/pip\"|\bpip) install ", line.split(" || die")[0])
        ):
            assert "--require-hashes" in line or '--editable "$here"' in line, f"{script.name}: {line}"
        for line in (line for line in text.splitlines() if re.search(r"\bnpm install\b", line)):
            assert "--package-lock-only" in line or "MPCTL_CDK_CLI" in line, f"{script.name}: {line}"
    lock = json.loads((ROOT / "requirements" / "stacks" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert len(packages) > 400
    # A bundled package is a part of another one's archive.
    assert [n for n, package in packages.items() if "integrity" not in package and not package.get("inBundle")] == []


def test_what_a_release_lists_is_what_the_wheel_needs():
    """The SBOM is made of requirements/runtime.txt: every dependency of pyproject.toml is there, in a version that the
    tests run with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {name: pinned(name + ".txt") for name in ("runtime", "dev")}
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *extras["cloud"], *extras["report"]):
        name = re.match(r"[\w.-]+", requirement)[0].lower().replace(".", "-")
        assert name in locked["runtime"], name
    assert locked["runtime"].items() <= locked["dev"].items()


def pinned(lock):
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))


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
