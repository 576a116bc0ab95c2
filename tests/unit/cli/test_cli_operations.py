"""argv -> request of rollout and rollback, and the whole output of rollout's end; no service is touched."""

import json
import re
from dataclasses import replace

import click
import pytest
from session import MANIFEST, MemorySession

from mpctl import commands
from mpctl.app import option
from mpctl.app.operate import rollback, rollout
from mpctl.app.operate.outcome import OperationOutcome
from mpctl.app.requests import (
    DryRun,
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SigningRequest,
    SpeculationRequest,
    TrafficRequest,
)
from mpctl.app.session.base import ServiceNotFound
from mpctl.cli.context import CliContext
from mpctl.cli.operate.outcome import outcome_text
from mpctl.cli.registry import every_command
from mpctl.cli.settings_files import options_of
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.experiment.users import Placement
from mpctl.manifest import redacted
from mpctl.staging.modes import StagingFacts

NGRAM = RolloutRequest(SpeculationRequest("ngram"))


def speculating(**changes):
    return replace(NGRAM, speculation=replace(NGRAM.speculation, **changes))


def measured(**changes):
    return replace(NGRAM, measurement=MeasurementRequest(**changes))


def shifted(**changes):
    return replace(NGRAM, traffic=TrafficRequest(**changes))


ROLLOUTS = [
    ([], NGRAM),
    (["--set", "k=1", "--set", "a=b"], speculating(settings=("k=1", "a=b"))),
    (["--spec-config", "@f.json"], speculating(config="@f.json")),
    (["--draft", "org/head"], speculating(draft="org/head")),
    (
        ["--refuse", "requests-lost", "--refuse", "answers-cut"],
        speculating(refused=("requests-lost", "answers-cut")),
    ),
    (["--gpu", "L4", "--accept", "a", "--accept", "b"], speculating(gpu="L4", accepted=("a", "b"))),
    (["--bake", "0"], shifted(bake_s=0.0)),
    (
        ["--prompts", "edits:2", "--prompts", "a=f.jsonl"],
        measured(prompts=("edits:2", "a=f.jsonl")),
    ),
    (["--concurrency", "1,8"], measured(concurrency=(1, 8))),
    (["--requests", "4", "--repeats", "6"], measured(requests=4, rounds=6)),
    (["--max-time", "5m"], measured(time_limit_s=300.0)),
    (["--max-tokens", "9"], measured(max_tokens=9)),
    (["--prompts", "@log.jsonl"], measured(prompts=("@log.jsonl",))),
    (["--policy", "p.yaml"], measured(policy="p.yaml")),
    (
        ["--traffic-steps", "1,10,50", "--step-duration", "9s"],
        shifted(steps_percent=(1, 10, 50), step_duration_s=9.0),
    ),
    (
        ["--measure-on", "split", "--users-share", "25"],
        shifted(measure_on="split", users_share_percent=25),
    ),
    (["--mirror", "50"], shifted(mirror_percent=50)),
    (["--keep-baseline"], shifted(keep_baseline=True)),
    (
        ["--strategy", "in-place", "--accept-downtime"],
        replace(NGRAM, strategy="in-place", accept_downtime=True),
    ),
    (["--fidelity", "full"], replace(NGRAM, fidelity="full")),
    (["--force", "--timeout", "1h"], replace(NGRAM, force=True, ready_timeout_s=3600.0)),
    (["--dry-run=client"], replace(NGRAM, dry_run=DryRun.CLIENT)),
]
ROLLBACKS = [
    ([], RollbackRequest()),
    (["--to-revision", "3"], RollbackRequest(to_revision=3)),
    (["--strategy", "in-place", "--exact"], RollbackRequest(strategy="in-place", exact=True)),
    (
        ["--accept-downtime", "--timeout", "90s"],
        RollbackRequest(accept_downtime=True, ready_timeout_s=90.0),
    ),
    (["--dry-run", "client"], RollbackRequest(dry_run=DryRun.CLIENT)),
]


