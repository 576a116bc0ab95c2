"""Parsers of what others wrote. Each takes bytes and raises nothing but the errors that its callers handle; where it
returns something, what must hold of it is asserted.

``TARGETS``: name -> function. tests/fuzz/corpus/NAME holds inputs to start from, and every input that once failed.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

from mpctl import bounded, safe_text
from mpctl.app.change.change import unified
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.block import Block, BlockError, LoadResult, prompt_digest
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Counters
from mpctl.experiment.prompt_files import read_prompts
from mpctl.experiment.run import Run
from mpctl.gate.policy import Policy
from mpctl.manifest import load, masked
from mpctl.manifest.merge.foreign_changes import foreign_changes
from mpctl.methods import parse_version
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE
from mpctl.platform.kubernetes.api.replies import Call, error_of
from mpctl.platform.kubernetes.ledger_objects import entries_of, ledger_of
from mpctl.rollout.ledger import read_ledger
from mpctl.rollout.operation import operations
from mpctl.rollout.revision import Revision
from mpctl.staging.catalogue_file import read_catalogue
from stacks.fleet.reader import read_fleet

CORPUS = Path(__file__).parent / "corpus"
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}


def text_of(data):
    return data.decode("utf-8", errors="replace")


def manifest(data):
    """A manifest that is read can be edited, and the edit undone is the same setting."""
    try:
        services = load(text_of(data))
    except InputError:
        return
    for service in services:
        try:
            before = service.speculation()
            changed = service.with_speculation(NGRAM)
        except InputError:
            continue
        (again,) = (
            s
            for s in load(changed.to_yaml())
            if (s.name, s.namespace) == (service.name, service.namespace)
        )
        assert again.speculation() == NGRAM
        assert again.with_speculation(before).speculation() == before


def masking(data):
    """Masking ends, keeps lines, and masks nothing more the second time."""
    text = text_of(data)
    shown = masked(text)
    assert shown.count("\n") == text.count("\n")
    assert masked(shown) == shown
    unsafe = {
        c
        for c in safe_text.document(shown)
        if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert unsafe <= set("\n\t\u200c\u200d")


def diffs(data):
    """Any two texts have a diff, and equal ones none."""
    left, _, right = text_of(data).replace("\0", "").partition("=====\n")
    assert bool(unified(left, right, ("a", "b"))) == (left != right)
    assert unified(left, left, ("a", "b")) == ""
    assert foreign_changes(left, left) == ()
    foreign_changes(left, right)


def ledger(data):
    """A ledger is read whole or refused by name."""
    try:
        operations(read_ledger(text_of(data), where="ledger"))
    except MpctlError as error:
        assert "ledger" in error.message


def ledger_objects(data):
    """The same of the objects in a cluster: the API server vouches for their metadata, not for their data."""
    try:
        entries = bounded.loads(data)
    except ValueError:
        return
    entries = entries if isinstance(entries, list) else [entries]
    items = [
        {
            "metadata": {"name": f"mpctl-demo.ledger-{n}", "managedFields": entry},
            "revision": n,
            "data": entry,
        }
        for n, entry in enumerate(entries, start=1)
    ]
    try:
        operations(entries_of(ledger_of(items), "demo"))
    except MpctlError as error:
        assert "ledger" in error.message


def revision(data):
    """A revision is whole, or refused by name."""
    try:
        record = bounded.loads(data)
        actual_revision = Revision.from_record(record if isinstance(record, dict) else {})
    except ValueError:
        return
    except MpctlError as error:
        assert "revision" in error.message
        return
    assert Revision.from_record(actual_revision.to_record()) == actual_revision


def metrics(data):
    """An engine's metrics page."""
    try:
        Counters.parse(text_of(data))
    except ValueError:
        return


def block(data):
    """What the load client in a pod returns for a block."""
    try:
        record = bounded.loads(data)
    except ValueError:
        return
    zero, cell = Counters(generation_tokens=0.0), Cell("edits", 1, 0.0)
    fields = {
        "arm": "baseline",
        "cell": cell,
        "repeat": 1,
        "prompts": ("a", "b"),
        "before": zero,
        "after": zero,
    }
    try:
        made = Block.of(LoadResult.read(record), **fields)
    except (BlockError, CounterError):
        return
    assert Block.from_record(json.loads(json.dumps(made.to_record()))) == made


def run_file(data):
    """The file of ``mpctl bench``."""
    try:
        record = bounded.loads(
            bounded.gunzip(data, limit=2**24) if data[:2] == b"\x1f\x8b" else data
        )
        run = Run.from_record(record, file="run.json")
    except (ValueError, MpctlError):
        return
    assert Run.from_record(json.loads(json.dumps(run.to_record()))) == run


def api_error(data):
    """Whatever an API server, or a proxy before it, answers, is an error with a message."""
    for code in (400, 401, 403, 404, 409, 422, 500):
        assert error_of(code, data, Call("update", INFERENCE_SERVICE, "chat", "demo")).message


def versions(data):
    """Images and releases."""
    parse_version(text_of(data))


def of_a_user(read):
    """A file that a user wrote: an error names its place."""

    def target(data):
        try:
            read(text_of(data))
        except InputError:
            return

    return target


TARGETS = {
    "manifest": manifest,
    "masking": masking,
    "diffs": diffs,
    "ledger": ledger,
    "ledger_objects": ledger_objects,
    "revision": revision,
    "metrics": metrics,
    "load": block,
    "run_file": run_file,
    "api_error": api_error,
    "versions": versions,
    "policy": of_a_user(lambda text: Policy.parse(text, file="policy.yaml")),
    "catalogue": of_a_user(lambda text: read_catalogue(text, "drafts.yaml")),
    "fleet": of_a_user(lambda text: read_fleet([("fleet.yaml", text)])),
    "prompts": of_a_user(
        lambda text: [prompt_digest(p) for p in read_prompts(text, file="prompts.jsonl").texts]
    ),
}
