"""vLLM 0.33 against what is written of it, read from its wheel: nothing of it is installed or imported.

The wheel is 340 MB. It is fetched once, by ``pip download``, into the cache that all checkouts share.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from mpctl.experiment import counters
from mpctl.manifest.engine import engine_command as command
from mpctl.methods import METHODS
from mpctl.methods.keys import INTERNAL, KEYS
from mpctl.methods.table import UNMANAGED

RELEASE = "0.33.0"
SHA256 = "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa"  # of the x86-64 wheel
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vllm-wheels"


@pytest.fixture(scope="module")
def wheel():
    """Reads a module of the wheel as text."""
    paths = sorted(CACHE.glob(f"vllm-{RELEASE}-*x86_64.whl"))
    if not paths:
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = shutil.which("pip") or pytest.skip(
            f"no wheel of vLLM {RELEASE} in {CACHE}, and no pip to fetch it"
        )
        command_line = [
            pip,
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(CACHE),
            f"vllm=={RELEASE}",
        ]
        done = subprocess.run(
            command_line, capture_output=True, text=True, timeout=900, check=False
        )
        paths = sorted(CACHE.glob(f"vllm-{RELEASE}-*x86_64.whl"))
        if not paths:
            why = done.stderr.strip().splitlines() or ["pip wrote nothing"]
            pytest.skip(f"no wheel of vLLM {RELEASE}: {why[-1]}")
    with paths[0].open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256
    with zipfile.ZipFile(paths[0]) as archive:
        yield lambda path: archive.read(f"vllm/{path}").decode()


def class_fields(text, name):
    """Fields of a class by name, with their annotations as text."""
    (body,) = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name]
    return {
        n.target.id: ast.unparse(n.annotation) for n in body.body if isinstance(n, ast.AnnAssign)
    }


def literals(text):
    """Values of module-level names that are a Literal, others of them inside included."""
    entries = {}
    for node in ast.parse(text).body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Subscript) and getattr(value.value, "id", "") == "Literal":
            parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
            names = [
                entries.get(p.id, ()) if isinstance(p, ast.Name) else (p.value,) for p in parts
            ]
            entries[node.targets[0].id] = tuple(value for some in names for value in some)
    return entries


def flags_of(text):
    """Flags that a parser's source declares, short and long."""
    calls = [
        n
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    named = [c.args for c in calls if c.func.attr == "add_argument"]
    return {
        a.value
        for args in named
        for a in args
        if isinstance(a, ast.Constant) and str(a.value).startswith("-")
    }


def test_every_key_of_the_speculative_config_is_known(wheel):
    actual_class_fields = set(class_fields(wheel("config/speculative.py"), "SpeculativeConfig"))
    assert actual_class_fields - INTERNAL - {"method", "tensor_parallel_size"} == set(KEYS)


def test_choices_are_those_of_the_engine(wheel):
    known = literals(wheel("config/speculative.py"))
    assert set(KEYS["rejection_sample_method"].choices) == set(known["RejectionSampleMethod"])
    assert set(KEYS["draft_sample_method"].choices) == set(known["DraftSampleMethod"])
    quantised = class_fields(wheel("config/speculative.py"), "SpeculativeConfig")[
        "draft_lm_head_quantization"
    ]
    assert set(KEYS["draft_lm_head_quantization"].choices) == set(re.findall(r"'(\w+)'", quantised))


def test_methods_are_there_but_for_those_with_a_ceiling(wheel):
    speculative_methods = set(literals(wheel("config/speculative.py"))["SpeculativeMethod"])
    gone = {row.name for row in METHODS.values() if row.ceiling is not None}
    wanted = {
        row.engine_method for row in METHODS.values() if row.engine_method and row.name not in gone
    }
    assert wanted <= speculative_methods
    assert not gone & speculative_methods
    assert {name for name in speculative_methods - wanted if not name.endswith("_mtp")} <= UNMANAGED


def test_variants_of_a_method_are_told_by_their_architectures(wheel):
    dispatch = wheel("v1/worker/gpu/spec_decode/__init__.py") + wheel("config/speculative.py")
    named = {name for row in METHODS.values() for one in row.variants for name in one.architectures}
    assert named
    assert named <= set(re.findall(r'"(\w+)"', dispatch))


def test_what_runs_on_one_model_runner_alone_is_written_in_its_row(wheel):
    text = wheel("config/vllm.py")
    body = text.partition("def _get_v2_model_runner_unsupported_features")[2].partition(
        "def _get_v1_model"
    )[0]
    missing = re.search(r"method in \(([^)]*)\)", body)
    assert missing is not None
    lacking = {row.name for row in METHODS.values() if not row.v2_runner and row.ceiling is None}
    assert lacking == (set(re.findall(r'"(\w+)"', missing[1])) - UNMANAGED) | {"p-eagle"}
    assert "parallel drafting for EAGLE" in body


def test_metrics_have_the_names_that_are_read(wheel):
    text = "".join(wheel(path) for path in ("v1/metrics/loggers.py", "v1/spec_decode/metrics.py"))
    exported = set(re.findall(r'"(vllm:[a-z_]+)"', text))
    source = Path(counters.__file__).read_text()
    wanted = set(re.findall(r"vllm:[a-z_]+[a-z]", source))
    plain = {re.sub(r"_(total|count|sum|bucket)$", "", name) for name in wanted}
    assert plain
    prefixes = {name for name in plain if any(other.startswith(name) for other in exported)}
    assert plain == prefixes


def test_switches_of_the_engine_are_known(wheel):
    """Flags that take no value: those whose field is a truth value."""
    engine, server = wheel("engine/arg_utils.py"), wheel("entrypoints/common/cli_args.py")
    declared = flags_of(engine)
    fields = class_fields(engine, "EngineArgs")
    switches = {
        flag
        for name, kind in fields.items()
        if is_switch(kind) and (flag := flag_of(name)) in declared
    }
    for name in ("BaseFrontendArgs", "FrontendArgs"):
        switches |= {
            flag_of(field) for field, kind in class_fields(server, name).items() if is_switch(kind)
        }
    assert len(switches) > 60
    assert switches <= command.BOOLEANS


def is_switch(kind):
    return kind in ("bool", "bool | None")


def flag_of(name):
    return f"--{name.replace('_', '-')}"
