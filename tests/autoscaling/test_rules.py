"""Every recording rule and alert, by promtool's own unit tests; the cases are in rules/*.yaml."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import rule_groups

HERE = Path(__file__).parent
CASES = sorted((HERE / "rules").glob("*.yaml"))
RECORDED = (HERE.parents[1] / "tests/autoscaling/metrics-0.32.0.txt").read_text().split()


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(promtool: str, rules_file: Path) -> None:
    assert "SUCCESS" in run(promtool, "check", "rules", "--lint=all", "--lint-fatal", rules_file)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_unit(promtool: str, rules_file: Path, case: Path, tmp_path: Path) -> None:
    shutil.copy(rules_file, tmp_path / "rules.yaml")
    order = json.dumps(
        [group["name"] for group in rule_groups()]
    )  # otherwise it is another in every run
    (tmp_path / "case.yaml").write_text(f"group_eval_order: {order}\n{case.read_text()}")
    run(promtool, "test", "rules", tmp_path / "case.yaml")


def names(kind: str) -> set[str]:
    return {rule[kind] for group in rule_groups() for rule in group["rules"] if kind in rule}


def test_every_rule_and_alert_has_a_case() -> None:
    text = "\n".join(case.read_text() for case in CASES)
    fired = {
        test["alertname"]
        for case in CASES
        for group in yaml.safe_load(case.read_text())["tests"]
        for test in group.get("alert_rule_test", [])
        if test.get("exp_alerts")
    }
    silent = {
        test["alertname"]
        for case in CASES
        for group in yaml.safe_load(case.read_text())["tests"]
        for test in group.get("alert_rule_test", [])
        if not test.get("exp_alerts")
    }
    assert names("alert") == fired, "an alert that no case fires"
    assert names("alert") == silent, "an alert that no case keeps silent"
    missing = {
        name for name in names("record") if not re.search(rf"expr: .*\b{re.escape(name)}\b", text)
    }
    assert not missing, "a recording rule that no case reads"


def test_every_alert_has_a_runbook_that_exists() -> None:
    for group in rule_groups():
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            page = HERE.parents[1] / rule["annotations"]["runbook_url"]
            assert page.is_file(), rule["alert"]
            assert rule["alert"] in page.read_text(), f"{page.name} does not name {rule['alert']}"
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_rules_read_only_metrics_that_the_engine_exports() -> None:
    used = {
        name
        for group in rule_groups()
        for rule in group["rules"]
        for name in re.findall(r"vllm:\w+", rule["expr"])
    }
    assert used
    assert used <= set(RECORDED), used - set(RECORDED)
    assert not [name for name in used if name.endswith("_created")]
