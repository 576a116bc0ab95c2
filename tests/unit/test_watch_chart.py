"""The Helm chart of the watch, rendered by Helm, against the objects that ``mpctl watch install`` prints."""

import json
import re
import subprocess

import pytest
import yaml

from mpctl import __version__
from mpctl.app.environment_requests import WatchInstallRequest
from mpctl.app.watch.install import objects
from scripts import watch_chart

ACTS = "fall_back: true\nladder: [ngram, none]\n"
IMAGE = "ghcr.io/acme/mpctl"


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chart")
    watch_chart.main(IMAGE, "acme/mpctl", str(folder))
    return folder / f"mpctl-watch-{__version__}.tgz"


@pytest.fixture
def helm_run(helm, chart, tmp_path):
    """Runs a command of Helm on the chart, with values."""

    def run(command, home="mpctl-system", **values):
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        names = ("watch", chart) if command == "template" else (chart,)
        options = ("-n", home, "-f", file)
        return subprocess.run(
            [helm, command, *names, *options], capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def rendered(helm_run):
    def render(**values):
        done = helm_run("template", **values)
        assert done.returncode == 0, done.stderr
        return by_name(yaml.safe_load_all(done.stdout))

    return render


def by_name(records):
    names = [
        ((r["kind"], r["metadata"]["name"], r["metadata"].get("namespace")), r) for r in records
    ]
    assert len(names) == len(dict(names))
    return dict(names)


@pytest.mark.parametrize(
    ("values", "request_", "policy"),
    [
        ({}, {}, ""),
        ({"policy": ACTS}, {}, ACTS),
        ({"namespace": "ml"}, {"namespace": "ml"}, ""),
        (
            {
                "home": "123",
                "namespace": "456",
                "policy": f"{ACTS}# <&>: é\n",
                "allowFrom": ["monitoring", "1"],
                "secrets": ["b", "mpctl-sentinels", "a"],
                "prometheus": "http://prometheus.monitoring:9090",
                "webhookSecret": "12",
                "image": {"repository": "r.example.com/mpctl", "digest": f"sha256:{'a' * 64}"},
            },
            {
                "home": "123",
                "namespace": "456",
                "allow_from": ("monitoring", "1"),
                "secrets": ("b", "mpctl-sentinels", "a"),
                "prometheus": "http://prometheus.monitoring:9090",
                "webhook_secret": "12",
                "image": f"r.example.com/mpctl@sha256:{'a' * 64}",
            },
            f"{ACTS}# <&>: é\n",
        ),
        (
            {"podMonitor": False, "secrets": ["mpctl-sentinels"], "policy": "fall_back: false\n"},
            {"without": ("podmonitor",), "secrets": ("mpctl-sentinels",)},
            "fall_back: false\n",
        ),
        (
            {"home": "ml", "namespace": "ml", "sharedHome": True, "secrets": ["key"]},
            {"home": "ml", "namespace": "ml", "shared_home": True, "secrets": ("key",)},
            "",
        ),
        # a subject's words are cut at 40 characters, and dashes become one
        (
            {"home": "h", "namespace": "a--namespace-of-a-team-of-many-people"},
            {"home": "h", "namespace": "a--namespace-of-a-team-of-many-people"},
            "",
        ),
    ],
)
def test_the_chart_has_the_objects_that_watch_install_prints(rendered, values, request_, policy):
    request = {"namespace": None, "image": f"{IMAGE}:{__version__}"} | request_
    expected = by_name(objects(WatchInstallRequest(**request), policy))
    actual = rendered(createNamespace=True, **values)
    assert actual.keys() == expected.keys()
    for name, record in expected.items():
        assert actual[name] == record


def test_helm_makes_the_namespace_unless_the_chart_is_asked_to(rendered):
    names = rendered(createNamespace=True).keys() - rendered().keys()
    assert names == {("Namespace", "mpctl-system", None)}
    definition = ("CustomResourceDefinition", "speculationstatuses.mpctl.dev", None)
    assert rendered().keys() - rendered(crd=False).keys() == {definition}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"home": "ml", "namespace": "ml"}, "namespace ml is watched: whoever has the role edit"),
        ({"home": "ml"}, "namespace ml is watched, as all are"),
        ({"namespace": "Not_a_name"}, "does not match pattern"),
        ({"namespaces": "ml"}, "'namespaces' not allowed"),
        ({"image": {"repository": "mpctl", "digest": "latest"}}, "does not match pattern"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(helm_run, values, error):
    done = helm_run("template", **values)
    assert done.returncode == 1
    assert error in done.stderr


def test_helm_finds_no_fault_with_the_chart(helm_run):
    done = helm_run("lint", policy=ACTS)
    assert done.returncode == 0, done.stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


def test_the_chart_has_the_products_version_and_no_placeholder(chart):
    files = watch_chart.files("acme/mpctl", IMAGE)
    about = yaml.safe_load(files["Chart.yaml"])
    assert about["version"] == about["appVersion"] == __version__
    assert about["home"] == "https://github.com/acme/mpctl"
    assert not re.search("@[A-Z]+@", "".join(files.values()).replace("@NAMES@", ""))
    assert watch_chart.archive(files) == chart.read_bytes()
