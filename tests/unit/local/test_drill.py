"""A drill over a service in memory: each fault is met and reported, what goes wrong fails it, the service ends as it
was. An answer of its users counts the tokens of the usage that ends a stream; anything else is a failed request."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from watched import GOOD, Here, Service, promoted

from mpctl.app.operate import rollback
from mpctl.app.watch import act
from mpctl.app.watch.ledger_facts import read_facts
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.watch.watch_policy import WatchPolicy
from scripts.drills import run as drill
from scripts.drills.faults import Fault, Result
from scripts.drills.rig import rig_of
from scripts.drills.run import DrillRequest
from scripts.drills.users import Answer, throughput
from scripts.drills.users import Users as Clients
from scripts.drills.watching import SENTINEL_S, Clock

POLICY = WatchPolicy(interval_s=2.0)
USUAL = built_in_prompts("edits")[0]
POOR = 0.02  # of the measured drafts: hardly any is accepted
START_S = 5.0


class Rig:
    """An engine that takes some seconds to come back, and then drafts as its arguments say."""

    url, model, token = "http://127.0.0.1:1", "demo", None

    def __init__(self, session):
        self.session, self.faults, self.back = session, [], 0.0

    def crash(self, fault=()):
        self.faults.append(fault)
        self.back = seconds(self.session) + START_S
        engine = self.session.engine
        engine.why, engine.share = "connection refused", POOR if fault else GOOD
        engine.generated = engine.drafts = engine.accepted = 0.0

    def mend(self):
        if self.faults and self.faults[-1]:
            self.crash()

    def ready_to_plant(self):
        self.plants = True

    def plant(self, fault):
        assert self.plants
        engine, kind = self.session.engine, fault.get("kind")
        engine.wrong = kind == "token random"
        engine.poisoned = engine.poisoned or kind == "prefix cache poisoned"

    def serves(self):
        if seconds(self.session) < self.back:
            return False
        self.session.engine.why = ""
        return True


class Users:
    """One request a second; ``drifts``: what the engine's drafts are worth on other prompts."""

    dies = False  # with its first request under a fault

    def __init__(self, session, rig, *, drifts=POOR, failing=False):
        self.session, self.rig, self.drifts, self.failing = session, rig, drifts, failing
        self.sends, self.last, self.found = False, seconds(session), []

    @property
    def answers(self):
        now = seconds(self.session)
        while self.sends and self.last + 1 <= now:
            error = "refused" if self.failing or not self.rig.serves() else ""
            self.found.append(Answer(self.last, self.last + 1, 0 if error else 100, error))
            self.last += 1
        return tuple(self.found)

    def send(self, prompts):
        assert self.answers is not None
        self.sends, self.last = True, seconds(self.session)
        if not any(self.rig.faults[-1:]):
            self.session.engine.share = GOOD if tuple(prompts) == USUAL else self.drifts

    def ask(self, prompt):
        now = seconds(self.session)
        error = "status 500" if self.dies and any(self.rig.faults[-1:]) else ""
        return Answer(now, now, 0 if error else 100, error)

    def pause(self):
        assert self.answers is not None
        self.sends = False

    def close(self):
        self.sends = False


def service():
    plain = promoted()
    session = Service(disk=plain.memory.disk, engine=plain.engine)
    session.memory.context.clock._now = plain.memory.context.clock.now()
    session.rig = Rig(session)
    return session


def seconds(session):
    return session.memory.context.clock.now().timestamp()


def run(session, *faults, users=None, **asked):
    def sleep(length):
        session.memory.context.clock._now += timedelta(seconds=length)
        session.rig.serves()

    clock = Clock(lambda: seconds(session), lambda: seconds(session), sleep, Here())
    request = DrillRequest(tuple(faults), **asked)
    load = lambda rig, _: users or Users(session, rig)  # noqa: E731
    return drill.run(session, request, POLICY, lambda s: s, session.rig, load=load, clock=clock)


def only(outcome):
    (result,) = outcome.results
    return result


