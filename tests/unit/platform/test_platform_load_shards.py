"""A block that several pods share: its shards, the start barrier, the merge of raw samples, and a lost pod."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters
from mpctl.platform.kubernetes.load_job.job_client import JobClient, ShardAnswer, merge, split
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder

ENGINE = Endpoint("http://127.0.0.1:1", "demo", "", inside="http://100.64.0.7:8080")
PROMPTS = tuple(f"prompt {n}" for n in range(5))
CELL = Cell("chat", 4)


def result_of(prompts, duration=1.0):
    """What the bench client reports, with every row named by its prompt."""
    return {
        "date": "20260101-000000",
        "duration": duration,
        "p99_ttft_ms": 7.0,
        "ttfts": [float(p.split()[-1]) for p in prompts],
        "itls": [[0.1] for _ in prompts],
        "output_lens": [3 for _ in prompts],
        "generated_texts": [f"to {p}" for p in prompts],
        "errors": ["" for _ in prompts],
    }


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 12), st.none() | st.floats(0.1, 100))
def test_shards_are_the_whole_block_with_its_whole_load(count, concurrency, pods, rate):
    prompts = tuple(f"prompt {n}" for n in range(count))
    shards = split(LoadOrder(tuple(prompts), Cell("chat", concurrency, rate=rate), 16), pods)
    assert sorted(p for s in shards for p in s.prompts) == sorted(prompts)
    assert sum(s.cell.concurrency for s in shards) == concurrency
    assert all(s.prompts and s.cell.concurrency >= 1 for s in shards)
    if rate is not None:
        assert sum(s.cell.rate for s in shards) == pytest.approx(rate)
    merged = merge([ShardAnswer(result_of(s.prompts), 5.0, 0.0) for s in shards])
    assert merged["generated_texts"] == [f"to {p}" for p in prompts]


def test_the_time_is_from_the_first_start_to_the_last_answer_without_the_barrier():
    answers = [
        ShardAnswer(result_of(("a 1", "a 3"), duration=1.5), began_s=10.0, waited_s=0.5),
        ShardAnswer(result_of(("a 2",), duration=3.0), began_s=10.1, waited_s=1.0),
    ]
    merged = merge(answers)
    assert merged["duration"] == pytest.approx(2.1)
    assert merged["ttfts"] == [1.0, 2.0, 3.0]


def test_no_percentile_is_merged():
    assert not [name for name in merge([ShardAnswer(result_of(PROMPTS), 0.0, 0.0)] * 1) if name.startswith("p99")]


def test_pods_that_start_apart_are_no_block():
    with pytest.raises(ValueError, match=r"started 0\.40 s apart"):
        merge([ShardAnswer(result_of(("a 1",)), 1.0, 0.0), ShardAnswer(result_of(("a 2",)), 1.4, 0.0)])


def test_a_shard_without_a_request_is_no_block():
    with pytest.raises(ValueError, match=r"the pods report \[1, 2\] requests"):
        merge([ShardAnswer(result_of(("a 1",)), 1.0, 0.0), ShardAnswer(result_of(("a 2", "a 3")), 1.0, 0.0)])


class Pods:
    """``LoadPods`` in memory: every pod answers at once, by a clock of its own. ``lost``: a pod that is gone when its
    part is asked for; ``started``: pods that an earlier command released."""

    title = "load Job chat/x"

    def __init__(self, count=2, *, lost=None, started=(), fails=None):
        self.count, self.lost, self.started, self.fails = count, lost, set(started), fails
        self.blocks, self.starts, self.closed = {}, {}, 0

    def ahead(self, index):
        return 1000.0 * (index + 1)

    def wait_until_ready(self):
        pass

    def close(self):
        self.closed += 1
        return ""

    def log_tail(self, index=0):
        return ""

    def ask(self, index, method, path, body=None):
        kind = path.strip("/").partition("/")[0]
        if (method, kind) == ("POST", "blocks"):
            self.blocks[index] = body
            return 202, {}
        if path == "/clock":
            return 200, {"clock": time.monotonic() + self.ahead(index)}
        if (method, kind) == ("POST", "start"):
            self.starts[index] = body["at"]
            return 200, {}
        if kind == "start":
            return 200, {"error": "no tokenizer"} if self.fails == index else {"started": index in self.started}
        if index == self.lost:
            raise BlockLost("load Job chat/x: pod-1 was deleted")
        began = self.starts.get(index, 5.0 + self.ahead(index))
        counted = "vllm:generation_tokens_total {}.0\n"
        return 200, {
            "result": result_of(self.blocks[index]["prompts"], duration=2.0 + index),
            "before": counted.format(1),
            "after": counted.format(10 + index),
            "began": began,
            "waited": 1.0,
        }


def send(pods):
    return JobClient(pods).send(ENGINE, LoadOrder(tuple(PROMPTS), CELL, 16, "rollout-1/block"), Counters)


def test_every_pod_gets_its_shard_and_the_same_moment_to_start():
    pods = Pods()
    sent = send(pods)
    assert [pods.blocks[i]["prompts"] for i in (0, 1)] == [list(PROMPTS[0::2]), list(PROMPTS[1::2])]
    assert all("--max-concurrency=2" in pods.blocks[i]["arguments"] for i in (0, 1))
    moments = [pods.starts[i] - pods.ahead(i) for i in (0, 1)]
    assert moments[0] == pytest.approx(moments[1], abs=0.2)
    assert sent.result["ttfts"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sent.result["load_pods"] == 2


def test_the_counters_after_the_block_are_those_of_the_pod_that_ended_last():
    sent = send(Pods())
    assert (sent.before.generation_tokens, sent.after.generation_tokens) == (1.0, 11.0)


def test_a_lost_pod_invalidates_the_block_and_ends_the_others():
    pods = Pods(lost=1)
    with pytest.raises(BlockLost, match="was deleted"):
        send(pods)
    assert pods.closed == 1


def test_a_block_that_an_earlier_command_released_is_not_released_again():
    pods = Pods(started=(0, 1))
    assert send(pods).result["load_pods"] == 2
    assert not pods.starts


def test_a_block_of_which_a_part_had_started_is_lost():
    pods = Pods(started=(0,))
    with pytest.raises(BlockLost, match="without the others"):
        send(pods)
    assert pods.closed == 1


def test_a_pod_that_fails_before_the_barrier_says_why():
    with pytest.raises(MpctlError, match="failed: no tokenizer"):
        send(Pods(fails=1))


def test_one_prompt_needs_no_barrier():
    pods = Pods()
    JobClient(pods).send(ENGINE, LoadOrder(tuple(PROMPTS[:1]), CELL, 16), None)
    assert pods.blocks[0]["held"] is False
    assert not pods.starts
