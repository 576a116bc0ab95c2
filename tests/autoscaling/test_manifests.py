"""What the manifests promise each other and Kubernetes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from stacks.services.autoscaling import queue_wait_target
from tests.simulation.hpa import Behavior, Policy
from tests.simulation.queueing import AUTOSCALERS

from .conftest import MANIFESTS, NAMES, render, rule_groups
from .test_rules import RECORDED, names

APPLIED = sorted(
    [*(MANIFESTS / "autoscaling").glob("*.yaml"), *(MANIFESTS / "monitoring").glob("*.yaml")]
)
HPA = render(MANIFESTS / "autoscaling" / "hpa.yaml")
ADAPTER = yaml.safe_load((MANIFESTS / "autoscaling" / "adapter" / "values.yaml").read_text())
PODS = render(MANIFESTS / "monitoring" / "podmonitor.yaml")


@pytest.mark.parametrize("path", APPLIED, ids=lambda path: path.name)
def test_what_is_applied_per_service_is_one_object_in_its_namespace(path: Path) -> None:
    document = render(path)
    assert {"apiVersion", "kind", "metadata"} <= set(document)
    assert document["metadata"]["namespace"] == "inference"
    # What names no service is one object for all services of a namespace.
    of_one_service = "service" in Template(path.read_text()).get_identifiers()
    assert document["metadata"]["name"].startswith("llm-") == of_one_service


@pytest.mark.parametrize("path", APPLIED, ids=lambda path: path.name)
def test_only_the_known_placeholders_are_left_to_fill(path: Path) -> None:
    assert set(Template(path.read_text()).get_identifiers()) <= set(NAMES)


def test_the_hpa_is_not_called_as_the_one_that_kserve_deletes() -> None:
    assert HPA["spec"]["scaleTargetRef"]["name"] == "llm-predictor"
    assert HPA["metadata"]["name"] != "llm-predictor"


def test_target_and_behaviour_are_the_same_for_the_hpa_and_the_simulator() -> None:
    metric, *ratios = HPA["spec"]["metrics"]
    shipped = {"engine_busy_ratio": AUTOSCALERS[-1].busy, "engine_hold_ratio": AUTOSCALERS[-1].hold}
    thousandths = {
        m["pods"]["metric"]["name"]: m["pods"]["target"]["averageValue"].rstrip("m") for m in ratios
    }
    assert shipped == {name: int(value) / 1000 for name, value in thousandths.items()}
    derived = queue_wait_target(slo_ms=8000, start_s=150, growth_per_minute=0.01)
    assert derived.holds
    assert metric["pods"]["metric"]["name"] == "queue_wait_ms"
    assert int(metric["pods"]["target"]["averageValue"]) == derived.target_ms
    assert AUTOSCALERS[-1].target == derived.target_ms
    assert behavior(HPA["spec"]["behavior"]) == Behavior() == AUTOSCALERS[-1].behavior


def test_what_holds_pods_can_never_order_one() -> None:
    (rule,) = [
        r
        for group in rule_groups()
        for r in group["rules"]
        if r.get("record") == "engine_hold_ratio"
    ]
    most = re.search(r"clamp_max\(.*?,\s*([\d.]+)\s*\)\n", rule["expr"], re.S)
    assert most and float(most[1]) == AUTOSCALERS[-1].hold


def behavior(spec: dict[str, Any]) -> Behavior:
    def policies(side: str) -> tuple[Policy, ...]:
        kinds = {"Percent": "percent", "Pods": "pods"}
        return tuple(
            Policy(p["periodSeconds"], **{kinds[p["type"]]: p["value"]})
            for p in spec[side]["policies"]
        )

    up, down = (spec[side]["stabilizationWindowSeconds"] for side in ("scaleUp", "scaleDown"))
    return Behavior(up, policies("scaleUp"), down, policies("scaleDown"))


def test_giving_up_a_pod_takes_longer_than_getting_one() -> None:
    down = HPA["spec"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] > 195
    assert down["policies"][0]["periodSeconds"] > 195


def test_the_metric_is_defined_once_and_only_read_elsewhere() -> None:
    defined = [
        rule
        for group in rule_groups()
        for rule in group["rules"]
        if rule.get("record") == "queue_wait_ms"
    ]
    assert len(defined) == 1
    (rule,) = ADAPTER["rules"]["custom"]
    served = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])
    assert served and set(rule["resources"]["overrides"]) == {"namespace", "pod"}
    assert "name" not in rule, "the adapter's default is the series' own name"
    assert "vllm:" not in rule["metricsQuery"] and {"queue_wait_ms", "engine_hold_ratio"} <= names(
        "record"
    )
    for metric in HPA["spec"]["metrics"]:
        name = metric["pods"]["metric"]["name"]
        assert re.fullmatch(served[1], name) and not re.fullmatch(served[1], f"{name}:slots")


def test_the_adapter_lists_no_more_often_than_the_engine_is_scraped() -> None:
    (endpoint,) = PODS["spec"]["podMetricsEndpoints"]
    assert int(ADAPTER["metricsRelistInterval"].rstrip("s")) >= int(
        endpoint["interval"].rstrip("s")
    )
    (rule,) = [
        r
        for group in rule_groups()
        for r in group["rules"]
        if r.get("record") == "queue_wait_ms:queued"
    ]
    assert f"({endpoint['interval'].rstrip('s')} * count_over_time(" in rule["expr"]


def test_created_gauges_are_dropped_at_the_scrape() -> None:
    (endpoint,) = PODS["spec"]["podMetricsEndpoints"]
    (drop,) = endpoint["metricRelabelings"]
    assert drop["action"] == "drop"
    assert re.fullmatch(drop["regex"], "vllm:request_queue_time_seconds_created")
    assert not [name for name in RECORDED if re.fullmatch(drop["regex"], name)]


def scraped(promtool: str, folder: Path, *pods: dict[str, str]) -> list[dict[str, str]]:
    """The targets that Prometheus' own relabelling makes of ``pods``, each given by its discovered labels."""
    (endpoint,) = PODS["spec"]["podMetricsEndpoints"]

    def snake(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), k): v for k, v in rule.items()}
            for rule in rules
        ]

    job = {
        "job_name": "engine",
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "metrics_path": endpoint["path"],
        "static_configs": [
            {
                "targets": [f"unused-{number}"],
                "labels": {f"__meta_kubernetes_pod_{k}": v for k, v in pod.items()},
            }
            for number, pod in enumerate(pods)
        ],
        "relabel_configs": snake(endpoint["relabelings"]),
        "metric_relabel_configs": snake(endpoint["metricRelabelings"]),
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    command = [
        promtool,
        "check",
        "service-discovery",
        "--timeout=2s",
        str(folder / "prometheus.yaml"),
        "engine",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [each["labels"] for each in json.loads(done.stdout) if each["labels"]]


def test_a_pod_is_scraped_at_kserves_port_with_the_labels_of_the_rules(
    promtool: str, tmp_path: Path
) -> None:
    engine = {
        "container_name": "kserve-container",
        "label_serving_kserve_io_inferenceservice": "llm",
    }
    targets = scraped(
        promtool,
        tmp_path,
        {**engine, "ip": "10.0.0.7"},
        {**engine, "ip": "10.0.0.8", "annotation_prometheus_kserve_io_port": "9000"},
        {**engine, "ip": "10.0.0.9", "container_name": "storage-initializer"},
    )
    assert {(target["__address__"], target["inference_service"]) for target in targets} == {
        ("10.0.0.7:8080", "llm"),
        ("10.0.0.8:9000", "llm"),
    }


def board() -> dict[str, Any]:
    document = render(MANIFESTS / "monitoring" / "dashboard.yaml")
    (text,) = document["data"].values()
    assert len(text) < 900_000, "a ConfigMap holds 1 MiB"
    loaded = json.loads(text)
    assert isinstance(loaded, dict)
    return loaded


def test_the_dashboard_is_what_its_script_writes() -> None:
    script = MANIFESTS.parent / "scripts" / "dashboard"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_the_dashboard_puts_both_arms_side_by_side() -> None:
    panels = board()["panels"]
    for left, right in zip(panels[::2], panels[1::2], strict=True):
        assert left["gridPos"]["y"] == right["gridPos"]["y"]
        assert [
            target["expr"].replace("$baseline", "$candidate") for target in left["targets"]
        ] == [target["expr"] for target in right["targets"]]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_dashboard_reads_only_what_exists(promtool: str, tmp_path: Path) -> None:
    loaded = board()
    queries = [target["expr"] for panel in loaded["panels"] for target in panel["targets"]]
    queries += [each["expr"] for each in loaded["annotations"]["list"]]
    metrics = {
        name for query in queries for name in re.findall(r"[a-z_]\w*(?::\w+)+|queue_wait_ms", query)
    }
    assert metrics <= set(RECORDED) | names("record"), metrics - set(RECORDED) - names("record")
    filled = [query.replace("$__rate_interval", "1m") for query in queries]
    rules = [{"record": f"panel_{number}", "expr": query} for number, query in enumerate(filled)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_rendered_with_a_sign_left_over() -> None:
    for path in APPLIED:
        assert "${service}" not in Template(path.read_text()).substitute(NAMES)