def test_drift_is_found_the_service_falls_back_and_the_better_spec_comes_back_behind_the_gate():
    session = service()
    before = session.memory.disk.text
    result = only(run(session, Fault.DRIFT))
    assert result.failure == ""
    assert (result.signal, result.pays, result.failed) == ("WorseDraft", False, 0)
    assert 0 < result.detected_s < result.recovered_s
    assert result.re_armed_s > 0
    assert result.before == pytest.approx(100, rel=0.1)
    assert None not in (result.during, result.after, result.re_armed)
    kinds = [(op.plan.kind.value, op.plan.by) for op in session.memory.operations()]
    assert kinds == [("rollout", ""), ("rollback", "watch"), ("rollout", "watch")]
    assert session.memory.disk.text == before


def test_an_engine_that_accepts_by_lot_is_found_and_the_service_ends_as_it_was():
    session = service()
    before = session.memory.disk.text
    result = only(run(session, Fault.SYNTHETIC))
    assert result.failure == ""
    assert result.action.startswith("fell back to none")
    flag, config = session.rig.faults[0]
    assert (flag, '"synthetic_acceptance_length": 1.025' in config) == (
        "--speculative-config",
        True,
    )
    assert session.memory.disk.text == before
    assert session.rig.faults[-1] == ()
    last = session.memory.operations()[-1]
    assert (last.plan.by, last.plan.why) == ("drill", "drill: restored what it found")
    assert read_facts(session, POLICY).speculates


def test_a_killed_engine_costs_requests_and_no_spec():
    session = service()
    operations = len(session.memory.operations())
    result = only(run(session, Fault.KILLED))
    assert result.failure == ""
    assert result.signal == "Blind"
    assert result.detected_s <= POLICY.interval_s
    assert START_S <= result.recovered_s <= START_S + 4
    assert result.failed >= 4
    assert result.during < result.after
    assert len(session.memory.operations()) == operations


def test_what_still_pays_is_reported_and_stays():
    session = service()
    result = only(run(session, Fault.DRIFT, users=Users(session, session.rig, drifts=0.4)))
    assert (result.failure, result.action, result.pays) == ("", "reported", True)
    assert len(session.memory.operations()) == 1


def test_a_fault_that_is_not_found_fails_the_drill():
    session = service()
    outcome = run(session, Fault.DRIFT, users=Users(session, session.rig, drifts=GOOD))
    assert not outcome.passed
    assert only(outcome).failure == "not detected within 300 s"


def test_a_failed_request_fails_the_drill():
    session = service()
    result = only(run(session, Fault.DRIFT, users=Users(session, session.rig, failing=True)))
    assert result.failed == result.requests
    assert "requests failed: refused" in result.failure


def test_a_fallback_that_fails_fails_the_drill(monkeypatch):
    session = service()

    def refuse(*_, **__):
        raise MpctlError("the disk is full")

    monkeypatch.setattr(rollback, "run", refuse)
    result = only(run(session, Fault.DRIFT))
    assert result.failure == "fall back failed: the disk is full"


def test_an_engine_that_does_not_start_with_the_fault_is_left_out(monkeypatch):
    session = service()
    starts = Rig.serves
    monkeypatch.setattr(Rig, "serves", lambda self: not any(self.faults[-1:]) and starts(self))
    result = only(run(session, Fault.SYNTHETIC))
    assert (result.skipped, result.passed) == ("the engine did not start with it", False)


def test_an_engine_that_starts_with_the_fault_and_does_not_answer_is_left_out():
    session = service()
    users = Users(session, session.rig)
    users.dies = True
    result = only(run(session, Fault.SYNTHETIC, users=users))
    assert (result.skipped, result.passed) == (
        "the engine does not answer with it: status 500",
        False,
    )
    assert session.rig.faults[-1] == ()


def test_a_method_without_a_head_has_none_that_is_stale():
    outcome = run(service(), Fault.STALE_HEAD, newer_target="/models/v2")
    result = only(outcome)
    assert result.skipped == "the method loads no head"
    assert not outcome.passed  # nothing was shown
    assert result.to_record()["passed"] is None


def test_a_service_with_users_is_refused():
    with pytest.raises(Refused, match="serves in a cluster"):
        rig_of(promoted())


