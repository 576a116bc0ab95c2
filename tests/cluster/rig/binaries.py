"""The programs and definitions of the rig: found where somebody has them, otherwise built once from pinned Go modules.

Modules beside this file pin everything by hash: ``kubernetes`` (1.36 with etcd 3.6) and ``kserve`` (0.20, which needs
older Kubernetes libraries); apart from these, ``knative`` (see there), ``prometheus`` and ``helm``, which
pins the versions that KServe is built with, so that what KServe compiled is not compiled again. What is built goes to a
cache keyed by these files, so a change of a version builds again and several checkouts share one build. KServe's
and Gateway API's definitions come out of the same modules.

``MPCTL_RIG_ASSETS`` and ``KUBEBUILDER_ASSETS`` name directories whose programs are taken before ours.
``MPCTL_RIG_CACHE`` moves the cache. ``python -m tests.cluster.rig.binaries [EXTRA ...|all]`` builds and prints where
things are.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = "v1.36.4"  # as in kubernetes/go.mod; tests/contracts/test_binaries.py compares
HELM_VERSION = "v3.19.0"  # as in helm/go.mod
GO = "go1.26.8"  # 1.27 compiles a kube-apiserver whose /openapi/v2 is broken
_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Program:
    """One binary: the module that pins it, its package, linker flags and build tags. ``build_s``: seconds that a build
    takes on two cores after those before it."""

    name: str
    module: str
    package: str
    ldflags: str = "-s -w"
    build_s: int = 60
    tags: str = ""


# Without these a client that parses gitVersion sees "v0.0.0-master+$Format:%H$".
_STAMP = " ".join(
    [
        "-s -w",
        f"-X {_VERSION}.gitVersion={KUBERNETES}",
        f"-X {_VERSION}.gitMajor=1",
        f"-X {_VERSION}.gitMinor={KUBERNETES.split('.')[1]}",
        f"-X {_VERSION}.gitTreeState=clean",
    ]
)
PROGRAMS = (
    Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", _STAMP, 340),
    Program(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        _STAMP,
        65,
    ),
    Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", _STAMP, 6),
    Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", _STAMP, 25),
    Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3", build_s=10),
    Program("kserve-manager", "kserve", "github.com/kserve/kserve/cmd/manager", build_s=160),
)

# (module, folder of YAML files inside it); each document is kept as JSON, since the largest takes seconds to parse.
DEFINITIONS = {
    "kserve-crds": ("github.com/kserve/kserve", "config/crd/full"),
    "kserve-storage-crds": ("github.com/kserve/kserve", "config/crd/full/clusterstoragecontainer"),
    "kserve-config": ("github.com/kserve/kserve", "config/configmap"),
    "kserve-webhooks": ("github.com/kserve/kserve", "config/webhook"),
    "kserve-runtimes": ("github.com/kserve/kserve", "config/runtimes"),
    "gateway-crds": ("sigs.k8s.io/gateway-api", "config/crd/standard"),
}


@dataclass(frozen=True)
class Recipe:
    """What is built together, into a cache of its own. ``source``: the module that pins where definitions are from."""

    modules: tuple[str, ...]
    programs: tuple[Program, ...]
    definitions: Mapping[str, tuple[str, str]]
    source: str


BASE = Recipe(("kubernetes", "kserve"), PROGRAMS, DEFINITIONS, "kserve")
# Without the service discovery of clouds, whose clients are most of a full build.
_LEAN = "remove_all_sd,netgo"
_PROMETHEUS = "github.com/prometheus/prometheus/cmd"


def _prometheus(name: str) -> Recipe:
    program = Program(name, "prometheus", f"{_PROMETHEUS}/{name}", build_s=125, tags=_LEAN)
    return Recipe(("prometheus",), (program,), {}, "prometheus")


PROMTOOL, PROMETHEUS = _prometheus("promtool"), _prometheus("prometheus")
_HELM = f"-s -w -X helm.sh/helm/v3/internal/version.version={HELM_VERSION}"
HELM = Recipe(("helm",), (Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", _HELM),), {}, "helm")


def extras() -> dict[str, Recipe]:
    """What a cluster can have beyond BASE, by the name that ``scripts/cluster up --with`` takes."""
    from . import knative, llmisvc, lws

    return {
        "llm": llmisvc.RECIPE,
        "lws": lws.RECIPE,
        "knative": knative.RECIPE,
        "prometheus": PROMETHEUS,
    }


class Missing(Exception):
    """Something the rig needs is not there; the text says what and how to get it."""


@dataclass(frozen=True)
class Assets:
    """Where each program is, and the folder of definitions."""

    programs: dict[str, Path]
    definitions: Path

    def __getitem__(self, name: str) -> str:
        return str(self.programs[name])

    def documents(self, name: str) -> list[dict]:
        """The Kubernetes objects of one entry of DEFINITIONS."""
        return json.loads((self.definitions / f"{name}.json").read_text())


def find(recipe: Recipe = BASE) -> Assets:
    """All programs and definitions of a recipe, built first where they are missing.

    Raises:
        Missing: there is no Go toolchain that can build them, or a build failed.
    """
    build(recipe)
    definitions = _definitions(recipe)
    assert definitions is not None
    return Assets(_programs(recipe), definitions)


def is_built(recipe: Recipe = BASE) -> bool:
    """Whether all programs and definitions of a recipe can be used at once.

    Raises:
        Missing: a folder that the environment names does not exist.
    """
    return Path() not in _programs(recipe).values() and _definitions(recipe) is not None


def build(*recipes: Recipe) -> None:
    """Build what several recipes lack, with the time that all of it takes.

    Raises:
        Missing: as :func:`find`.
    """
    lacking = [recipe for recipe in recipes if not is_built(recipe)]
    progress = Progress(
        [p for recipe in lacking for p in recipe.programs if _programs(recipe)[p.name] == Path()]
    )
    for recipe in lacking:
        _make(recipe, progress)


class Progress:
    """What is built in which order, and about how long the rest takes: the programs' seconds on two cores, scaled by
    how long those that were built took here."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = list(programs)
        self._expected_s = self._took_s = 0.0

    def line(self, program: Program) -> str:
        """For the screen, before a program is built."""
        position = self._programs.index(program)
        pace = self._took_s / self._expected_s if self._expected_s else 1.0
        minutes = max(1, round(pace * sum(p.build_s for p in self._programs[position:]) / 60))
        return f"building {program.name} ({position + 1} of {len(self._programs)}), about {minutes} min left"

    def built(self, program: Program, seconds: float) -> None:
        """Note how long a program took."""
        self._expected_s += program.build_s
        self._took_s += seconds


