"""The client held against a server of known timing: pure figures, and the server as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import MpctlError
from mpctl.experiment.block import LoadResult, StreamedRequest
from mpctl.experiment.calibration import Pace, calibrate, describe, requests_for, saturation
from mpctl.experiment.run import Calibration
from mpctl.platform.load import PACED

PACE = Pace()


def truth(count):
    return [{"number": float(n), "first_s": 0.020, "last_s": 0.040} for n in range(count)]


def told(firsts, rests, duration_s=1.0, **first_changes):
    """What a client says of requests whose first chunk it saw after ``firsts`` s and the last ``rests`` s later."""
    requests = [
        StreamedRequest(first, 0.0, (rest / 2, rest / 2), PACE.tokens, "word", "")
        for first, rest in zip(firsts, rests, strict=True)
    ]
    return LoadResult(
        "",
        duration_s,
        tuple(replace(r, **first_changes) if i == 0 else r for i, r in enumerate(requests)),
    )


def test_a_client_without_fault_adds_nothing():
    calibration = calibrate(told([0.020] * 4, [0.020] * 4), truth(4), PACE, 2)
    assert (calibration.requests, calibration.concurrency) == (4, 2)
    assert (calibration.p50_ms, calibration.p99_ms) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_larger_of_first_token_and_whole_time_counts():
    late_first = calibrate(told([0.025] * 9, [0.015] * 9), truth(9), PACE, 1)
    assert late_first.p50_ms == pytest.approx(5.0)
    late_end = calibrate(told([0.020] * 9, [0.027] * 9), truth(9), PACE, 1)
    assert late_end.p50_ms == pytest.approx(7.0)


def busy(chunks_per_s):
    """A block in which so many chunks arrived per second."""
    request = StreamedRequest(0.1, 0.0, (0.1,) * 9, 40, "word", "")
    return LoadResult("", 1000 / chunks_per_s, (request,) * 100)


def test_a_client_whose_limit_is_not_known_is_not_saturated():
    calibration = calibrate(
        told([0.020] * 8, [0.020] * 8, 4 * PACE.request_s * 1.2), truth(8), PACE, 2
    )
    assert calibration.slowdown == pytest.approx(1.2)
    assert saturation(calibration, busy(1e6)) == saturation(None, busy(1e6)) == ""


@pytest.mark.parametrize(("share", "saturated"), [(0.79, False), (0.81, True), (2.0, True)])
def test_a_block_above_four_fifths_of_the_clients_limit_saturates_it(share, saturated):
    calibration = calibrate(
        told([0.020] * 16, [0.020] * 16, 2 * PACE.request_s * 3.0), truth(16), PACE, 8
    )
    reason = saturation(calibration, busy(share * calibration.chunks_per_s))
    assert (
        "the load client is saturated" in reason and "lower --concurrency or MPCTL_RATE" in reason
    ) == saturated
    assert bool(reason) == saturated


def test_the_tail_is_the_slowest_of_a_hundred():
    firsts = [0.021] * 98 + [0.120, 0.220]
    calibration = calibrate(told(firsts, [0.020] * 100), truth(100), PACE, 1)
    assert calibration.p50_ms == pytest.approx(1.0)
    assert calibration.p99_ms == pytest.approx(100.0)


def test_answers_are_paired_by_number_in_whatever_order_the_server_gave_them():
    server = [
        {"number": 1.0, "first_s": 0.5, "last_s": 0.6},
        {"number": 0.0, "first_s": 0.020, "last_s": 0.040},
    ]
    calibration = calibrate(told([0.020, 0.5], [0.020, 0.1]), server, PACE, 2)
    assert calibration.p99_ms == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("count", "changes", "message"),
    [
        (3, {"error": "OSError: gone"}, "1 calibration requests failed; first: OSError: gone"),
        (2, {}, "reported 2 requests, the server answered 3"),
        (3, {"tokens": PACE.chunks}, f"counts {PACE.chunks} tokens, the server sent {PACE.tokens}"),
        (0, {}, "reported 0 requests"),
    ],
)
def test_what_cannot_be_trusted_is_refused(count, changes, message):
    with pytest.raises(MpctlError, match=message):
        calibrate(told([0.02] * count, [0.02] * count, **changes), truth(3), PACE, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-0.01, 1.0), min_size=1, max_size=50))
def test_quantiles_are_ordered_and_never_negative(errors):
    count = len(errors)
    calibration = calibrate(
        told([0.020 + e for e in errors], [0.020] * count), truth(count), PACE, 1
    )
    assert 0.0 <= calibration.p50_ms <= calibration.p99_ms <= max(*errors, 0.0) * 1000 + 1e-6


def test_how_many_requests():
    assert requests_for(1, PACE) == 12
    assert requests_for(8, PACE) == 100
    assert requests_for(128, PACE) == 1024


def test_in_words():
    assert describe(Calibration(1.25, 9.0, 75, 4)) == (
        "the load client adds 1.2 ms at p50, 9.0 ms at p99 (75 requests, 4 at once)"
    )


def test_the_server_streams_several_tokens_in_a_chunk_and_tells_when():
    command = [sys.executable, str(PACED), PACE.to_line()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        contents = ["request 0", [{"type": "text", "text": "request 1"}]]
        for content in contents:
            body = {"messages": [{"role": "user", "content": content}], "stream": True}
            answer = httpx.post(f"{base}/v1/chat/completions", json=body, trust_env=False)
            events = [e.removeprefix("data: ") for e in answer.text.strip().split("\n\n")]
            assert events[-1] == "[DONE]"
            records = [json.loads(e) for e in events[:-1]]
            chunks = [r["choices"][0]["delta"]["content"] for r in records if r["choices"]]
            assert len(chunks) == PACE.chunks
            assert all(len(c.split()) == PACE.per_chunk for c in chunks)
            assert records[-1]["usage"]["completion_tokens"] == PACE.tokens
        record = httpx.get(f"{base}/truth", trust_env=False).json()
        server.stdin.close()
    assert server.returncode == 0
    assert [t["number"] for t in record] == [0.0, 1.0]
    assert all(t["first_s"] >= PACE.ttft_s and t["last_s"] >= PACE.request_s for t in record)
