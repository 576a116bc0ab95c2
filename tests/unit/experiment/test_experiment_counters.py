"""Counters of real and generated expositions, and the windows between two readings."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measure_samples import DATA, SPECULATING, captured, window

from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.records import decode, encode

few = settings(max_examples=60, deadline=None)
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def test_a_speculating_engine_after_load():
    found = captured("ngram_after_load")
    assert replace(found, latency_buckets=()) == Counters(
        generation_tokens=8252.0,
        prompt_tokens=9698.0,
        preemptions=0.0,
        queue_seconds=0.0013882239995837153,
        queue_count=33.0,
        drafts=1983.0,
        draft_tokens=9806.0,
        accepted=5331.0,
        per_position=(1413.0, 1184.0, 1022.0, 916.0, 796.0),
        ttft_seconds=3.324699878692627,
        ttft_count=33.0,
        tpot_seconds=0.07655604187430172,
        tpot_count=33.0,
        itl_seconds=19.022574657000405,
        itl_count=2926.0,
        prefix_queries=9698.0,
        prefix_hits=0.0,
        started=1.79521993544e09,
        running=0.0,
        waiting=0.0,
        latency_seconds=22.28758668899536,
        latency_count=33.0,
        unfinished=0.0,
    )


def test_aborted_and_failed_requests_are_unfinished():
    counts = {"stop": 9, "length": 8, "abort": 2, "error": 1, "repetition": 4}
    lines = (
        f'vllm:request_success_total{{finished_reason="{reason}"}} {count}'
        for reason, count in counts.items()
    )
    assert Counters.parse("\n".join(lines) + "\n") == Counters(unfinished=3.0)


def test_times_are_the_engines_own_means():
    """Client times would not do: a busy client receives merged chunks, the first of them late."""
    window = Window.between(captured("ngram_before_requests"), captured("ngram_after_load"))
    assert window.ttft_ms == pytest.approx(1000 * 3.324699878692627 / 33)
    assert window.tpot_ms == pytest.approx(1000 * 0.07655604187430172 / 33)
    assert (replace(window, ttft_count=0.0).ttft_ms, replace(window, tpot_count=None).tpot_ms) == (
        None,
        None,
    )
    assert window.step_ms == pytest.approx(1000 * 19.022574657000405 / 2926)
    assert window.time_per_token_ms == pytest.approx(window.step_ms / window.tokens_per_step)
    assert replace(window, itl_count=None).time_per_token_ms is None


def test_on_and_idle_is_zero_off_is_none():
    idle, off = captured("ngram_before_requests"), captured("baseline_before_requests")
    assert (idle.drafts, idle.draft_tokens, idle.accepted, idle.per_position) == (
        0.0,
        0.0,
        0.0,
        (0.0,) * 5,
    )
    assert (off.drafts, off.draft_tokens, off.accepted, off.per_position) == (None, None, None, ())
    assert off.generation_tokens == idle.generation_tokens == 0.0


def test_the_window_of_a_speculating_engine():
    actual_window = Window.between(captured("ngram_before_requests"), captured("ngram_after_load"))
    assert actual_window.speculating
    assert (
        actual_window.steps == 2926 + 33 == 2959
    )  # vllm:iteration_tokens_total_count of the same reading, one at a time
    assert actual_window.tokens_per_step == pytest.approx(8252 / 2959)
    assert actual_window.acceptance_rate == pytest.approx(5331 / 9806)
    assert actual_window.acceptance_length == pytest.approx(1 + 5331 / 1983)
    assert actual_window.coverage == pytest.approx(1983 / 2959)
    assert actual_window.prefix_hit_share == 0.0
    assert actual_window.position_rates == pytest.approx(
        (0.71256, 0.59707, 0.51538, 0.46193, 0.40141), abs=1e-5
    )
    assert (
        actual_window.acceptance_length > actual_window.tokens_per_step
    )  # what counting only drafted steps overstates
    assert actual_window.queue_wait_ms == pytest.approx(1.3882 / 33, abs=1e-4)


def test_the_window_of_a_plain_engine():
    actual_window = Window.between(
        captured("baseline_before_requests"), captured("baseline_after_load")
    )
    assert not actual_window.speculating
    assert (actual_window.generation_tokens, actual_window.tokens_per_step) == (9180.0, 1.0)
    assert (
        actual_window.steps,
        actual_window.acceptance_rate,
        actual_window.acceptance_length,
        actual_window.coverage,
    ) == (None, None, None, None)
    assert actual_window.position_rates == ()


def test_nothing_done_has_no_ratios():
    idle = captured("ngram_before_requests")
    actual_window = Window.between(idle, idle)
    assert (
        actual_window.tokens_per_step,
        actual_window.acceptance_rate,
        actual_window.coverage,
        actual_window.queue_wait_ms,
    ) == (None,) * 4
    off = captured("baseline_before_requests")
    assert Window.between(off, off).tokens_per_step is None


def test_created_gauges_are_not_counted():
    text = 'vllm:generation_tokens_total{engine="0"} 5\nvllm:generation_tokens_created{engine="0"} 1.7e9\n'
    assert Counters.parse(text) == Counters(generation_tokens=5.0)


def test_engines_are_summed():
    text = (
        'vllm:generation_tokens_total{engine="0",model_name="m"} 5\n'
        'vllm:generation_tokens_total{engine="1",model_name="m"} 7\n'
        f'{PER_POSITION}{{engine="0",position="1"}} 1\n'
        f'{PER_POSITION}{{engine="0",position="0"}} 3\n'
        f'{PER_POSITION}{{engine="1",position="0"}} 4\n'
        "process_start_time_seconds 9\n"
    )
    assert Counters.parse(text) == Counters(
        generation_tokens=12.0, per_position=(7.0, 1.0), started=9.0
    )


def test_an_empty_exposition_has_no_counters():
    assert Counters.parse("") == Counters()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
@pytest.mark.parametrize(
    "series",
    [
        'vllm:generation_tokens_total{engine="0"}',
        f'{PER_POSITION}{{position="0"}}',
        "process_start_time_seconds",
    ],
)
def test_a_value_that_is_no_number_is_named(series, value):
    with pytest.raises(CounterError, match=series.partition("{")[0]):
        Counters.parse(f"{series} {value}\n")


def test_a_nan_of_a_series_nobody_counts_is_none_of_our_business():
    assert Counters.parse("other NaN\n") == Counters()


@pytest.mark.parametrize(
    "series",
    ['vllm:generation_tokens_total{engine="0"}', f'{PER_POSITION}{{engine="0",position="0"}}'],
)
def test_a_series_that_stands_twice_is_not_counted_twice(series):
    with pytest.raises(
        CounterError, match=rf"duplicate series in /metrics: {series.partition('{')[0]} "
    ):
        Counters.parse(f"{series} 3\n{series} 3\n")


def test_an_exposition_pasted_behind_itself_is_refused():
    text = (DATA / "metrics_ngram_after_load.txt").read_text()
    with pytest.raises(CounterError, match="duplicate series"):
        Counters.parse(text + text)


@pytest.mark.parametrize(
    "labels", ["", '{engine="0"}', '{position="x"}', '{position="-1"}', '{position=""}']
)
def test_a_position_that_is_none_is_named(labels):
    with pytest.raises(CounterError, match=PER_POSITION):
        Counters.parse(f"{PER_POSITION}{labels} 3\n")


@pytest.mark.parametrize(
    "text",
    [
        *("garbage", "<html><body>502</body></html>", '{"error": "x"}'),
        *("vllm:generation_tokens_total x\n", "vllm:generation_tokens_total{engine="),
        'vllm:e2e_request_latency_seconds_bucket{le="x"} 1',
    ],
)
def test_what_is_no_exposition_is_refused(text):
    with pytest.raises(CounterError, match="not a Prometheus exposition"):
        Counters.parse(text)


OURS = 'vllm:generation_tokens_total{engine="0"} 5\n'


@pytest.mark.parametrize(
    "line", ["other{b=", "other{" + 'a="1",' * 10**5 + "} 1", "other " + "9" * 10**6, "  # other"]
)
def test_a_line_of_a_series_that_nobody_counts_is_not_parsed(line):
    assert Counters.parse(f"{line}\n{OURS}{line}\n") == Counters(generation_tokens=5.0)


def labelled(count):
    return "{" + ",".join(f'l{n}="1"' for n in range(count)) + "}"


def test_a_sample_has_as_many_labels_as_any_engine_gives_it():
    assert Counters.parse(f"vllm:generation_tokens_total{labelled(64)} 5") == Counters(
        generation_tokens=5.0
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            f"vllm:generation_tokens_total{labelled(65)} 5\n",
            "generation_tokens_total has more than 64 labels",
        ),
        ('vllm:generation_tokens_total{a="' + "x" * 8192 + '"} 5\n', "8192 characters"),
        (
            "".join(f'vllm:generation_tokens_total{{engine="{n}"}} 1\n' for n in range(10_001)),
            "more than 10000 series",
        ),
    ],
)
def test_a_page_of_more_than_an_engine_exports_is_refused(text, named):
    with pytest.raises(CounterError, match=named):
        Counters.parse(text)


ONE_SERIES = "vllm:generation_tokens_total" + labelled(10**6) + " 1\n"
MANY_SERIES = "".join(f'vllm:generation_tokens_total{{engine="{n}"}} 1\n' for n in range(200_000))
LONG_VALUE = 'vllm:generation_tokens_total{a="' + "\\\\" * 8 * 2**20 + '"} 1\n'
OTHERS = "".join(f'other{{engine="{n}"}} 1\n' for n in range(600_000))


@pytest.mark.parametrize(
    "page",
    [ONE_SERIES, MANY_SERIES, LONG_VALUE, OTHERS],
    ids=["labels", "series", "16 MB", "others"],
)
def test_no_page_takes_more_than_seconds_of_cpu(page):
    """The parser alone took 16 s for 128 000 labels and 14 s for 200 000 series."""
    began = time.process_time()
    with suppress(CounterError):
        Counters.parse(page)
    assert time.process_time() - began < 5.0


@few
@given(st.text(st.sampled_from('ab_:{}="\\,# \n\t1.e+NTYPEHLtotal'), max_size=40))
def test_any_text_is_read_or_refused(text):
    with suppress(CounterError):
        Counters.parse(text)


# Windows

BEFORE = Counters(
    generation_tokens=10.0,
    prompt_tokens=1.0,
    preemptions=0.0,
    queue_seconds=1.0,
    queue_count=2.0,
    drafts=4.0,
    draft_tokens=8.0,
    accepted=3.0,
    per_position=(2.0, 1.0),
    started=7.0,
    ttft_seconds=1.0,
    ttft_count=4.0,
    tpot_seconds=1.0,
    tpot_count=4.0,
    itl_seconds=1.0,
    itl_count=4.0,
    prefix_queries=4.0,
    prefix_hits=1.0,
)
AFTER = replace(
    BEFORE,
    generation_tokens=20.0,
    drafts=8.0,
    draft_tokens=16.0,
    accepted=8.0,
    per_position=(5.0, 3.0),
)
SPECULATION = ("drafts", "draft_tokens", "accepted")
READ_ONCE = ("running", "waiting", "latency_seconds", "latency_count", "unfinished")
LISTS = ("per_position", "tokens_by_engine", "latency_buckets")
NUMBERS = [f.name for f in fields(Counters) if f.name not in ("started", *READ_ONCE, *LISTS)]


def test_a_window_is_the_difference():
    unchanged = [
        n for n in NUMBERS if n not in ("generation_tokens", "prompt_tokens", *SPECULATION)
    ]
    expected = window(10.0, 4.0, 8.0, 5.0, (3.0, 2.0), **dict.fromkeys(unchanged, 0.0))
    assert Window.between(BEFORE, AFTER) == expected


def test_a_restart_is_seen_although_the_counters_hide_it():
    with pytest.raises(CounterError, match="restarted"):
        Window.between(BEFORE, replace(AFTER, started=8.0))


def test_a_restart_of_one_engine_of_several_is_seen_although_their_sum_grows():
    def of_two(first, second):
        rows = (
            f'vllm:generation_tokens_total{{engine="{n}"}} {tokens}'
            for n, tokens in enumerate((first, second))
        )
        return Counters.parse("\n".join(rows))

    assert Window.between(of_two(1000, 100), of_two(2000, 500)).generation_tokens == 1400
    with pytest.raises(CounterError, match="one of the engines"):
        Window.between(of_two(1000, 600), of_two(2000, 500))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_counter_that_went_back_is_named(name):
    with pytest.raises(CounterError, match=r"^vllm:\w+ went back from"):
        Window.between(replace(BEFORE, **{name: 1e9}), AFTER)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_counter_that_disappeared_is_named(name):
    with pytest.raises(CounterError, match=r"^vllm:\w+ disappeared"):
        Window.between(BEFORE, replace(AFTER, **{name: None}))


def test_positions_are_watched_like_other_counters():
    with pytest.raises(CounterError, match="position 1 went back"):
        Window.between(replace(BEFORE, per_position=(2.0, 9.0)), AFTER)
    with pytest.raises(CounterError, match="position 1 disappeared"):
        Window.between(BEFORE, replace(AFTER, per_position=(8.0,)))


def test_positions_that_appear_were_zero_before():
    early = Counters(generation_tokens=0.0)
    late = Counters(
        generation_tokens=9.0, drafts=2.0, draft_tokens=4.0, accepted=3.0, per_position=(2.0, 1.0)
    )
    assert Window.between(early, late).per_position == (2.0, 1.0)


def test_without_generated_tokens_there_is_no_window():
    with pytest.raises(CounterError, match="vllm:generation_tokens_total is missing"):
        Window.between(Counters(), Counters())


def test_more_accepted_than_drafted_is_a_contradiction():
    with pytest.raises(CounterError, match="13 tokens accepted of 8 drafted"):
        Window.between(BEFORE, replace(AFTER, accepted=16.0))


def test_positions_must_add_up_to_the_accepted():
    with pytest.raises(CounterError, match="add up to 4, the accepted counter says 5"):
        Window.between(BEFORE, replace(AFTER, per_position=(5.0, 2.0)))


@pytest.mark.parametrize(
    ("generated", "drafts", "accepted", "steps"),
    [  # vLLM 0.32, n-gram K=8, one request at a time; steps: vllm:iteration_tokens_total_count
        (48.0, 12.0, 96.0, 48.0),  # answers of 4 tokens: speculation brings nothing
        (192.0, 26.0, 192.0, 62.0),
        (1536.0, 184.0, 1335.0, 237.0),
        (4608.0, 554.0, 4020.0, 625.0),
        (1480.0, 285.0, 249.0, 1231.0),
    ],
)
def test_steps_are_those_that_the_engine_made(generated, drafts, accepted, steps):
    """Generated minus accepted tokens is too few where the ends of drafts are cut off."""
    requests = 12.0
    actual_window = window(
        generated, drafts, 8 * drafts, accepted, itl_count=steps - requests, ttft_count=requests
    )
    assert actual_window.steps == steps
    assert actual_window.tokens_per_step == generated / steps
    assert actual_window.coverage == drafts / steps
    floor = replace(actual_window, itl_count=None).steps
    assert floor is not None
    assert drafts + requests <= floor <= steps  # without the engine's count


def test_without_any_count_of_requests_a_step_per_draft_is_the_floor():
    assert window(192.0, 26.0, 208.0, 192.0).steps == 26.0


def test_hand_computed_figures():
    assert SPECULATING.steps == 40.0
    assert SPECULATING.tokens_per_step == 2.5
    assert SPECULATING.coverage == 0.5
    assert SPECULATING.acceptance_rate == 0.6
    assert SPECULATING.acceptance_length == 4.0
    assert SPECULATING.position_rates == (1.0, 0.75, 0.5, 0.5, 0.25)
    assert window(queue_seconds=3.0, queue_count=4.0).queue_wait_ms == 750.0


def test_pooling_adds_counts_and_never_averages_ratios():
    short = window(
        10.0, 1.0, 5.0, 5.0, (1.0, 1.0, 1.0, 1.0, 1.0), queue_seconds=1.0, queue_count=1.0
    )
    long = window(1000.0, 99.0, 495.0, 0.0, (0.0,) * 5, queue_seconds=0.0, queue_count=99.0)
    pooled = Window.total((short, long))
    assert pooled.acceptance_rate == 5 / 500
    assert pooled.tokens_per_step == 1010 / 1005
    assert pooled.queue_wait_ms == 10.0
    assert pooled.acceptance_rate != (short.acceptance_rate + long.acceptance_rate) / 2
    assert pooled.per_position == (1.0,) * 5


def test_pooling_with_a_window_that_lacks_a_count_lacks_it_too():
    pooled = Window.total((SPECULATING, window()))
    assert pooled.generation_tokens == 200.0
    assert (pooled.drafts, pooled.accepted, pooled.queue_wait_ms) == (None, None, None)


def test_pooling_windows_of_different_k():
    pooled = Window.total(
        (window(9.0, 1.0, 2.0, 2.0, (1.0, 1.0)), window(9.0, 1.0, 3.0, 1.0, (1.0, 0.0, 0.0)))
    )
    assert pooled.per_position == (2.0, 1.0, 0.0)


# Generated: several engines, each with drafts of which a beginning is accepted

drafts = st.lists(st.integers(0, 4), max_size=12)  # accepted tokens of each draft, K = 4
engines = st.lists(st.tuples(drafts, st.integers(0, 50)), min_size=1, max_size=4)


def exposition(states) -> str:
    lines = ["# TYPE vllm:generation_tokens counter"]
    for number, (accepted, undrafted) in enumerate(states):
        labels = f'engine="{number}",model_name="m"'
        generated = sum(accepted) + len(accepted) + undrafted
        lines += [
            f"vllm:generation_tokens_total{{{labels}}} {float(generated)}",
            f"vllm:generation_tokens_created{{{labels}}} 1.7e+09",
            f"vllm:spec_decode_num_drafts_total{{{labels}}} {len(accepted)}",
            f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {4 * len(accepted)}",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(accepted)}",
            *(
                f'{PER_POSITION}{{{labels},position="{p}"}} {sum(a > p for a in accepted)}'
                for p in range(4)
            ),
        ]
    return "\n".join(lines) + "\n"


@few
@given(engines, st.data())
def test_the_identities_hold_for_any_number_of_engines(after, drawn):
    before = [
        (
            accepted[: drawn.draw(st.integers(0, len(accepted)))],
            drawn.draw(st.integers(0, undrafted)),
        )
        for accepted, undrafted in after
    ]
    actual_window = Window.between(
        Counters.parse(exposition(before)), Counters.parse(exposition(after))
    )
    new = [
        a for (late, _), (early, _) in zip(after, before, strict=True) for a in late[len(early) :]
    ]
    undrafted = sum(late - early for (_, late), (_, early) in zip(after, before, strict=True))
    assert (actual_window.drafts, actual_window.accepted, actual_window.draft_tokens) == (
        len(new),
        sum(new),
        4 * len(new),
    )
    assert actual_window.steps == (len(new) + undrafted or None)
    if new:
        assert actual_window.acceptance_length == pytest.approx(
            1 + sum(actual_window.position_rates)
        )
        assert actual_window.acceptance_rate == pytest.approx(sum(actual_window.position_rates) / 4)
        assert list(actual_window.position_rates) == sorted(
            actual_window.position_rates, reverse=True
        )
        assert actual_window.tokens_per_step == pytest.approx(
            1 + actual_window.coverage * (actual_window.acceptance_length - 1)
        )
    assert decode(Window, encode(actual_window)) == actual_window


@few
@given(st.lists(engines, min_size=1, max_size=3))
def test_pooling_is_counting_everything_at_once(runs):
    zero = Counters.parse(exposition([([], 0)] * 4))
    windows = [
        Window.between(zero, Counters.parse(exposition((r + [([], 0)] * 4)[:4]))) for r in runs
    ]
    everything = [
        (
            [a for r in runs for accepted, _ in r for a in accepted],
            sum(u for r in runs for _, u in r),
        )
    ]
    at_once = Window.between(zero, Counters.parse(exposition(everything + [([], 0)] * 3)))
    assert Window.total(tuple(windows)) == at_once


@pytest.mark.parametrize("accepted", [8.0, 10.0, 12.0])
def test_there_were_no_fewer_steps_than_drafts(accepted):
    """Accepted tokens are counted before an answer is cut at its stop or limit."""
    cut = window(10.0, 3.0, 15.0, accepted)
    assert (cut.steps, cut.tokens_per_step, cut.coverage) == (3.0, 10.0 / 3.0, 1.0)
    assert window(10.0, 3.0, 15.0, 6.0).steps == 4.0


def test_requests_in_the_engine_and_their_latency_are_read_without_a_difference():
    text = """
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 2
vllm:num_requests_waiting{engine="0"} 1
vllm:e2e_request_latency_seconds_bucket{le="1.0"} 90
vllm:e2e_request_latency_seconds_bucket{le="5.0"} 99
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 100
vllm:e2e_request_latency_seconds_sum 150
vllm:e2e_request_latency_seconds_count 100
"""
    counters = Counters.parse(text)
    assert (counters.running, counters.waiting) == (5, 1)
    assert (counters.latency_s, counters.latency_p99_s) == (1.5, 5.0)
    assert Counters().latency_s is None
    assert Counters().latency_p99_s is None


def test_a_step_whose_request_was_over_before_its_output_was_read_is_counted_by_its_draft():
    """Engines drafted in 1 001 of 1 000 steps: no latency is observed of a step behind a stop string."""
    window = Window(
        *(2000.0, 0.0, 0.0, 10.0, 1001.0, 2002.0, 1000.0),
        per_position=(1000.0, 0.0),
        itl_count=990.0,
        ttft_count=10.0,
    )
    assert window.steps == 1001.0
    assert window.coverage == 1.0
    assert window.tokens_per_step == pytest.approx(2000 / 1001)