@pytest.fixture
def requested(monkeypatch):
    """What the use case behind a command was called with; its outcome is that nothing is to be done."""
    rows = []

    def run(session, request):
        rows.append((session, request))
        return OperationOutcome.nothing_to_do(session, "nothing to do")

    session = MemorySession()
    monkeypatch.setattr(rollout, "run", run)
    monkeypatch.setattr(rollback, "run", run)
    monkeypatch.setattr(
        "mpctl.local.session.open_local", lambda place, console, name, **_gone: session
    )
    return rows


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("arguments", "request_"), ROLLOUTS, ids=[" ".join(a) or "none" for a, _ in ROLLOUTS]
)
def test_the_request_of_a_rollout(cli, requested, arguments, request_):
    done = cli("rollout", "svc", "--spec", "ngram", *arguments)
    assert (done.code, done.out, done.err) == (0, "", "nothing to do\n")
    assert [asked for _, asked in requested] == [request_]


SETTINGS = {
    "known_bad": ("rows.yaml", speculating(known_bad="rows.yaml")),
    "drafts": ("mine.yaml", speculating(catalogue="mine.yaml")),
    "draft_listing": ("d", speculating(draft_listing="d")),
    "target_listing": ("t", speculating(target_listing="t")),
    "users_window": ("1m", shifted(users_window_s=60.0)),
    "route": ("users", shifted(route="users")),
    "rate": ("0.5,2", measured(requests_per_s=(0.5, 2.0))),
    "temperature": ("0,0.7", measured(temperatures=(0.0, 0.7))),
    "reuse_prompts": ("true", measured(reuse_prompts=True)),
    "warm": ("false", measured(warm=False)),
    "engine_version": ("0.32.0", speculating(engine_version="0.32.0")),
    "contexts": ("2k,300", measured(contexts=(2048, 300))),
    "thinking": ("both", measured(thinking="both")),
    "adapters": ("sql,law", measured(adapters=("sql", "law"))),
    "load": ("local", measured(load="local")),
    "measure_limit": ("30m", shifted(measure_limit_s=1800.0)),
    "bundle": ("v.intoto.jsonl", replace(NGRAM, bundle="v.intoto.jsonl")),
    "sign_with": ("key.pem", replace(NGRAM, signing=SigningRequest("key.pem"))),
    "public_key": ("key.pub", replace(NGRAM, signing=SigningRequest(public_key="key.pub"))),
}


@pytest.mark.needs("local")
@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_chosen_once_is_a_setting_without_a_flag(cli, requested, name):
    value, request_ = SETTINGS[name]
    flag = f"--{name.replace('_', '-')}"
    refused = cli("rollout", "svc", "--spec", "ngram", flag, value)
    assert (refused.code, f"unknown option {flag}" in refused.err) == (2, True)
    cli.user(f"rollout:\n  {name}: {value}\n")
    assert cli("rollout", "svc", "--spec", "ngram").code == 0
    cli.user("")
    cli.env(**{f"MPCTL_{name.upper()}": value})
    assert cli("rollout", "svc", "--spec", "ngram").code == 0
    assert [asked for _, asked in requested] == [request_, request_]
    assert f"MPCTL_{name.upper()}" in cli("rollout", "--help-all").out


@pytest.mark.needs("local")
def test_the_key_that_signs_may_stand_at_the_top_of_the_user_file(cli, requested):
    cli.user("sign_with: awskms:alias/gate\npublic_key: key.pub\n")
    assert cli("rollout", "svc", "--spec", "ngram").code == 0
    assert requested[-1][1].signing == SigningRequest("awskms:alias/gate", "key.pub")
    path = cli.project("sign_with: key.pem\n")
    refused = cli("rollout", "svc", "--spec", "ngram")
    assert f"{path}:1: sign_with: a project file may not set this" in refused.err


@pytest.mark.needs("local")
def test_a_setting_that_cannot_be_is_named_by_its_variable_or_its_line(cli, requested):
    cli.env(MPCTL_MEASURE_LIMIT="soon")
    wrong = cli("rollout", "svc", "--spec", "ngram")
    assert "environment variable MPCTL_MEASURE_LIMIT: " in wrong.err
    assert "'soon' is no duration" in wrong.err
    assert requested == []


