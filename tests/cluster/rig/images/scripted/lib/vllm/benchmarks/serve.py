"""``vllm.benchmarks.serve`` of the scripted image; ``tests/local/scripted/bench.py`` says what it leaves out."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

SCRIPTED = Path(__file__).resolve().parents[7] / "local" / "scripted"


def add_cli_args(parser):
    """None of its own."""


def main(arguments):
    """Run it. Loaded by its place: a module of its name may be there already."""
    if str(SCRIPTED) not in sys.path:
        sys.path.append(str(SCRIPTED))
    spec = spec_from_file_location("scripted_bench", SCRIPTED / "bench.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.bench(arguments)
