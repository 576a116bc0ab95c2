"""The questions of a change about target and draft: where they are read, what they are called, what they take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draft_samples import HEAD, SERVICE


@pytest.mark.parametrize(
    ("args", "uri", "found"),
    [
        ("[]", "hf://Qwen/Qwen3-8B:abc", "hf://Qwen/Qwen3-8B:abc"),
        ("[--model=/mnt/models]", "hf://Qwen/Qwen3-8B", "hf://Qwen/Qwen3-8B"),
        ("[--model=/opt/model]", "hf://Qwen/Qwen3-8B", "/opt/model"),
        ("[--model=org/other]", "hf://Qwen/Qwen3-8B", "org/other"),
        ("[]", "pvc://models/qwen", None),
    ],
)
def test_a_target_is_read_from_where_its_storage_comes_from(args, uri, found):
    from mpctl.app.change.resolve import resolve_target
    from mpctl.manifest import load

    text = SERVICE.partition("      args:")[0].replace("hf://Qwen/Qwen3-8B  # 16 GiB", uri)
    before = load(f"{text}      args: {args}\n")[0]

    names = []

    class Live:
        paths = "no path is read"
        shares_files = False

        def service(self):
            return before

        def target_of(self, service):
            return service.model

        def model_facts(self, name):
            names.append(name)

        def release(self, service):
            return None

    resolve_target(Live(), listing=None, ask_hub=False, kserve=None)
    assert names == [found]


def test_a_repository_is_asked_for_by_its_pinned_revision(monkeypatch):
    from mpctl.app.change import resolve
    from mpctl.app.change.resolve import Checkpoint, read_facts

    class Live:
        paths = "no path is read"
        shares_files = False

        def model_facts(self, name):
            return None

    asked = []
    monkeypatch.setattr(resolve, "read_hub", lambda *words: asked.append(words))
    read_facts(Live(), "hf://org/t:v2", listing=None, ask_hub=True)
    read_facts(Live(), "org/t", listing=None, ask_hub=True)
    read_facts(Live(), "org/t", listing=None, ask_hub=True, revision="abc")
    assert read_facts(Live(), "pvc://org/t", listing=None, ask_hub=True)[1].startswith(
        "pvc://org/t was not read: no path"
    )
    assert read_facts(Live(), None, listing=None, ask_hub=True) == Checkpoint()
    why = read_facts(Live(), "hf://org/t", listing=None, ask_hub=False).unread
    assert asked == [("org/t", "v2"), ("org/t", "main"), ("org/t", "abc")]
    assert "without asking a hub" in why


@pytest.mark.parametrize(
    ("method", "draft", "named"),
    [("eagle3", HEAD, HEAD), ("mtp", None, "the mtp layers of the target"), ("ngram", None, "")],
)
def test_a_warm_up_names_the_draft_and_not_its_path_in_the_pod(method, draft, named):
    from mpctl.app.change import Change
    from mpctl.app.change.check import PreflightResult
    from mpctl.app.change.resolve import Selection
    from mpctl.methods import build

    spec, _ = build(method, draft="/mnt/mpctl/draft" if draft else None)
    change = Change(
        None, "", "", spec, spec, None, PreflightResult((), ()), None, Selection(draft, {})
    )
    assert change.draft_name == named


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 54704), ({"gpu": "H100-SXM-94"}, 49440), ({"gpu": "a GPU that no table has"}, 54704)],
)
def test_a_log_alone_leaves_open_how_many_sequences_the_engine_takes(options, most):
    from eagle3_head import Head

    from mpctl.app.change.check import Conditions, estimate_memory
    from mpctl.app.change.resolve import Checkpoint, UnchangedService
    from mpctl.estimate import ModelFacts
    from mpctl.estimate.shape import model_shape
    from mpctl.manifest import load

    target = model_shape("Qwen/Qwen3-32B")
    draft = ModelFacts(shape=replace(target, layers=1), weight_bytes=Head(target).params * 2)
    before = load(SERVICE.replace("Qwen3-8B", "Qwen3-32B").replace("8192", "5000"))[0]
    log = "GPU KV cache size: 69,232 tokens\nAvailable KV cache memory: 16.91 GiB\n"
    actual_estimate_memory = estimate_memory(
        UnchangedService(before, None, Checkpoint()), draft, Conditions(log=log, **options)
    )
    assert actual_estimate_memory.after.low <= 47264 <= actual_estimate_memory.after.high, (
        "as that engine logged, of 1024 sequences"
    )
    assert actual_estimate_memory.after.high == pytest.approx(most, rel=0.01)
