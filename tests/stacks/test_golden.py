"""The JSON that Terraform gets, reviewed as a diff; the same bytes from both cores.

`MPCTL_UPDATE_GOLDEN=1 python -m pytest tests/stacks/test_golden.py` renews the files. Files of
manifests/autoscaling and manifests/monitoring are others' concern, so the serving stacks are compared
without the objects made from them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.conftest import DATA, ROOT

GOLDEN = Path(__file__).parent / "golden"
CLUSTERS = ("eks-l4-single", "gke-l4-single")
NAMES = [
    f"{cluster}-{layer}" for cluster in CLUSTERS for layer in ("cluster", "platform", "serving")
]


def own(name: str, document: Any) -> str:
    """The document as text, without what the folders of another concern add."""
    from stacks.manifests import AUTOSCALING, MONITORING, address, from_folders
    from stacks.settings import read_settings

    document = json.loads(json.dumps(document))
    if name.endswith("-serving"):
        settings = read_settings((DATA / "golden.yaml").read_text("utf-8"), "golden.yaml")
        foreign = from_folders((AUTOSCALING, MONITORING), settings.services, settings.namespace)
        for item in foreign:
            document["resource"]["kubernetes_manifest"].pop(address(item), None)
    if name.endswith("-platform"):
        document["resource"]["helm_release"]["prometheus_adapter"].pop("values")
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_stack_equals_its_golden_file(name: str, synthesised: dict[str, Any]) -> None:
    path = GOLDEN / f"{name}.json"
    text = own(name, synthesised[name])
    if os.environ.get("MPCTL_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), (
        f"review the difference, then MPCTL_UPDATE_GOLDEN=1 renews {path.name}"
    )


def test_no_golden_file_without_a_stack(synthesised: dict[str, Any]) -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == sorted(synthesised)


SCRIPT = """
import json, sys
from tests.stacks.conftest import DATA, synthesise
from infra import core
environ = {"MPCTL_ENV": str(DATA / "golden.yaml"), "MPCTL_GCP_PROJECT": "example-project"}
json.dump({"core": core.NAME, "stacks": synthesise(environ)}, sys.stdout, sort_keys=True)
"""


@pytest.mark.parametrize("core", ["cdktf", "cdktn"])
def test_both_cores_write_the_same(core: str, synthesised: dict[str, Any]) -> None:
    if importlib.util.find_spec(core) is None:
        pytest.skip(f"{core} is not installed: pip install {core}")
    environment = {**os.environ, "MPCTL_CDK_CORE": core}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["core"] == core
    assert answer["stacks"] == synthesised