def test_a_service_without_a_measured_promotion_is_refused():
    session = Service()
    session.rig = Rig(session)
    with pytest.raises(Refused, match="no speculation was promoted"):
        run(session, Fault.DRIFT)


def test_prompts_that_no_record_keeps_have_to_be_given(monkeypatch):
    monkeypatch.setattr(drill, "BUILT_IN", ("chat",))
    with pytest.raises(InputError, match="--prompts: rollout-1 measured edits"):
        run(service(), Fault.DRIFT)


def test_prompts_that_were_given_measure_the_better_spec_again(monkeypatch, tmp_path):
    file = tmp_path / "edits.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in USUAL))
    for module in (drill, act):
        monkeypatch.setattr(module, "BUILT_IN", ("chat",))  # no record keeps the prompts of edits
    result = only(run(service(), Fault.DRIFT, prompts=(f"edits={file}",)))
    assert result.failure == ""
    assert result.re_armed_s > 0


def test_throughput_counts_the_part_of_an_answer_that_lies_in_the_window():
    answers = [Answer(0, 10, 100), Answer(10, 20, 100), Answer(20, 30, 100, "failed")]
    assert throughput(answers, 5, 15) == pytest.approx(10)
    assert throughput(answers, 5, 5) is None
    assert Result(Fault.DRIFT).to_record()["tokensPerSecond"]["before"] is None


TOKEN = 'data: {"choices": [{"delta": {"content": "a"}}], "usage": null}\n\n'


@pytest.fixture
def answer_to():
    """Asks a server that answers with these bytes."""
    servers = []

    def ask(body, status=200):
        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        users = Clients(
            f"http://127.0.0.1:{server.server_port}", "demo", None, clients=0, max_tokens=8
        )
        return users.ask("a question")

    yield ask
    for server in servers:
        server.shutdown()
        server.server_close()


def test_tokens_are_those_of_the_usage_that_ends_the_stream(answer_to):
    usage = 'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\n'
    answer = answer_to(f"{TOKEN}{TOKEN}{usage}data: [DONE]\n\n")
    assert (answer.tokens, answer.error) == (7, "")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (TOKEN, 200, "no usage in the answer"),
        ("", 200, "no usage in the answer"),
        (
            'data: {"error": {"message": "worker died", "code": 500}}\n\n',
            200,
            "error 500 in place of an answer",
        ),
        ("busy", 503, "status 503"),
    ],
)
def test_a_stream_without_its_end_is_a_failed_request(answer_to, body, status, error):
    answer = answer_to(body, status)
    assert (answer.tokens, answer.error) == (0, error)


@pytest.mark.parametrize(
    ("fault", "signal", "action"),
    [
        (Fault.WRONG, "WrongAnswers", "fell back to none"),
        (Fault.POISONED, "PoisonedCache", "restarted the engines"),
    ],
)
def test_what_only_answers_show_is_found_by_sentinels_and_their_share_is_reported(
    fault, signal, action
):
    session = service()
    before = session.memory.disk.text
    result = only(run(session, fault))
    assert (result.failure, result.signal) == ("", signal)
    assert result.action.startswith(action)
    assert result.detected_s < 60 and result.recovered_s < 120
    assert result.sentinels >= 3 and result.to_record()["sentinelShare"] > 0
    assert session.memory.disk.text == before


def test_a_fault_of_answers_is_not_found_by_a_finding_of_another_kind(monkeypatch):
    session = service()
    monkeypatch.setattr(
        session.rig,
        "plant",
        lambda fault: setattr(session.engine, "share", POOR if fault else GOOD),
    )
    result = only(run(session, Fault.WRONG))
    assert (
        result.failure
        == f"not detected within {SENTINEL_S:.0f} s; found was TrafficChanged, WorseDraft"
    )
    assert (result.signal, len(session.memory.operations())) == ("", 1)


def test_an_engine_that_is_wrong_before_its_fault_fails_the_drill():
    session = service()
    session.engine.wrong = True
    result = only(run(session, Fault.POISONED))
    assert result.failure.startswith("before the fault: ")
