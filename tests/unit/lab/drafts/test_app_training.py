"""A head is trained once for a service, followed, listed and deleted: the use case over a trainer in memory."""

import json
from dataclasses import replace

import pytest
from session import MemorySession
from trainer import MemoryTrainer
from watched import QUICK

from mpctl.app.operate import rollout
from mpctl.app.requests import RolloutRequest, SpeculationRequest
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError, Refused
from mpctl.lab.drafts import training
from mpctl.lab.drafts.card import Target
from mpctl.lab.drafts.order import Images, TrainingPhase
from mpctl.lab.drafts.requests import DraftTrainRequest

ACCEPTED = ("unknown-licence",)
HEAD = "/heads/drafts/svc-1/head"


class Trainer(MemoryTrainer):
    """Forgets the heads that were purged."""

    def orders(self):
        return tuple(order for name, order in self.runs.items() if name not in self.purged)

    def close(self):
        self.closed = True


@pytest.fixture
def session():
    session = MemorySession()
    rollout.run(session, RolloutRequest(SpeculationRequest("eagle3", draft="org/old"), QUICK))
    return session


@pytest.fixture
def trainer(monkeypatch):
    trainer = Trainer()
    opened = training.ServiceTraining(
        trainer, lambda order: (order.to_record(),), lambda order: order
    )
    monkeypatch.setattr(training, "open_training", lambda session, request=None: opened)
    return trainer


@pytest.fixture
def asked(tmp_path):
    def request(marker="planted", **settings):
        file = tmp_path / f"{marker}.jsonl"
        file.write_text(
            "".join(json.dumps({"prompt": f"{marker} question {n}"}) + "\n" for n in range(50))
        )
        return DraftTrainRequest(
            prompts=(str(file),), command="train --out {out}", **{"accepted": ACCEPTED, **settings}
        )

    return request


def test_without_apply_nothing_is_submitted(session, trainer, asked):
    result = training.train(session, asked())
    assert (result.name, result.card, trainer.trainings) == ("svc-1", None, 0)
    (document,) = result.documents
    assert (len(document["training"]), len(document["holdout"])) == (40, 10)
    assert (document["method"], document["start"]["head"]) == ("eagle3", "org/old")
    assert "planted" not in json.dumps(document)


def test_a_training_ends_with_its_card(session, trainer, asked):
    result = training.train(session, asked(apply=True))
    assert result.card.better()
    (head,) = training.made_heads(session, trainer)
    assert (head.state, head.serves, head.verdict, head.unfinished) == (
        "trained",
        False,
        None,
        False,
    )
    assert training.train(session, asked()).name == "svc-2"


@pytest.mark.parametrize("apply", [False, True])
def test_weights_without_a_known_licence_are_trained_on_only_if_that_is_accepted(
    session, trainer, asked, apply
):
    if apply:
        with pytest.raises(
            Refused, match=r"\[unknown-licence\] .* the target .* and of the start head org/old"
        ):
            training.train(session, asked(apply=True, accepted=()))
    else:
        training.train(session, asked(accepted=()))
        assert [text for text in session.console.warnings if text.startswith("[unknown-licence]")]
    assert trainer.trainings == 0


def test_the_licence_of_weights_stands_in_their_readme(
    session, trainer, asked, tmp_path, monkeypatch
):
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    monkeypatch.setattr(type(session), "folder", lambda self, name: tmp_path)
    assert training.train(session, asked(apply=True, accepted=())).card.better()
    assert not session.console.warnings


def test_a_finding_to_ignore_that_does_not_exist_is_named(session, trainer, asked):
    with pytest.raises(InputError, match="unknown finding: licence"):
        training.train(session, asked(apply=True, accepted=("licence",)))


