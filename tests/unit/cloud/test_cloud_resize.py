from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mpctl.cloud.cluster import Cluster
from mpctl.cloud.resize import Ledger, enlarge, restore
from mpctl.errors import Conflict, InputError, MpctlError, Refused
from mpctl.estimate.capacity import Pool

CLUSTER = Cluster("eks", "serving", "us-east-1")
POOL = Pool("l4", "g6.2xlarge", 1, 1, 1, 3)


def now() -> datetime:
    return datetime(2026, 11, 21, tzinfo=UTC)


class FakeCloud:
    """Notes what the ledger said at the moment of each call."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.calls, self.dies = ledger, [], False

    def resize(self, pool: Pool, size: int) -> int:
        last = self.ledger.last()
        self.calls.append((size, last.event if last else None))
        if self.dies:
            raise MpctlError("the line was cut")
        return size

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path, CLUSTER, "l4")


@pytest.fixture
def cloud(ledger: Ledger) -> Any:
    return FakeCloud(ledger)


def test_each_change_is_recorded_before_it_happens(cloud: Any, ledger: Ledger) -> None:
    assert enlarge(cloud, ledger, POOL, 1, now) == (2, True)
    assert restore(cloud, ledger, replace(POOL, size=2), now) == (1, True)
    assert cloud.calls == [(2, "enlarging"), (1, "returning")]
    events = [line.split('"event": "')[1].split('"')[0] for line in ledger.path.read_text().splitlines()]
    assert events == ["enlarging", "enlarged", "returning", "returned"]


def test_twice_is_once(cloud: Any, ledger: Ledger) -> None:
    enlarge(cloud, ledger, POOL, 1, now)
    assert enlarge(cloud, ledger, replace(POOL, size=2), 1, now) == (2, False)
    restore(cloud, ledger, replace(POOL, size=2), now)
    assert restore(cloud, ledger, POOL, now) == (1, False)
    assert len(cloud.calls) == 2


@pytest.mark.parametrize("size_seen", [1, 2])
def test_a_run_that_died_is_repeated_or_undone(cloud: Any, ledger: Ledger, size_seen: int) -> None:
    cloud.dies = True
    with pytest.raises(MpctlError):
        enlarge(cloud, ledger, POOL, 1, now)
    cloud.dies = False
    assert enlarge(cloud, ledger, replace(POOL, size=size_seen), 1, now) == (2, True)
    cloud.dies = True
    with pytest.raises(MpctlError, match="cut") as error:
        restore(cloud, ledger, replace(POOL, size=2), now)
    assert "--restore" in (error.value.hint or "")
    cloud.dies = False
    with pytest.raises(Conflict, match="being returned"):
        enlarge(cloud, ledger, replace(POOL, size=2), 1, now)
    assert restore(cloud, ledger, replace(POOL, size=2), now) == (1, True)


def test_the_pools_maximum_is_not_passed(cloud: Any, ledger: Ledger) -> None:
    with pytest.raises(Refused, match="may have 3 nodes"):
        enlarge(cloud, ledger, POOL, 3, now)
    assert not ledger.path.exists()
    assert cloud.calls == []


def test_somebody_elses_change_is_not_undone(cloud: Any, ledger: Ledger) -> None:
    enlarge(cloud, ledger, POOL, 1, now)
    with pytest.raises(Conflict, match="somebody changed it"):
        restore(cloud, ledger, replace(POOL, size=3), now)
    with pytest.raises(Conflict, match="has 1 now"):
        enlarge(cloud, ledger, POOL, 1, now)
    assert len(cloud.calls) == 1


def test_a_line_that_was_cut_off_is_no_event(cloud: Any, ledger: Ledger) -> None:
    enlarge(cloud, ledger, POOL, 1, now)
    with ledger.path.open("a") as out:
        out.write('{"event": "retur')
    assert restore(cloud, ledger, replace(POOL, size=2), now) == (1, True)
    last = ledger.last()
    assert last is not None
    assert last.event == "returned"


def test_a_line_that_is_none_names_the_file(ledger: Ledger) -> None:
    ledger.path.write_text("{}\n")
    with pytest.raises(InputError, match=r"l4\.jsonl:1"):
        ledger.last()