def _make(recipe: Recipe, progress: Progress) -> None:
    cache = cache_folder(recipe)
    with _locked(cache):
        go = None
        for program in recipe.programs:
            if _programs(recipe)[program.name] == Path():
                go = go or _go()
                _say(progress.line(program))
                progress.built(program, _build(go, program, cache / "bin"))
        if _definitions(recipe) is None:
            _extract(go or _go(), cache / "definitions", recipe)


def _given() -> list[Path]:
    """Folders of programs that the environment names."""
    paths = [
        Path(os.environ[name])
        for name in ("MPCTL_RIG_ASSETS", "KUBEBUILDER_ASSETS")
        if os.environ.get(name)
    ]
    for folder in paths:
        if not folder.is_dir():
            raise Missing(
                f"{folder} is not a directory; MPCTL_RIG_ASSETS and KUBEBUILDER_ASSETS name folders of programs"
            )
    return paths


def _programs(recipe: Recipe) -> dict[str, Path]:
    """Where each program is, an empty path where it is missing."""
    folders = [*_given(), cache_folder(recipe) / "bin"]
    return {
        p.name: next((f / p.name for f in folders if (f / p.name).is_file()), Path())
        for p in recipe.programs
    }


def _definitions(recipe: Recipe) -> Path | None:
    """The folder that has every definition of a recipe."""
    names = [f"{name}.json" for name in recipe.definitions]
    folders = (*(given / "definitions" for given in _given()), cache_folder(recipe) / "definitions")
    return next(
        (folder for folder in folders if all((folder / name).is_file() for name in names)), None
    )


def cache_folder(recipe: Recipe = BASE) -> Path:
    """The folder of this very set of versions."""
    root = os.environ.get("MPCTL_RIG_CACHE")
    base = (
        Path(root)
        if root
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpctl-rig"
    )
    return base / digest(recipe)


