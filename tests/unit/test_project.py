"""What the documents promise, checked against the tree."""

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from mpctl.errors import EXIT_CODES, MpctlError

ROOT = Path(__file__).parent.parent.parent
VAGUE = frozenset({"found", "told", "said", "one", "there", "seen", "kept", "rest", "left", "more"})


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


def vague_names(source):
    """(line, name) of the local names and parameters of a module that do not say what they hold."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(args=arguments, body=body) | ast.AsyncFunctionDef(args=arguments, body=body):
                names = [inner for statement in body for inner in ast.walk(statement)]
                local = [(n.lineno, n.name) for n in names if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
                local += [(n.lineno, n.id) for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
                parameters = [a for a in ast.walk(arguments) if isinstance(a, ast.arg)]
            case ast.Lambda(args=arguments):
                local, parameters = [], [a for a in ast.walk(arguments) if isinstance(a, ast.arg)]
            case ast.comprehension(target=target):
                local, parameters = [(n.lineno, n.id) for n in ast.walk(target) if isinstance(n, ast.Name)], []
            case _:
                continue
        yield from ((line, name) for line, name in (*local, *((a.lineno, a.arg) for a in parameters)) if name in VAGUE)


def test_local_names_say_what_they_hold():
    sample = "def f(a, *, more):\n for one in a:\n  def left(): pass\n return [kept for kept in a], (lambda rest: 1)"
    assert sorted(set(vague_names(sample))) == [(1, "more"), (2, "one"), (3, "left"), (4, "kept"), (4, "rest")]
    assert list(vague_names("class A:\n    left: int = 0\n    def rest(self): pass")) == []  # fields are in records
    files = sorted((ROOT / "mpctl").rglob("*.py"))
    assert [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files
        for line, name in sorted(set(vague_names(path.read_text())))
    ] == []
