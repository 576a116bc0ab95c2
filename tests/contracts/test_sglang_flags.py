"""SGLang's speculative flags: those that mpctl writes and reads against the table in SGLang's newest release.

TensorRT-LLM has no such test: its package on PyPI is a stub without files.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpctl.methods import METHODS, Spec, build
from mpctl.methods.dialects import sglang
from mpctl.methods.dialects.refuse import names_in
from mpctl.methods.table import SGLANG

CACHED_UV = Path(__file__).parents[2] / ".cache" / "uv" / "bin" / "uv"


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    """The fields of SGLang's arguments for speculation by name, with their annotations as source."""
    target = tmp_path_factory.mktemp("sglang")
    uv = shutil.which("uv") or (str(CACHED_UV) if CACHED_UV.exists() else None)
    tool = (
        [uv, "pip", "install", "--python", sys.executable] if uv else [shutil.which("pip"), "install", "--no-compile"]
    )
    if tool[0] is None:
        pytest.skip("neither uv nor pip is installed")
    subprocess.run([*tool, "--quiet", "--no-deps", "--target", str(target), "sglang"], check=True, timeout=300)
    source = (target / "sglang" / "srt" / "arg_groups" / "fields" / "spec.py").read_text()
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.fixture(scope="module")
def flags(fields):
    own = {f"--{name.replace('_', '-')}" for name, annotation in fields.items() if "no_cli=True" not in annotation}
    return own | {alias for annotation in fields.values() for alias in re.findall(r"'(--[\w-]+)'", annotation)}


@pytest.mark.parametrize("method", names_in(SGLANG))
def test_every_flag_that_is_written_is_one_of_sglangs(method, flags):
    draft = "/d" if METHODS[method].loads_weights and not METHODS[method].target_layers else None
    sets = ("revision=a", "quantization=fp8") if METHODS[method].loads_weights else ()
    words = sglang.write(build(method, draft=draft, sets=sets)[0])
    written = {word for word in words if word.startswith("--")}
    assert written and written <= flags


def test_every_flag_that_is_read_is_one_of_sglangs(flags):
    assert {*sglang._COUNTS, *sglang._FLAGS.values(), sglang._PATH, sglang._BREADTH} <= flags


def test_every_algorithm_is_one_of_sglangs(fields):
    told = re.search(r"Builtins: ([A-Z0-9, ]+)\.", fields["speculative_algorithm"])
    assert told is not None
    assert set(names_in(SGLANG).values()) <= set(told[1].split(", "))
    assert sglang.write(Spec("none")) == ()