@pytest.mark.needs("local")
def test_a_rollout_is_asked_for_with_the_facts_of_a_staging_file(cli, requested):
    path = cli.directory / "staging.yaml"
    path.write_text('mode: pvc\nclaim: models\nshared: false\nkserve: "0.20"\n')
    assert cli("rollout", "svc", "--spec", "ngram", "--staging", str(path)).code == 0
    facts = StagingFacts(mode="pvc", claim="models", shared=False, kserve="0.20")
    assert [asked for _, asked in requested] == [speculating(staging=facts)]


@pytest.mark.needs("local")
def test_the_users_settings_hold_staging_facts_for_every_command(cli, requested):
    cli.user("rollout:\n  concurrency: 8\nstaging:\n  claim: models\n  token_secret: hub\n")
    assert cli("rollout", "svc", "--spec", "ngram").code == 0
    (asked,) = [asked for _, asked in requested]
    assert asked.speculation.staging == StagingFacts(claim="models", token_secret="hub")
    path = cli.directory / "other.yaml"
    path.write_text("claim: drafts\n")
    assert cli("rollout", "svc", "--spec", "ngram", "--staging", str(path)).code == 0
    assert requested[-1][1].speculation.staging == StagingFacts(claim="drafts")
    user = cli.user("# facts\nstaging:\n  claim: ../models\n")
    wrong = cli("rollout", "svc", "--spec", "ngram")
    assert wrong.code == 2
    assert f"{user}:3: staging.claim: '../models' is not the name of" in wrong.err


@pytest.mark.needs("local")
@pytest.mark.parametrize("text", ["staging: f.yaml\n", "staging: {claim: models}\n"])
def test_a_project_file_chooses_no_staging(cli, requested, text):
    cli.project(text)
    refused = cli("rollout", "svc", "--spec", "ngram")
    assert refused.code == 2
    assert "staging: a project file may not set this" in refused.err
    assert requested == []


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("arguments", "request_"), ROLLBACKS, ids=[" ".join(a) or "none" for a, _ in ROLLBACKS]
)
def test_the_request_of_a_rollback(cli, requested, arguments, request_):
    done = cli("rollback", *arguments)
    assert (done.code, done.err) == (0, "nothing to do\n")
    assert [asked for _, asked in requested] == [request_]


@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        (("rollout", "svc", "--spec", "ngram"), "mpctl rollout svc --spec ngram --repeats 47"),
        (
            (
                "-n",
                "chat",
                "rollout",
                "--prompts",
                "my file.jsonl",
                "--repeats",
                "9",
            ),
            "mpctl -n chat rollout --prompts 'my file.jsonl' --repeats 47",
        ),
        (
            ("bench", "run", "--run", "a.json.gz", "--repeats=9", "--measurement", "m.yaml"),
            "mpctl bench run --measurement m.yaml --repeats 47",
        ),
        (("resume", "svc"), ""),
    ],
)
def test_the_same_command_with_more_rounds(arguments, again):
    assert CliContext("mpctl", arguments).again(47) == again


def test_the_same_command_with_more_rounds_repeats_the_variables_that_it_read(cli, monkeypatch):
    """They may have been typed before this one command; those of another measurement and of no option are not."""
    cli.env(MPCTL_RATE="4", MPCTL_ADAPTERS="a b,c", MPCTL_RUN="x.json", MPCTL_STATE_DIR="s")
    contexts = []
    monkeypatch.setattr(
        "mpctl.app.bench.measure.bench", lambda *_: contexts.append(click.get_current_context().obj)
    )
    monkeypatch.setattr("mpctl.cli.bench.bench_result.print_bench", lambda *_: None)
    assert cli("bench", "svc", "--concurrency", "2").code == 0
    assert contexts.pop().again(47) == (
        "MPCTL_ADAPTERS='a b,c' MPCTL_RATE=4 mpctl bench svc --concurrency 2 --repeats 47"
    )


