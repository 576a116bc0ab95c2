"""The faults that are planted in a sampler change what they say, of a share that they say; no engine runs."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
VOCABULARY, END = 32, 2


@pytest.fixture
def faults(monkeypatch, tmp_path):
    """The module as Python loads it in the engine, and the file that it reads."""
    monkeypatch.setenv("MPCTL_WRONG", str(tmp_path / "fault.json"))
    spec = importlib.util.spec_from_file_location(
        "faults", Path(__file__).parent / "faulty" / "sitecustomize.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Runner:
    """Two requests, the first of them with two drafts; greedy choice of every row, or the drafts and one more."""

    def __init__(self):
        names = ["a", "b"]
        self.input_batch = SimpleNamespace(
            req_ids=names, sampling_metadata=SimpleNamespace(temperature=torch.tensor([0.0, 1.0]))
        )
        self.requests = {
            n: SimpleNamespace(output_token_ids=list(range(10, 20)), block_ids=[[1, 2]])
            for n in names
        }
        self.kv_cache_config = SimpleNamespace(num_blocks=8)
        self.kv_caches = [torch.ones(2, 8, 4)]
        self.seen = []

    def _sample(self, logits, drafts):
        self.seen.append(logits)
        chosen = logits.argmax(-1)
        return SimpleNamespace(
            sampled_token_ids=torch.stack([chosen[:3], torch.tensor([int(chosen[3]), -1, -1])])
        )


@pytest.fixture
def step(faults, tmp_path):
    """One step of the engine under a fault: its logits, the chosen tokens, and the runner."""
    kind = type("Engine", (Runner,), {})
    faults.install(kind)

    def step(runner=None, **fault):
        (tmp_path / "fault.json").write_text(json.dumps({"end": END, "seed": 1, **fault}))
        runner = runner or kind()
        torch.manual_seed(1)
        logits = torch.randn(4, VOCABULARY)
        drafts = SimpleNamespace(
            num_draft_tokens=[2, 0],
            target_logits_indices=torch.tensor([0, 1]),
            draft_token_ids=torch.tensor([30, 31]),
        )
        tokens = runner._sample(logits.clone(), drafts).sampled_token_ids
        return SimpleNamespace(before=logits, logits=runner.seen[-1], tokens=tokens, runner=runner)

    return step


def test_without_a_fault_nothing_changes(step):
    sound = step(kind="argument lost")  # planted by the proxy
    assert torch.equal(sound.logits, sound.before)


@pytest.mark.parametrize(
    "kind", ["second best token", "early end", "noise", "tokens taken greedily"]
)
def test_a_fault_of_every_row_changes_the_logits(step, kind):
    assert not torch.equal(step(kind=kind, share=1.0).logits, step(kind="none").logits)
    if kind != "noise":
        assert torch.equal(step(kind=kind, share=0.0).logits, step(kind="none").logits)


def test_what_each_fault_of_the_logits_chooses(step):
    sound = step(kind="none")
    assert step(kind="early end", share=1.0).tokens[0].tolist() == [END] * 3
    assert step(kind="drafts accepted unverified", share=1.0).tokens[0, :2].tolist() == [30, 31]
    assert step(kind="repetition loop in answers", share=1.0).tokens[0].tolist() == [16, 17, 18]
    second = sound.before[0].topk(2).indices[1]
    assert step(kind="second best token", share=1.0).tokens[0, 0] == second
    endless = step(kind="end of text suppressed", share=1.0)
    assert bool((endless.logits[:, END] < -1e8).all())


def test_only_sampled_requests_are_heated_or_greedy(step):
    for kind, share in (("temperature raised", 1.5), ("tokens taken greedily", 1.0)):
        changed = step(kind=kind, share=share)
        assert torch.equal(changed.logits[:3], changed.before[:3])
        assert not torch.equal(changed.logits[3], changed.before[3])


def test_the_logits_of_the_step_before_are_those_of_the_same_request(step):
    first = step(kind="logits of the step before", share=1.0)
    first.runner.seen.clear()
    again = step(first.runner, kind="logits of the step before", share=1.0)
    assert torch.equal(again.logits[0], first.before[2]) and torch.equal(
        again.logits[3], first.before[3]
    )


def test_faults_behind_the_choice_leave_the_places_of_rejected_drafts(step):
    for kind in ("token random", "requests garbled"):
        assert step(kind=kind, share=1.0).tokens[1, 1:].tolist() == [-1, -1]
        assert not torch.equal(step(kind=kind, share=1.0).tokens, step(kind="none").tokens)
    swapped, sound = step(kind="rows of two requests swapped", share=1.0), step(kind="none")
    assert torch.equal(swapped.tokens, sound.tokens.flip(0))


def test_the_cache_loses_a_running_block_or_all_others(step):
    lost = step(kind="a KV block zeroed in steps", share=1.0).runner.kv_caches[0]
    assert (
        sorted(lost.sum((0, 2)).tolist()) == [0.0] + [8.0] * 7 and float(lost[:, 1:3].sum()) < 16.0
    )
    poisoned = step(kind="prefix cache poisoned", after=1).runner.kv_caches[0]
    assert poisoned.sum((0, 2)).tolist() == [0.0, 8.0, 8.0] + [0.0] * 5
    waits = step(kind="prefix cache poisoned", after=2).runner.kv_caches[0]
    assert float(waits.sum()) == 64.0
