"""Which measurement a user means: a file, a rollout by name, or the last that measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import RecordingConsole
from rollout_samples import keep_rollouts
from run_samples import make_run

from mpctl.app.bench.recorded import write_run
from mpctl.app.inspect.measured import (
    explain_run,
    find_source,
    make_report,
    require_writable,
)
from mpctl.app.inspect_requests import ExplainRequest, ReportRequest
from mpctl.app.session.base import Place
from mpctl.errors import InputError

HERE, QUIET = Place(), RecordingConsole()


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    return keep_rollouts(tmp_path / "state")


@pytest.mark.needs("local")
def test_without_a_name_it_is_the_last_rollout_that_measured(service):
    source = find_source(HERE, QUIET, None, None)
    assert (source.run.id, source.service, source.rounds, source.planned) == (
        "rollout-2",
        "default/demo",
        4,
        4,
    )


@pytest.mark.needs("local")
def test_a_rollout_is_found_by_its_name(service):
    assert find_source(HERE, QUIET, "rollout-1", "demo").run.id == "rollout-1"


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rollout-3", "rollout-3 of service default/demo measured nothing"),
        ("rollout-9", "rollout rollout-9 of .* not"),
    ],
)
def test_a_rollout_that_is_unknown_or_measured_nothing_is_refused(service, name, message):
    with pytest.raises(InputError, match=message):
        find_source(HERE, QUIET, name, None)


def test_a_file_needs_no_service(service):
    write_run("mine.json.gz", make_run())
    source = find_source(Place(namespace="elsewhere"), QUIET, "mine.json.gz", None)
    assert (source.run, source.service, source.rounds) == (make_run(), "", None)


@pytest.mark.needs("local")
def test_a_report_judges_by_the_policy_asked_for(service):
    Path("strict.yaml").write_text("max_time_per_token_ratio: 0.3\nmax_pod_gap: 0\n")
    Path("alike.yaml").write_text("max_pod_gap: 0\n")
    request = ReportRequest("rollout-1", policy_file="alike.yaml")
    assert make_report(HERE, QUIET, request).report.outcome == "promote"
    strict = ReportRequest("rollout-1", policy_file="strict.yaml")
    assert make_report(HERE, QUIET, strict).report.outcome == "reject"


@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("new.md", None, False),
        ("empty.md", "", False),
        ("ours.md", "<!-- mpctl report -->\n", False),
        ("letter.md", "dear", True),
        ("nowhere/new.md", None, True),
    ],
)
def test_a_report_overwrites_only_reports(tmp_path, name, content, refused):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    if not refused:
        require_writable(path, force=False)
        return
    with pytest.raises(InputError):
        require_writable(path, force=False)
    if content is not None:
        require_writable(path, force=True)


@pytest.mark.needs("local")
def test_an_explanation_has_a_decomposition_per_traffic_condition(service):
    explanation = explain_run(HERE, QUIET, ExplainRequest("rollout-1"))
    assert len(explanation.decompositions) == len(explanation.analysis.cells)
    assert explanation.decompositions[0] is not None
