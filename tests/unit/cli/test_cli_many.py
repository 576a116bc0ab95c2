"""One command for several services: what becomes of each, and what the same command does after an interruption."""

import json
from dataclasses import replace

import pytest
from session import MemorySession
from world import Crash

from mpctl.errors import Undecided
from mpctl.manifest import load_one
from mpctl.methods import from_config
from mpctl.platform.state_files import try_lock

pytestmark = pytest.mark.needs("local")
QUICK = ("--requests", "5", "--repeats", "6")
FAST, SLOW = 0.05, 0.5  # seconds of a request to the candidate; one to the baseline takes 0.1


class NamedSession(MemorySession):
    """A service whose status is read from its live manifest. ``dies``: at the end of the next operation."""

    def __init__(self, name, seconds, disk):
        super().__init__(seconds=seconds, disk=disk)
        self.name = name

    def status(self):
        speculation = load_one(self.memory.disk.text, None).speculation()
        return replace(super().status(), name=self.name, spec=from_config(speculation).describe())


class Services:
    """Services of this machine in memory, each with the seconds of its candidate's requests."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.disks = {}
        self.began = []
        self.boundary = {}  # by service: where the next command for it is killed
        self.pressed = ""  # the service at which Ctrl-C is pressed

    def session(self, name):
        session = NamedSession(name, self.seconds[name], self.disks.get(name))
        self.disks.setdefault(name, session.memory.disk)
        return session

    def every(self, place, console):
        assert place.namespace in (None, "chat")
        return [self.session(name) for name in sorted(self.seconds)]

    def open(self, place, console, name, **_gone):
        assert place.namespace == "chat"
        self.began.append(name)
        session = self.session(name)
        session.memory.die_at(self.boundary.pop(name, 0))
        if name == self.pressed:
            self.pressed = ""
            raise KeyboardInterrupt
        return session

    def taken(self):
        """The services for which a command began since the last call, in order."""
        names, self.began = self.began, []
        return "".join(names)

    def serves(self):
        """The services that speculate now."""
        return "".join(n for n, disk in sorted(self.disks.items()) if "speculative" in disk.text)


@pytest.fixture
def up(monkeypatch):
    def start(**seconds):
        services = Services(seconds)
        monkeypatch.setattr("mpctl.local.session.local_sessions", services.every)
        monkeypatch.setattr("mpctl.local.session.open_local", services.open)
        return services

    return start


@pytest.fixture
def run(cli):
    """Run a command for all services, and answer every question with yes."""

    def command(verb, *words):
        asks = ("--yes",) if verb in ("rollout", "rollback") else ()
        spec = (*QUICK, "--spec", "ngram") if verb == "rollout" else ()
        return cli(verb, "--all", *spec, *words, *asks)

    return command


def results(done):
    """The table at the end: the result of each service."""
    table = done.out.rpartition("SERVICE ")[2].splitlines()[1:]
    cells = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in table]
    return {row[0].removeprefix("chat/"): row[1] for row in cells}


def files(cli):
    return list(cli.state.glob("sequences/*.json"))


def test_each_service_gets_its_own_operation_and_a_row_of_the_table(cli, up, run):
    services = up(a=FAST, b=FAST)
    done = run("rollout")
    assert (done.code, services.taken(), services.serves()) == (0, "ab", "ab")
    assert done.err.splitlines()[:4] == [
        "rollout, one service after another (2): chat/a, chat/b",
        "The first that is rejected, undecided or fails stops it; --keep-going continues.",
        "",
        "[1/2] chat/a",
    ]
    assert "promoted: service chat/a runs ngram K=5 lookup 2..4" in done.err
    _, _, table = done.out.rpartition("\n\n")
    assert [line.split("   ")[0] for line in table.splitlines()] == ["SERVICE", "chat/a", "chat/b"]
    for line in table.splitlines()[1:]:
        assert "promoted   throughput ratio 2.00x (1.82x to 2.20x)   ngram K=5 lookup 2..4" in line
    assert not files(cli)
    again = run("rollout")
    assert results(again) == dict.fromkeys("ab", "already runs it")


def test_the_first_rejection_stops_the_rest_and_the_same_command_measures_nothing(cli, up, run):
    services = up(a=FAST, b=SLOW, c=FAST)
    for _ in range(2):
        done = run("rollout")
        assert results(done) == {"a": "promoted", "b": "rejected", "c": "not started"}
        assert done.code == 5
        assert "2 of 3 services are done" in done.err
        assert "next: mpctl rollout --all --requests 5" in done.err
        assert "--keep-going   # continues with the others" in done.err
    assert services.taken() == "ab"
    done = run("rollout", "--keep-going")
    assert results(done) == {"a": "promoted", "b": "rejected", "c": "promoted"}
    assert (done.code, services.taken(), services.serves()) == (5, "c", "ac")
    assert not files(cli)


def test_keep_going_has_the_exit_code_of_the_first_service_that_failed(cli, up, run):
    up(a=SLOW, b=FAST)
    done = run("rollout", "--keep-going")
    assert (done.code, results(done)) == (5, {"a": "rejected", "b": "promoted"})


def test_a_failure_without_a_verdict_is_tried_again_by_the_same_command(cli, up, run, monkeypatch):
    services = up(a=FAST, b=FAST, c=FAST)
    with monkeypatch.context() as patch:
        intact = NamedSession.engine_version

        def engine_version(self, service):
            if self.name == "b":
                raise OSError(5, "Input/output error", "disk")
            return intact(self, service)

        patch.setattr(NamedSession, "engine_version", engine_version)
        done = run("rollout")
    assert (done.code, results(done)["b"], results(done)["c"]) == (1, "failed", "not started")
    assert services.taken() == "ab"
    done = run("rollout")
    assert (done.code, services.taken(), services.serves()) == (0, "bc", "abc")
    assert results(done) == dict.fromkeys("abc", "promoted")


@pytest.mark.parametrize("boundary", [1, 40, 90, 140])
def test_killed_in_the_middle_the_same_command_continues(cli, up, run, boundary):
    services = up(a=FAST, b=FAST, c=SLOW)
    services.boundary = {"b": boundary}
    with pytest.raises(Crash):
        run("rollout")
    assert services.taken() == "ab"
    assert len(files(cli)) == 1
    done = run("rollout")
    assert "1 of 3 services are done" in done.err
    assert results(done) == {"a": "promoted", "b": "promoted", "c": "rejected"}
    assert (done.code, services.serves()) == (5, "ab")
    assert "a" not in services.taken()
    assert not files(cli)


def test_a_rollback_that_ended_before_it_was_recorded_is_not_done_twice(cli, up, run, monkeypatch):
    monkeypatch.setattr("mpctl.app.sequence.who", lambda: "somebody@here")
    services = up(a=FAST, b=FAST)
    assert run("rollout").code == 0
    with monkeypatch.context() as patch:

        def die(*_):
            raise Crash

        patch.setattr("mpctl.app.sequence.ServiceSequence.with_ending", die)
        with pytest.raises(Crash):
            run("rollback")
    assert (services.taken(), services.serves()) == ("aba", "b")
    done = run("rollback")
    assert (done.code, services.taken(), services.serves()) == (0, "b", "")
    assert results(done) == {"a": "rolled back", "b": "rolled back"}


def test_ctrl_c_stops_the_rest_also_with_keep_going(cli, up, run):
    services = up(a=FAST, b=FAST, c=FAST)
    services.pressed = "b"
    done = run("rollout", "--keep-going")
    assert results(done) == {"a": "promoted", "b": "interrupted", "c": "not started"}
    assert (done.code, services.taken()) == (2, "ab")
    assert "error: interrupted" in done.err
    assert results(run("rollout", "--keep-going")) == dict.fromkeys("abc", "promoted")
    assert services.taken() == "bc"


def test_services_that_are_new_or_gone_are_named(cli, up, run):
    services = up(a=FAST, b=SLOW, c=FAST)
    run("rollout")
    del services.seconds["c"]
    services.seconds["d"] = FAST
    done = run("rollout", "--keep-going")
    assert "new since then: chat/d\ngone since then: chat/c\n" in done.err
    assert results(done) == {"a": "promoted", "b": "rejected", "d": "promoted"}


def test_another_command_begins_anew(cli, up, run):
    services = up(a=FAST, b=SLOW, c=FAST)
    run("rollout")
    services.taken()
    done = run("rollout", "--concurrency", "2")
    assert results(done)["a"] == "already runs it"
    assert services.taken() == "ab"
    assert len(files(cli)) == 2


def test_the_same_command_in_another_process_is_refused(cli, up, run):
    up(a=SLOW, b=FAST)
    run("rollout")
    (file,) = files(cli)
    held = try_lock(file.with_suffix(".lock"))
    assert held is not None
    done = run("rollout")
    assert done.code == 3
    assert "runs in another process" in done.err


def test_json_is_one_document_of_all(cli, up, run):
    up(a=FAST, b=SLOW, c=FAST)
    run("rollout")
    done = run("rollout", "--keep-going", "-o", "json")
    first, second, third = json.loads(done.out)["items"]
    assert [first["service"], first["result"], first["code"]] == ["chat/a", "promoted", 0]
    assert (second["result"], second["code"], second["document"]) == ("rejected", 5, None)
    assert third["speculation"] == "ngram K=5 lookup 2..4"
    assert third["document"]["status"]["ending"] == "promoted"
    assert cli("rollout", "--all", "--spec", "ngram", *QUICK, "-o", "name", "--yes").out == (
        "chat/a\nchat/b\nchat/c\n"
    )


def test_a_dry_run_asks_nothing_and_records_nothing(cli, up):
    services = up(a=FAST, b=FAST)
    done = cli("rollout", "--all", "--spec", "ngram", "--dry-run=client")
    assert (done.code, results(done)) == (0, {"a": "dry run", "b": "dry run"})
    assert (services.serves(), files(cli)) == ("", [])


def test_without_an_answer_nothing_is_changed(cli, up):
    services = up(a=FAST)
    done = cli("rollout", "--all", "--spec", "ngram")
    assert (done.code, services.taken(), files(cli)) == (2, "", [])
    assert "hint: confirm beforehand with -y" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rollout qwen --all --spec ngram", "--all: cannot be combined with the service qwen"),
        ("rollback qwen -l a=b", "--selector: cannot be combined with the service qwen"),
        ("bench qwen --all", "--all: cannot be combined with the service qwen"),
        ("plan qwen --all", "--all: cannot be combined with the service qwen"),
        ("status qwen --all", "--all: cannot be combined with the service qwen"),
        ("watch qwen -l a=b", "--selector: cannot be combined with the service qwen"),
        ("status -l a=b --all", "--selector: cannot be combined with --all"),
        (
            "rollback --keep-going",
            "--keep-going: is for several services: add -l SELECTOR or --all",
        ),
        ("rollout --all --spec ngram -f x.yaml", "--file: is for one service, not for several"),
        ("bench --all --run x.json.gz", "--run: is for one service, not for several"),
        ("bench --all --url http://a", "--url: is for one service, not for several"),
        ("bench --all --candidate b", "--candidate: is for one service, not for several"),
        ("plan --all --cell x.yaml", "--cell: is for one service, not for several"),
        ("rollout -l a=b --spec ngram", "--selector: services of this machine have no labels"),
        ("rollback --all", "no service is selected"),
    ],
)
def test_what_several_services_cannot_share_is_refused(cli, words, message):
    done = cli(*words.split())
    assert (done.code, done.err.splitlines()[0]) == (2, f"error: {message}")


def test_a_file_for_the_signed_verdict_is_of_one_service(cli, up, run):
    up(a=FAST)
    cli.env(MPCTL_BUNDLE="verdict.intoto.jsonl")
    assert "MPCTL_BUNDLE: is for one service, not for several" in run("rollout").err


def test_plan_predicts_for_each_and_records_nothing(cli, up):
    services = up(a=FAST, b=FAST)
    done = cli("plan", "--all", "--spec", "ngram", "--gpu", "L4")
    assert (done.code, services.taken(), files(cli)) == (0, "ab", [])
    assert results(done) == dict.fromkeys("ab", "no figure")


def test_bench_measures_each_under_its_name(cli, up, monkeypatch):
    services = up(a=FAST, b=FAST)
    requests = []

    def bench(place, console, request):
        requests.append((place.namespace, request.service, request.measurement.rounds))
        raise Undecided("measured too little")

    monkeypatch.setattr("mpctl.app.bench.measure.bench", bench)
    done = cli("bench", "--all", "--repeats", "9", "--keep-going")
    assert requests == [("chat", "a", 9), ("chat", "b", 9)]
    assert (done.code, results(done)) == (6, dict.fromkeys("ab", "undecided"))
    assert services.serves() == ""


def test_status_and_watch_take_the_same_options(cli, up):
    up(a=FAST, b=FAST)
    assert [line.split()[1] for line in cli("status", "--all").out.splitlines()[1:]] == ["a", "b"]
    refused = cli("status", "-l", "team=chat")
    assert "--selector: services of this machine have no labels" in refused.err
    assert "--selector: services of this machine" in cli("watch", "-l", "a=b", "--once").err
