"""Records of operations in ConfigMaps: what is written comes back, and what another writer wrote does not."""

from __future__ import annotations

import os

import pytest
from fake_api import FakeApi

from mpctl.errors import Conflict, Tampered
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.sealed_records import SealedRecords


@pytest.fixture
def api():
    return FakeApi()


def store(api, service="demo"):
    return KubernetesStore(api, "chat", service, "a@b")


def test_records_come_back_and_are_replaced(api):
    mine = store(api)
    large = {
        "samples": [os.urandom(400).hex() for _ in range(3000)]
    }  # 2.4 MB of what cannot be compressed much
    mine.save("rollout-1", "block", large)
    assert store(api).load("rollout-1", "block") == large
    mine.save("rollout-1", "block", {"small": 1})
    assert store(api).load("rollout-1", "block") == {"small": 1}
    assert mine.load("rollout-1", "other") is None


def records(api, part="record"):
    return [api.objects["configmaps", name] for name in api.named(part)]


def forge(api, **changes):
    """Another writer with rights on ConfigMaps alone writes a record, with a digest that fits."""
    forger = FakeApi()
    store(forger).save(*changes["of"], changes["content"])
    (item,) = records(forger)
    api.apply(
        CONFIG_MAP, {**item, "metadata": dict(item["metadata"])}, force=True, as_="kubectl-edit"
    )


def test_a_record_that_another_writer_replaced_is_tampering(api):
    mine = store(api)
    mine.save("rollout-1", "block", {"samples": [1]})
    forge(api, of=("rollout-1", "block"), content={"samples": [2]})
    with pytest.raises(
        Tampered,
        match=r"ConfigMap chat/mpctl-demo-record-\w+-1 does not hold what was kept of rollout-1",
    ):
        store(api).load("rollout-1", "block")
    assert mine.load("rollout-1", "block") == {
        "samples": [1]
    }  # the writer itself knows what it wrote


def replaced(api, number):
    """States of a record, as a writer of ConfigMaps can copy each while it is the newest."""
    states = []
    for n in range(number):
        store(api).save("rollout-1", "block", {"samples": [n]})
        states.append({item["metadata"]["name"]: item for item in records(api)})
    return states


@pytest.mark.parametrize("earlier", range(4))
def test_an_earlier_state_that_is_put_back_is_tampering_and_its_writer_is_named(api, earlier):
    states = replaced(api, 5)
    current = "mpctl-demo-record-95ac6819f3-1"  # where the fifth state is
    for old in states[earlier].values():
        for name in states[-1]:
            body = {**old, "metadata": {**old["metadata"], "name": name}}
            api.apply(CONFIG_MAP, body, force=True, as_="kubectl-edit")
            wrong = name == current and old != states[-1][current]
            if wrong:
                with pytest.raises(
                    Tampered, match=f"{name} does not hold .*, last written by kubectl-edit at 2026"
                ):
                    store(api).load("rollout-1", "block")
                api.apply(CONFIG_MAP, states[-1][current], force=True)
            assert store(api).load("rollout-1", "block") == {"samples": [4]}


def test_a_record_that_was_removed_is_tampering(api):
    replaced(api, 2)
    api.delete(CONFIG_MAP, "mpctl-demo-record-95ac6819f3-0")
    with pytest.raises(Tampered, match="-0 is missing, which held records of rollout-1"):
        store(api).load("rollout-1", "block")


def test_a_save_that_was_interrupted_before_its_seal_leaves_the_state_before(api, monkeypatch):
    replaced(api, 2)

    def interrupted(*given):
        raise Conflict("killed")

    with monkeypatch.context() as patched:
        patched.setattr("mpctl.platform.kubernetes.sealed_records.create_once", interrupted)
        with pytest.raises(Conflict):
            store(api).save("rollout-1", "block", {"samples": [2]})
    assert store(api).load("rollout-1", "block") == {"samples": [1]}
    store(api).save("rollout-1", "block", {"samples": [3]})
    assert store(api).load("rollout-1", "block") == {"samples": [3]}