@pytest.mark.parametrize("path", [("rollout",), ("bench", "run")])
def test_no_variable_that_is_repeated_holds_a_secret(path):
    flags = [f"--{name}=x" for name in options_of(dict(every_command())[path])]
    assert list(redacted(flags)) == flags


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("flag", "mpctl rollback qwen -n team"),
        ("variable", "mpctl rollback qwen -n team"),
        ("file", "mpctl rollback qwen"),
    ],
)
def test_a_printed_command_repeats_what_may_have_been_typed_for_one_call(cli, place, line):
    if place == "variable":
        cli.env(MPCTL_NAMESPACE="team")
    elif place == "file":
        cli.user("namespace: team\n")
    cli(*(("-n", "team") if place == "flag" else ()), "status")
    assert commands.line("rollback", "qwen", namespace="team") == line


def test_every_placement_can_be_asked_for():
    from mpctl.cli.operate.rollout import rollout as command

    measured_on = next(p for p in command.params if p.name == "measure_on")
    assert measured_on.type.choices == ("auto", *Placement)


def test_every_option_of_a_rollout_has_a_place_in_the_request(cli):
    """A table that lacks an option would not notice that it goes nowhere."""
    from mpctl.cli.operate.rollout import rollout as command

    typed = {
        word.partition("=")[0]
        for arguments, _ in ROLLOUTS
        for word in arguments
        if word.startswith("--")
    }
    elsewhere = {
        "--spec",
        "--staging",
        "--file",
        "--yes",
        "--no-input",
        "--output",
        "--measurement",
    }
    opts = {
        p.opts[-1]
        for p in command.params
        if getattr(p, "section", "Global") not in ("Global", "Output", "Services", option.SETTINGS)
    }
    assert opts - elsewhere <= typed


SUMMARY = """\
candidate    throughput ratio 2.00x (1.82x to 2.20x), time-per-token ratio 0.50x (0.45x to 0.55x)
serves now   ngram K=5 lookup 2..4
roll back    mpctl rollback svc -n chat"""


def ended(seconds):
    request = replace(NGRAM, measurement=MeasurementRequest(requests=5, rounds=6))
    return rollout.run(MemorySession(seconds=seconds), request)


def test_a_promoted_rollout_begins_with_words_and_ends_with_its_figures_and_three_lines():
    words, table, summary = outcome_text(ended(0.05), every_rule=False).split("\n\n")
    assert words == "2.0x faster for one user at a time. Promoted."
    assert [line.split()[0] for line in table.splitlines()] == ["ARM", "baseline:", "candidate:"]
    assert summary == SUMMARY


def test_a_rejected_rollout_names_the_rules_that_failed_and_says_that_nothing_changed():
    words, _, *lines = outcome_text(ended(0.3), every_rule=False).splitlines()
    unchanged = "0.33x as fast for one user at a time. Rejected: the service is unchanged."
    assert words == unchanged
    assert lines[3:5] == ["", "GATE                  REASON"]
    marks = [line.split("  ")[0] + line[15:20].strip() for line in lines[5:8]]
    assert marks == ["time per tokenNO", "TPOTNO", "E2ENO"]
    assert lines[-3:] == [
        "candidate    throughput ratio 0.33x (0.30x to 0.37x), time-per-token ratio 3.00x (2.73x to 3.30x)",
        "serves now   none, as before the rollout",
        "roll back    not needed: the service is unchanged",
    ]


def test_every_rule_is_listed_when_asked_for():
    text = outcome_text(ended(0.05), every_rule=True)
    _, _, rules, summary = text.split("\n\n")
    assert (rules.count("\n") > 10, summary) == (True, SUMMARY)


@pytest.fixture
def roll_out(cli, monkeypatch):
    """Roll out by the command line, on a service in memory whose candidate takes ``seconds`` per request."""

    def roll_out(*arguments, seconds=0.05, later_s=0):
        session = MemorySession(seconds=seconds)
        session.clock.sleep(later_s)
        monkeypatch.setattr("mpctl.local.session.open_local", lambda *_, **_gone: session)
        measurement = ("--requests", "5", "--repeats", "6")
        return cli("rollout", "--spec", "ngram", *measurement, "--yes", *arguments)

    return roll_out