def digest(recipe: Recipe = BASE) -> str:
    """Twelve hex digits over everything that decides what is built."""
    built = [(p.name, p.package, p.ldflags, *filter(None, [p.tags])) for p in recipe.programs]
    sha = hashlib.sha256(repr((GO, built, sorted(recipe.definitions.items()))).encode())
    for module in recipe.modules:
        for name in ("go.mod", "go.sum"):
            sha.update((HERE / module / name).read_bytes())
        for source in sorted((HERE / module).rglob("*.go")):
            sha.update(source.read_bytes())
    return sha.hexdigest()[:12]


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another build is under way in {cache}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _go() -> tuple[str, dict[str, str]]:
    """The go command and an environment in which it is the version we need.

    Any Go since 1.21 fetches that version by itself (the GOTOOLCHAIN setting).
    """
    hint = (
        f"the control plane of tests/cluster is built with {GO}: scripts/test and scripts/cluster fetch a Go where "
        f"there is none; or install Go 1.21 or newer (Ubuntu: apt install golang-go, others: https://go.dev/dl), which "
        f"fetches {GO} itself; or set MPCTL_RIG_ASSETS to a folder that holds {', '.join(p.name for p in PROGRAMS)}"
    )
    go = (
        os.environ.get("MPCTL_GO")
        or shutil.which("go")
        or shutil.which("go", path="/usr/local/go/bin")
    )
    if go is None:
        raise Missing(f"no Go toolchain was found; {hint}")
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOWORK": "off",
    }
    version = _version(go, {**environment, "GOTOOLCHAIN": "local"})
    if version.startswith("go1.26."):
        return go, {**environment, "GOTOOLCHAIN": "local"}
    environment["GOTOOLCHAIN"] = GO
    if _version(go, environment) != GO:
        raise Missing(f"{go} is {version or 'unusable'} and cannot switch to {GO}; {hint}")
    return go, environment


def _version(go: str, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            [go, "version"], env=environment, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.split()[2] if done.returncode == 0 else ""


def _build(go: tuple[str, dict[str, str]], program: Program, folder: Path) -> float:
    """Build a program; the seconds that it took."""
    command, environment = go
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        target = Path(scratch) / program.name
        flags = (f"-tags={program.tags}", f"-ldflags={program.ldflags}")
        done = subprocess.run(
            [command, "build", "-trimpath", *flags, f"-o={target}", program.package],
            cwd=HERE / program.module,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Missing(
                f"{program.name} could not be built in {HERE / program.module}:\n{done.stderr[-3000:]}"
            )
        target.replace(folder / program.name)
    seconds = time.monotonic() - start
    _say(f"built {program.name} in {seconds:.0f} s")
    return seconds


def _extract(go: tuple[str, dict[str, str]], folder: Path, recipe: Recipe) -> None:
    """Write each entry of a recipe's definitions as one JSON list."""
    import yaml

    command, environment = go
    _say(f"reading the definitions that module {recipe.source} pins")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (module, inside) in recipe.definitions.items():
        done = subprocess.run(
            [command, "mod", "download", "-json", module],
            cwd=HERE / recipe.source,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Missing(
                f"module {module} could not be fetched:\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
            )
        documents = []
        for path in sorted((Path(json.loads(done.stdout)["Dir"]) / inside).glob("*.yaml")):
            documents += [
                d
                for d in yaml.load_all(path.read_text(), loader)
                if isinstance(d, dict) and d.get("kind")
            ]
        scratch = folder / f".{name}.{os.getpid()}"
        scratch.write_text(json.dumps(documents, default=str))
        scratch.replace(folder / f"{name}.json")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Build BASE and the named extras and print where the programs are. ``all``: everything that a test needs; of that
    only BASE must succeed, the test that wants something else builds it or says why it cannot."""
    everything = {**extras(), "promtool": PROMTOOL, "helm": HELM}
    try:
        build(
            BASE,
            *(
                everything.values()
                if "all" in arguments
                else map(everything.__getitem__, arguments)
            ),
        )
    except Missing as missing:
        _say(f"error: {missing}")
        if "all" not in arguments or not is_built(BASE):
            return 2
    sys.stdout.write(f"{cache_folder()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