def test_a_record_that_is_written_twice_while_it_is_read_is_read_again(api, monkeypatch):
    replaced(api, 2)
    writer, reader, get = store(api), store(api), api.get
    left = iter(range(2))

    def slow(kind, name, namespace=None):
        if kind is CONFIG_MAP and (number := next(left, None)) is not None:
            writer.save("rollout-1", "block", {"samples": [f"new {number}"]})
            writer.save("rollout-1", "block", {"samples": [f"newer {number}"]})
        return get(kind, name, namespace)

    writer.load("rollout-1", "block")
    monkeypatch.setattr(api, "get", slow)
    assert reader.load("rollout-1", "block") == {"samples": ["newer 1"]}


def test_two_writers_cannot_both_seal(api):
    first, second = store(api), store(api)
    for writer in (first, second):
        writer.load("rollout-1", "block")
    first.save("rollout-1", "block", {"samples": [1]})
    with pytest.raises(
        Conflict, match="records of rollout-1 were sealed by another writer meanwhile"
    ):
        second.save("rollout-1", "block", {"samples": [2]})


def test_records_of_an_operation_share_two_configmaps_with_one_write_and_one_seal_each_time(api):
    mine = store(api)
    for number in range(5):
        mine.save_all(
            "rollout-1",
            {f"block-{number}": {"n": number}, "conditions": {"n": number}},
            raw={"raw": {}},
        )
    assert len(api.named("record")) == 2
    assert len(api.named("seal")) == 5
    assert api.writes == 10
    assert [store(api).load("rollout-1", f"block-{n}") for n in range(5)] == [
        {"n": n} for n in range(5)
    ]
    assert store(api).load("rollout-1", "conditions") == {"n": 4}


def test_however_long_it_measures_an_operation_has_four_configmaps_and_loses_only_raw_results(
    api, monkeypatch
):
    monkeypatch.setattr("mpctl.platform.kubernetes.sealed_records._PIECE", 7_000)
    mine = store(api)
    noise = [os.urandom(600).hex() for _ in range(40)]  # 27 kB of what cannot be compressed much
    for number, text in enumerate(noise):
        mine.save_all(
            "rollout-1", {f"block-{number}": {"n": number}}, raw={f"raw-{number}": {"noise": text}}
        )
    assert len(api.named("record")) == 4
    assert api.named("blob") == []
    again = store(api)
    assert all(again.load("rollout-1", f"block-{n}") == {"n": n} for n in range(40))
    ranges = [n for n in range(40) if again.load("rollout-1", f"raw-{n}") is not None]
    assert ranges == list(range(len(ranges)))
    assert 10 < len(ranges) < 40


def test_records_that_do_not_fit_get_a_further_bundle(api, monkeypatch):
    monkeypatch.setattr("mpctl.platform.kubernetes.sealed_records._PIECE", 8_000)
    mine = store(api)
    noise = [os.urandom(3_000).hex() for _ in range(8)]
    for number, text in enumerate(noise):
        mine.save("rollout-1", f"block-{number}", {"noise": text})
    assert len(api.named("record")) == 8  # two of each bundle
    again = store(api)
    assert all(
        again.load("rollout-1", f"block-{n}") == {"noise": text} for n, text in enumerate(noise)
    )


def test_what_is_kept_already_is_not_written_again(api):
    store(api).save("workload-1", "workload", {"rounds": 8})
    before = api.writes
    store(api).save("workload-1", "workload", {"rounds": 8})
    assert api.writes == before


def test_a_record_that_another_writer_made_is_not_read(api):
    forge(api, of=("workload-1", "workload"), content={"traffic": []})
    assert store(api).load("workload-1", "workload") is None
    store(api).save("workload-1", "workload", {"traffic": [1]})
    assert store(api).load("workload-1", "workload") == {"traffic": [1]}