def test_the_same_command_continues_and_another_one_is_refused(
    session, trainer, asked, monkeypatch
):
    trainer.phase = TrainingPhase.TRAINING

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(session.clock), "sleep", lambda self, seconds: interrupted(seconds))
    with pytest.raises(Cancelled, match="detached; the training of svc-1 continues"):
        training.train(session, asked(apply=True))
    assert trainer.closed
    assert training.made_heads(session, trainer)[0].state == "training"
    with pytest.raises(Conflict, match="svc-1 is unfinished and has other prompts"):
        training.train(session, asked("other", apply=True))
    trainer.phase = TrainingPhase.DONE
    trainer_cards, trainer.cards = trainer.cards, tuple  # no command has read the card yet
    assert training.train(session, asked(apply=True)).card.name == "svc-1"
    trainer.cards = trainer_cards
    assert trainer.trainings == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"command": ("sh", "-c", "id")},
            'the command ["sh", "-c", "id"], not ["train", "--out", "{out}"]',
        ),
        (
            {"images": Images("", "evil.example/x")},
            '"trainer": "evil.example/x"}, not {"engine": "", "trainer": ""}',
        ),
        ({"target": Target("org/other")}, 'the target {"model": "org/other"'),
    ],
)
def test_a_stored_order_that_is_not_what_was_asked_for_is_refused_with_both_shown(
    session, trainer, asked, change, says
):
    trainer.phase = TrainingPhase.TRAINING
    stored = training.new_order(session, asked(), "svc-1", "5a17")[0]
    trainer.runs["svc-1"] = replace(stored, **change)
    trainer.status = lambda uid: None  # its Job is not created yet
    with pytest.raises(Conflict, match="svc-1 is unfinished and has the") as refused:
        training.train(session, asked(apply=True))
    assert says in refused.value.message
    assert "mpctl drafts purge svc-1" in refused.value.hint
    assert (trainer.sent, session.console.questions[1:]) == (0, [])


def test_the_question_names_the_trainers_command_and_image(session, trainer, asked):
    training.train(session, asked(apply=True, image="org/speculators@sha256:2e"))
    assert (
        "trainer in org/speculators@sha256:2e: train --out '{out}'\n"
        in session.console.questions[-1]
    )


@pytest.mark.parametrize("phase", [TrainingPhase.FAILED, None])
def test_a_run_that_failed_or_is_gone_is_an_error_with_the_next_command(
    session, trainer, asked, phase
):
    trainer.phase = phase or TrainingPhase.TRAINING
    if phase is None:
        trainer.status = lambda uid: None
    with pytest.raises(MpctlError) as failed:
        training.train(session, asked(apply=True))
    assert failed.value.hint is not None
    trainer.phase = TrainingPhase.FAILED
    if phase is TrainingPhase.FAILED:
        assert "mpctl drafts purge svc-1" in failed.value.hint
        assert training.train(session, asked()).name == "svc-2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ngram"}, "has no head to train"),
    ],
)
def test_a_request_that_cannot_be_carried_out_submits_nothing(
    session, trainer, asked, settings, message
):
    with pytest.raises(InputError, match=message):
        training.train(session, asked(**settings))
    assert trainer.trainings == 0


def test_a_head_that_a_revision_names_is_not_deleted(session, trainer, asked):
    training.train(session, asked(apply=True))
    rollout.run(session, RolloutRequest(SpeculationRequest("eagle3", draft=HEAD), QUICK))
    (head,) = training.made_heads(session, trainer)
    assert head.verdict is not None
    with pytest.raises(Refused, match="svc-1 is named by revision"):
        training.purge(session, trainer, "svc-1")
    assert trainer.purged == []


def test_a_run_whose_order_another_user_replaced_is_deleted(session, trainer, asked):
    training.train(session, asked(apply=True))
    trainer.orders = tuple  # it has no seal and is skipped
    training.purge(session, trainer, "svc-1")
    assert trainer.purged == ["svc-1"]


def test_a_head_that_nothing_names_is_deleted_and_an_unknown_one_is_named(session, trainer, asked):
    training.train(session, asked(apply=True))
    training.purge(session, trainer, "svc-1")
    assert trainer.purged == ["svc-1"]
    with pytest.raises(InputError, match="svc-9: no head of service"):
        training.purge(session, trainer, "svc-9")
