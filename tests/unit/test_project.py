"""What the documents promise, checked against the tree."""

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from mpctl import __version__
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


# A version of mpctl in a text: of a file, a tag, an image, a report.
VERSION = re.compile(
    r"\bmpctl(?:-watch)?(?:[-:@]v?| )(\d+\.\d+[\w.]*?)(?=[-/` ,]|\.t|$)|(?:download/|ref: |tag `)v(\d[\d.]*\d)",
    re.M,
)


def published():
    """Everything that readers and installers read."""
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "docs" / "example-report.html",
    ]
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    workflows = (ROOT / ".github" / "workflows").glob("*.y*ml")
    return [*pages, *deployed, *workflows, ROOT / "action.yml", ROOT / "mkdocs.yml"]


def test_one_version_is_named_everywhere():
    named = {
        (page.name, first or second)
        for page in published()
        for first, second in VERSION.findall(page.read_text())
    }
    assert {name for name, version in named if version != __version__} == set()
    assert {name for name, _ in named} >= {
        "install.md",
        "evidence.md",
        "SECURITY.md",
        "example-report.html",
    }
    assert re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == __version__


def test_nothing_but_the_release_names_the_owner():
    """scripts/release fills in REPOSITORY; documents name the variable."""
    for page in published():
        text = page.read_text()
        assert not re.search(r"\bOWNER\b|<digest>|<this repository>", text), page.name
        addresses = re.findall(r"(?:github\.com|ghcr\.io)/([\w$@{}./-]+)", text)
        own = [
            a
            for a in addresses
            if "mpctl" in a.lower() and not a.startswith(("$REPOSITORY", "@REPOSITORY@"))
        ]
        assert own == [], page.name


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_locks_name_no_host():
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text(), lock.name


FETCH = re.compile(
    r"pip\"? (install|wheel)\b|\bnpm (install|ci|exec)\b|\b(npx|uvx|pipx|curl|wget) [\w$-]|\b(go|cargo) install\b"
)
# Wheels alone, by hash: the build of a source package would fetch its build tools without one.
PINNED = re.compile(r"--(no-build|only-binary=:all:|no-build-isolation) --require-hashes")
UNPINNED = {
    "scripts/_env": ["--no-deps --no-build-isolation --editable"],  # nothing is fetched
    "deploy/Containerfile": ["--no-index --no-deps /dist/*.whl"],  # nothing is fetched
    "deploy/kubectl-mpctl": ['--no-index --no-deps "$wheel"'],
    "action.yml": ['--no-index --no-deps "$RUNNER_TEMP"/mpctl-build/dist/*.whl'],
    "scripts/setup-stacks": [
        "npm ci --ignore-scripts",
        "npm install --no-audit --no-fund --no-save --loglevel=error",
    ],
    "scripts/lock": ["npm install --package-lock-only"],
    ".github/workflows/cdktn-next.yaml": ["pip install --pre --upgrade cdktn"],
}


def commands(path):
    """The commands of a script, a workflow or a Containerfile that fetch something."""
    text = re.sub(r"\\\n\s*", "", path.read_text())
    lines = (
        line.split(" || die")[0] for line in text.splitlines() if not line.lstrip().startswith("#")
    )
    return [
        command for line in lines for command in re.split(r" && |; ", line) if FETCH.search(command)
    ]