@pytest.mark.needs("local")
@pytest.mark.parametrize(("seconds", "code", "word"), [(0.05, 0, "Promote"), (0.3, 5, "Reject")])
def test_a_rollout_that_was_judged_ends_with_the_path_of_its_report(
    cli, roll_out, seconds, code, word
):
    done = roll_out(seconds=seconds)
    (path,) = (cli.state / "reports" / "chat" / "svc").iterdir()
    assert re.fullmatch(r"rollout-1-\d{4}-\d\d-\d\dT\d{6}\.md", path.name)
    shows = f"report: {path}; 'mpctl report svc --open -n chat' shows it as a page"
    assert done.code == code
    assert shows in done.err.splitlines()
    assert path.stat().st_mode & 0o077 == 0
    report = path.read_text(encoding="utf-8")
    assert report.startswith(f"<!-- mpctl report -->\n\n### {'✗' if code else '✓'} {word}")
    prompts = built_in_prompts("edits")[0]
    assert not any(str(prompt)[:60] in report for prompt in prompts)


@pytest.mark.needs("local")
def test_the_report_on_a_service_of_the_same_name_elsewhere_is_kept(cli, roll_out):
    """Operations are counted on each cluster, so both rollouts are rollout-1 of chat/svc."""
    roll_out()
    roll_out(seconds=0.3, later_s=3600)
    reports = sorted((cli.state / "reports" / "chat" / "svc").iterdir())
    assert ["Promote" in report.read_text().split("\n")[2] for report in reports] == [True, False]


@pytest.mark.needs("local")
def test_a_report_that_cannot_be_written_is_a_warning(cli, roll_out):
    cli.state.mkdir()
    (cli.state / "reports").write_text("a file where the folder should be")
    done = roll_out()
    assert done.code == 0
    assert "warning: no report was written: " in done.err
    assert "promoted: " in done.err and "report: /" not in done.err


@pytest.mark.needs("local")
def test_a_defect_of_the_report_does_not_end_a_promoted_rollout_as_failed(roll_out, monkeypatch):
    def broken(_outcome):
        raise KeyError("figure")

    monkeypatch.setattr("mpctl.cli.operate.outcome.write_report", broken)
    done = roll_out()
    assert done.code == 0
    assert "warning: no report was written: KeyError: 'figure'" in done.err


@pytest.mark.needs("local")
def test_the_record_of_a_rollout_has_the_seconds_of_its_phases(roll_out):
    status = json.loads(roll_out("-o", "json").out)["status"]
    assert list(status["phaseSeconds"]) == ["engines", "answers", "rounds", "promotion"]


@pytest.mark.needs("local")
def test_a_file_names_the_running_service(cli, requested, monkeypatch):
    (cli.directory / "service.yaml").write_text(MANIFEST)
    opened = []
    monkeypatch.setattr(
        "mpctl.local.session.open_local",
        lambda place, console, name, **_gone: opened.append((place, name)) or MemorySession(),
    )
    assert cli("rollout", "-f", "service.yaml", "--spec", "ngram").code == 0
    assert [(place.namespace, name) for place, name in opened] == [("chat", "svc")]
    assert [asked for _, asked in requested] == [NGRAM]


@pytest.mark.parametrize(
    ("platform", "start"),
    [
        ("local", "mpctl local up -f service.yaml"),
        ("kubernetes", "kubectl apply -f service.yaml -n chat"),
    ],
)
def test_a_file_of_a_service_that_does_not_run_says_how_to_start_it(
    cli, monkeypatch, platform, start
):
    (cli.directory / "service.yaml").write_text(MANIFEST)

    def missing(place, console, name, *, gone=False):
        raise ServiceNotFound(f"service {name}: not found in namespace {place.namespace}")

    monkeypatch.setattr("mpctl.app.session.open.open_session", missing)
    done = cli("rollout", "-f", "service.yaml", "--spec", "ngram", "--platform", platform)
    assert (done.code, done.err.splitlines()) == (
        2,
        [
            "error: service svc: not found in namespace chat; service.yaml is a manifest of it",
            f"hint: run '{start}' to start it",
        ],
    )