def test_a_record_moved_to_another_name_is_tampering(api):
    mine = store(api)
    mine.save("rollout-1", "block", {"samples": [1]})
    mine.save("rollout-2", "block", {"samples": [2]})
    one, two = records(api)
    api.apply(CONFIG_MAP, {**one, "metadata": two["metadata"]}, force=True, as_="kubectl-edit")
    with pytest.raises(Tampered):
        for name in ("rollout-1", "rollout-2"):
            store(api).load(name, "block")


def test_a_piece_that_another_writer_changed_is_tampering(api):
    mine = store(api)
    mine.save("rollout-1", "block", {"samples": [os.urandom(400).hex() for _ in range(3000)]})
    piece = records(api, "blob")[0]
    api.apply(
        CONFIG_MAP, {**piece, "binaryData": {"piece": "AAAA"}}, force=True, as_="kubectl-edit"
    )
    with pytest.raises(Tampered, match="does not hold what was kept of rollout-1"):
        store(api).load("rollout-1", "block")


@pytest.mark.parametrize("data", [{"record": "not base64"}, {}, {"record": "AAAA"}])
def test_a_record_that_cannot_be_read_is_tampering(api, data):
    mine = store(api)
    mine.save("rollout-1", "block", {"samples": [1]})
    (item,) = records(api)
    api.apply(CONFIG_MAP, {**item, "binaryData": data}, force=True, as_="kubectl-edit")
    with pytest.raises(Tampered):
        store(api).load("rollout-1", "block")


def test_a_record_that_another_command_saved_since_is_read_again_where_asked(api):
    watch, person = store(api), store(api)
    watch.save("rollback-2", "reference", {"a": 1})
    assert watch.load("rollback-2", "acknowledged") is None
    person.save("rollback-2", "acknowledged", {"by": "ann"})
    assert watch.load("rollback-2", "acknowledged") is None
    assert watch.load("rollback-2", "acknowledged", again=True) == {"by": "ann"}
    assert watch.load("rollback-2", "reference") == {"a": 1}


def test_an_immutable_configmap_under_the_next_name_is_named_with_its_writer(api):
    store(api).save("rollout-1", "block", {"a": 1})
    (name,) = api.named("record")
    following = name.removesuffix("-1") + "-0"
    labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": "record"}
    api.create(
        CONFIG_MAP,
        {"metadata": {"name": following, "labels": labels}, "immutable": True},
        as_="mallory",
    )
    with pytest.raises(
        Conflict, match=rf"ConfigMap chat/{following} is immutable.*last written by mallory"
    ) as error:
        store(api).save("rollout-1", "block", {"a": 2})
    assert f"kubectl delete configmap {following} -n chat" in error.value.hint
    assert store(api).load("rollout-1", "block") == {"a": 1}


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_a_workload_that_another_writer_destroyed_is_written_again(api, damage):
    store(api).save("w-1", "workload", {"prompts": "digest"}, only=True)
    (name,) = api.named("record")
    if damage == "deleted":
        api.delete(CONFIG_MAP, name)
    else:
        api.apply(
            CONFIG_MAP,
            {**api.objects["configmaps", name], "binaryData": {"record": ""}},
            as_="mallory",
        )
    with pytest.raises(Tampered):
        store(api).load("w-1", "workload")
    with pytest.raises(Tampered):  # what has other records is not guessed
        store(api).save("w-1", "other", {"a": 1})
    store(api).save("w-1", "workload", {"prompts": "digest"}, only=True)
    assert store(api).load("w-1", "workload") == {"prompts": "digest"}


def test_a_long_measurement_is_sealed_ever_more_rarely(api):
    clock = [0.0]
    sealed_records = SealedRecords(api, "chat", "demo", elapsed=lambda: clock[0])
    for minute in range(600):
        clock[0] = 60.0 * minute
        sealed_records.save_all("rollout-1", {f"block-{minute}": {"a": minute}}, with_entry=True)
    assert len(api.named("seal")) <= 11  # a seal a round were 600
    assert len(store(api)._records.load_all("rollout-1")) > 300