def test_everything_that_scripts_workflows_and_the_image_fetch_is_pinned_by_hash():
    """Packages come from a lock with hashes and an action from a commit: a version or a tag can be moved."""
    scripts = [
        path
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.suffix in ("", ".sh")
    ]
    workflows = list((ROOT / ".github" / "workflows").glob("*.y*ml"))
    deploy = [ROOT / "deploy" / name for name in ("Containerfile", "kubectl-mpctl")]
    files = {
        str(path.relative_to(ROOT)): path
        for path in (*scripts, *workflows, *deploy, ROOT / "action.yml")
    }
    fetching = {name: found for name, path in files.items() if (found := commands(path))}
    assert {
        "action.yml",
        "scripts/_env",
        "scripts/release",
        ".github/workflows/drift.yaml",
        "deploy/Containerfile",
    } <= set(fetching)
    open_ends = {
        name: [
            c
            for c in found
            if not PINNED.search(c) and not any(e in c for e in UNPINNED.get(name, ()))
        ]
        for name, found in fetching.items()
    }
    assert {name: found for name, found in open_ends.items() if found} == {}
    assert [
        (n, e) for n, ends in UNPINNED.items() for e in ends if not any(e in c for c in fetching[n])
    ] == []
    used = [use for flow in workflows for use in re.findall(r"uses: *(\S+)", flow.read_text())]
    assert len(used) >= 3
    assert [use for use in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use)] == []
    lock = json.loads((ROOT / "requirements" / "stacks" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert len(packages) > 400
    # A bundled package is a part of another one's archive.
    assert [
        n
        for n, package in packages.items()
        if "integrity" not in package and not package.get("inBundle")
    ] == []


def test_the_image_is_built_on_a_digest_and_with_pinned_tools():
    text = (ROOT / "deploy" / "Containerfile").read_text()
    assert re.findall(r"^ARG BASE.*$", text, re.MULTILINE) == [
        "ARG BASE",
        "ARG BASE",
    ]  # no default, which were a tag
    assert 'case "$BASE" in *@sha256:*)' in text
    assert pinned("build.txt").items() <= pinned("release.txt").items()


def test_the_manifest_for_krew_has_what_krew_requires():
    """https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/; scripts/release fills in the names."""
    text = (ROOT / "deploy" / "krew.yaml").read_text()
    names = {"VERSION": __version__, "REPOSITORY": "owner/mpctl", "SHA256": "a" * 64}
    assert set(re.findall(r"@([A-Z0-9]+)@", text.replace("@NAMES@", ""))) == set(names)
    for name, value in names.items():
        assert f"s|@{name}@|" in (ROOT / "scripts" / "release").read_text()
        text = text.replace(f"@{name}@", value)
    plugin = yaml.safe_load(text)
    assert (plugin["apiVersion"], plugin["kind"]) == (
        "krew.googlecontainertools.github.com/v1alpha2",
        "Plugin",
    )
    assert plugin["metadata"]["name"] == "mpctl"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", plugin["spec"]["version"])
    assert "\n" not in plugin["spec"]["shortDescription"]
    (platform,) = plugin["spec"]["platforms"]
    assert set(platform) == {"selector", "uri", "sha256", "bin"}
    assert re.fullmatch("[0-9a-f]{64}", platform["sha256"])
    assert {e["key"] for e in platform["selector"]["matchExpressions"]} <= {"os", "arch"}
    assert (ROOT / "deploy" / platform["bin"]).stat().st_mode & 0o111


def jobs():
    """Each job of a workflow with its permissions and its steps."""
    for flow in (ROOT / ".github" / "workflows").glob("*.y*ml"):
        document = yaml.safe_load(flow.read_text())
        for name, job in document["jobs"].items():
            yield (
                f"{flow.stem}.{name}",
                job.get("permissions", document.get("permissions")),
                job["steps"],
            )


def test_no_job_of_a_workflow_has_more_rights_than_its_steps_need():
    seen = {name: (permissions, steps) for name, permissions, steps in jobs()}
    assert {name for name, (permissions, _) in seen.items() if permissions is None} == set()
    checkouts = [
        s for _, steps in seen.values() for s in steps if "actions/checkout" in s.get("uses", "")
    ]
    assert [s for s in checkouts if s.get("with", {}).get("persist-credentials") is not False] == []
    for name, (permissions, steps) in seen.items():
        runs = [step["run"] for step in steps if "run" in step]
        if permissions.get("contents") == "write" or permissions.get("attestations"):
            assert [s for s in steps if "checkout" in s.get("uses", "")] == [], name
            assert [run for run in runs if FETCH.search(run) or "./scripts" in run] == [], name
        at = [
            i
            for i, step in enumerate(steps)
            if re.search(r"credentials@|/auth@", step.get("uses", ""))
        ]
        late = [s["run"] for s in steps[min(at) :] if FETCH.search(s.get("run", ""))] if at else []
        assert late == [], f"{name} installs after it has credentials of a cloud"
        assert not (at and permissions.get("issues")), (
            f"{name} could publish what its credentials read"
        )


def test_drift_is_published_neither_in_an_issue_nor_in_the_log():
    steps = [step for name, _, steps in jobs() if name.startswith("drift.") for step in steps]
    assert [
        s["run"] for s in steps if re.search(r"\bcat\b|tail|body-file|tee", s.get("run", ""))
    ] == []


RELEASED = ("cloud", "report", "sign", "otel")  # extras that the image and the plugin have


def test_what_a_release_lists_is_what_the_wheel_needs():
    """The SBOM is made of requirements/runtime.txt: every dependency of pyproject.toml is there, in a version that the
    tests run with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {name: pinned(name + ".txt") for name in ("runtime", "dev")}
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *(r for name in RELEASED for r in extras[name])):
        name = re.match(r"[\w.-]+", requirement)[0].lower().replace(".", "-")
        assert name in locked["runtime"], name
    assert locked["runtime"].items() <= locked["dev"].items()


def pinned(lock):
    return dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)
    )


@pytest.mark.needs("local")
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
    assert "mpctl/local/in_engine/serve.py" in names
    assert "mpctl/py.typed" in names


def test_no_document_was_left_unfinished():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"@[A-Z]+@|TODO|FIXME", page.read_text()), page.name


def vague_names(source):
    """(line, name) of the local names and parameters of a module that do not say what they hold."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.FunctionDef(args=arguments, body=body)
                | ast.AsyncFunctionDef(args=arguments, body=body)
            ):
                names = [inner for statement in body for inner in ast.walk(statement)]
                local = [
                    (n.lineno, n.name)
                    for n in names
                    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                local += [
                    (n.lineno, n.id)
                    for n in names
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                ]
                parameters = [a for a in ast.walk(arguments) if isinstance(a, ast.arg)]
            case ast.Lambda(args=arguments):
                local, parameters = [], [a for a in ast.walk(arguments) if isinstance(a, ast.arg)]
            case ast.comprehension(target=target):
                local, parameters = (
                    [(n.lineno, n.id) for n in ast.walk(target) if isinstance(n, ast.Name)],
                    [],
                )
            case _:
                continue
        yield from (
            (line, name)
            for line, name in (*local, *((a.lineno, a.arg) for a in parameters))
            if name in VAGUE
        )


def test_local_names_say_what_they_hold():
    sample = "def f(a, *, more):\n for one in a:\n  def left(): pass\n return [kept for kept in a], (lambda rest: 1)"
    assert sorted(set(vague_names(sample))) == [
        (1, "more"),
        (2, "one"),
        (3, "left"),
        (4, "kept"),
        (4, "rest"),
    ]
    assert (
        list(vague_names("class A:\n    left: int = 0\n    def rest(self): pass")) == []
    )  # fields are in records
    files = sorted((ROOT / "mpctl").rglob("*.py"))
    assert [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files
        for line, name in sorted(set(vague_names(path.read_text())))
    ] == []
