"""The rules about answers over pairs of answers: faults are found, ties are not, and nothing passes unseen."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.experiment.answers import (
    Answer,
    AnswerCheck,
    AnswerRule,
    Level,
    Pair,
    Repeat,
    Reproduction,
    RuleCount,
    Scored,
    ToolCall,
)
from mpctl.gate.answer_forms import Invalid, excess_by_chance, invalid_kinds, loops
from mpctl.gate.answer_law import examine_law, likelihood_ratios
from mpctl.gate.answers import confirm, examine, open_findings, promises, refusing, to_confirm
from tests.simulation.answers import (
    FAULTS,
    Engine,
    ask_of,
    asks_of,
    matched,
    rendered,
    repeats_of,
    simulated_pass,
)

OWN = ask_of(1, "own")
IDS = (5, 6, 7, 8)


def answer(ids=IDS, ask=OWN, **changes):
    return replace(rendered(ask, Answer((1,), ids, finish="stop")), **changes)


def scored(ids=IDS, margins=(0.0,) * 4, gap=9.0, logprobs=None):
    """Scores with the margin of each token; ``gap`` to the next best where it is 0."""
    own = logprobs or tuple(-0.1 - margin for margin in margins)
    tops = tuple((o + m, o if m else o - gap) for o, m in zip(own, margins, strict=True))
    return Scored(
        own, tops, tuple(9 if margin else token for token, margin in zip(ids, margins, strict=True))
    )


def passed(*pairs, level=Level.IDS, **more):
    """A check of these pairs and of a control of equal ones, that are scored."""
    control = [Pair(n, ask_of(n, "own"), answer(), answer(), scored()) for n in range(100, 104)]
    return examine([*pairs, *control], fidelity="quick", level=level, **more)


def wrong(margin, number=0, ask=OWN, **changes):
    """A pair whose candidate differs in one token, by this margin."""
    ids = (5, 6, 9, 8)
    return Pair(
        number,
        ask,
        answer(ask=ask),
        answer(ids, ask, **changes),
        scored(),
        scored(ids, (0.0, 0.0, margin, 0.0)),
    )


def test_a_grammar_that_only_decoding_knows_does_not_widen_ties():
    masked = replace(OWN, body={**OWN.body, "response_format": {"type": "json_object"}})
    certain = answer(ask=masked, logprobs=(-0.06,) * 4, best=(-0.06,) * 4)
    pairs = [Pair(n, masked, certain, certain, scored(logprobs=(-2.9,) * 4)) for n in range(4)]
    assert passed(*pairs).tie == passed().tie


def test_a_tie_is_no_fault_and_a_wide_margin_is_one():
    tie, fault = passed(wrong(0.9)), passed(wrong(1.1))
    assert (tie.findings, tie.tied, tie.equal) == ((), 1, 4)
    (finding,) = fault.findings
    assert (finding.rule, finding.position, finding.token, finding.margin) == (
        AnswerRule.TOKENS,
        2,
        9,
        pytest.approx(1.1),
    )


def test_a_baseline_that_rounds_widens_the_tie():
    own = Pair(1, ask_of(1, "own"), answer(), answer(), scored(margins=(0.0, 0.7, 0.0, 0.0)))
    check = passed(own, wrong(1.3))
    assert check.tie.tau == pytest.approx(1.4) and not check.findings


def test_another_log_probability_of_a_token_near_a_tie_is_a_fault():
    (finding,) = passed(wrong(0.2, logprobs=(-0.1, -0.1, -2.0, -0.1))).findings
    assert finding.fault.startswith("a token with another log probability")
    (finding,) = passed(
        wrong(0.2, logprobs=(-0.1, -0.1, -0.3, -0.1), best=(-0.1, -0.1, 0.9, -0.1))
    ).findings
    assert finding.fault == "a token that the candidate itself finds unlikely"


SHAPES = (
    {"repetition_penalty": 1.2},
    {"presence_penalty": 0.5},
    {"frequency_penalty": -0.5},
    {"logit_bias": {"7": -100}},
    {"bad_words": ["no"]},
    {"allowed_token_ids": [5, 6, 8, 9]},
    {"structured_outputs": {"regex": "a+"}},
    {"guided_choice": ["a", "b"]},
)


@pytest.mark.parametrize(
    "ask",
    [ask_of(1, "tools"), *(replace(OWN, body={**OWN.body, **shape}) for shape in SHAPES)],
    ids=repr,
)
def test_of_an_answer_under_a_grammar_or_a_penalty_the_first_difference_alone_counts(ask):
    pair = wrong(30.0, ask=ask)
    near = replace(pair, scored=replace(pair.scored, logprobs=(-0.1, -0.1, -0.9, -40.0)))
    assert not passed(near).rules[AnswerRule.TOKENS].candidate
    assert passed(pair).rules[AnswerRule.TOKENS].candidate == 1


@pytest.mark.parametrize(
    "setting",
    [{"repetition_penalty": 1.0}, {"presence_penalty": 0}, {"top_p": 0.9}, {"stop": ["x"]}],
)
def test_a_setting_that_shapes_no_greedy_answer_leaves_every_token_to_the_scores(setting):
    pair = wrong(0.5, ask=replace(OWN, body={**OWN.body, **setting}))
    unlikely = replace(pair, scored=replace(pair.scored, logprobs=(-0.1, -0.1, -0.6, -40.0)))
    assert passed(unlikely).rules[AnswerRule.TOKENS].candidate == 1


@pytest.mark.parametrize("ids", [(5, 6), (5, 6, 7, 8, 9)])
def test_an_answer_that_ends_otherwise_needs_no_score(ids):
    assert passed(Pair(0, OWN, answer(), answer(ids))).rules[AnswerRule.TOKENS].candidate == 1
    assert (
        not passed(Pair(0, OWN, answer(), replace(answer(), ids=ids)))
        .rules[AnswerRule.TOKENS]
        .candidate
    )


def test_a_baseline_that_finds_its_own_tokens_unlikely_proves_nothing():
    own = Pair(1, ask_of(1, "own"), answer(), answer(), scored(margins=(0.0, 8.0, 0.0, 0.0)))
    count = passed(own, wrong(9.0)).rules[AnswerRule.TOKENS]
    assert count.missing.startswith("the baseline itself is broken") and not count.candidate


@pytest.mark.parametrize("level", [Level.PARSED, Level.TEXT])
def test_what_an_endpoint_does_not_tell_is_named(level):
    rules = passed(
        wrong(9.0), Pair(2, ask_of(2, "prose", temperature=1.0), answer(), answer()), level=level
    ).rules
    assert rules[AnswerRule.RENDERING].missing
    assert bool(rules[AnswerRule.TOKENS].missing) == bool(
        rules[AnswerRule.LAW].missing == "the endpoint gives no token ids"
    )


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"text": "w5 w6"}, "another text of the same tokens"),
        ({"reasoning": "hm"}, "other reasoning of the same tokens"),
        ({"tool_calls": (ToolCall("record", "{}"),)}, "other tool calls of the same tokens"),
        ({"finish": "length"}, "another finish reason of the same tokens"),
    ],
)
def test_equal_tokens_must_be_rendered_alike(changes, fault):
    check = passed(Pair(0, OWN, answer(), answer(**changes)))
    assert [f.fault for f in check.findings if f.rule is AnswerRule.RENDERING] == [fault]
    assert to_confirm(check) == (0,)


@pytest.mark.parametrize("stream", [False, True])
def test_a_streamed_answer_that_was_cut_off_may_be_rendered_in_several_ways(stream):
    ask = ask_of(1, "tools", stream=stream)
    cut = replace(answer(ask=ask), finish="length")
    check = passed(Pair(0, ask, cut, replace(cut, tool_calls=())))
    assert sum(f.rule is AnswerRule.RENDERING for f in check.findings) == (not stream)


BOOKED = ToolCall("book_room", '{"room": "a", "day": 3}')


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([ToolCall("book_room", '{"day": 3}')], "book_room without room"),
        ([ToolCall("book_room", "{}")], "book_room without day, room"),
        ([ToolCall("book_room", '{"room": "b", "day": 3}')], "book_room with other arguments"),
        ([ToolCall("book_room", '{"day": 3, "ro')], "book_room with other arguments"),
        ([ToolCall("book_room", '["day", 3]')], "book_room with other arguments"),
        ([ToolCall("book_table", BOOKED.arguments)], "book_table in place of book_room"),
        ([], "0 calls in place of 1"),
        ([BOOKED, BOOKED], "2 calls in place of 1"),
    ],
)
def test_calls_that_differ_are_named_where_the_request_is_generated(calls, words):
    for kind, said in (("tools", f" ({words})"), ("own", "")):
        tools = replace(ask_of(1, "tools"), kind=kind)
        right = answer(ask=tools, tool_calls=(BOOKED,))
        check = passed(Pair(0, tools, right, replace(right, tool_calls=tuple(calls))))
        faults = [f.fault for f in check.findings if f.rule is AnswerRule.RENDERING]
        assert faults == [f"other tool calls of the same tokens{said}"]


def test_spaces_in_the_arguments_are_no_fault():
    tools = ask_of(1, "tools")
    mine, theirs = (
        answer(ask=tools, tool_calls=(ToolCall("record", text),))
        for text in ('{"a": 1}', '{"a":1}')
    )
    assert not passed(Pair(0, tools, mine, theirs)).rules[AnswerRule.RENDERING].candidate


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_streamed_answer_must_be_the_same_if_it_finished(finish):
    streamed = replace(OWN, stream=True)
    right, broken = answer(finish=finish), answer(finish=finish, text="w5")
    for baseline, alone in ((right, 1), (broken, 0)):
        pairs = [Pair(0, OWN, right, right), Pair(1, streamed, baseline, broken)]
        found = [
            f for f in passed(*pairs).findings if f.fault.endswith("streamed") and not f.on_baseline
        ]
        assert len(found) == (alone if finish == "stop" else 0)


def test_a_turn_that_is_asked_again_belongs_to_the_sessions():
    again = replace(wrong(9.0), number=7)
    check = passed(Pair(0, OWN, answer(), answer()), again)
    assert {f.rule for f in check.findings} == {AnswerRule.SESSIONS}


def test_two_equal_surprising_samples_show_a_seed_used_again():
    same = ask_of(9, "same", temperature=1.0)
    for surprise, faults in ((-5.0, 1), (-0.5, 0)):
        told = scored(logprobs=(surprise,) * 4)
        pairs = [Pair(n, same, answer((n, 6, 7, 8)), answer(), scored=told) for n in range(2)]
        assert passed(*pairs).rules[AnswerRule.SEEDS].alone == faults
    both = [
        Pair(n, same, answer(), answer(), told, told)
        for n, told in enumerate([scored(logprobs=(-5.0,) * 4)] * 2)
    ]
    assert passed(*both).rules[AnswerRule.SEEDS].alone == 0  # the baseline does so as well


def test_answers_far_from_every_tie_are_settled():
    ids = tuple(range(5, 17))
    pair = Pair(0, OWN, answer(ids), answer(ids), scored(ids, (0.0,) * 12))
    assert list(passed(pair).settled) == [OWN.digest]
    near = replace(pair, own=scored(ids, (0.0,) * 12, gap=1.9))
    assert passed(near).settled == {}


def test_the_record_of_a_rule_that_is_gone_is_read():
    record = passed(Pair(0, OWN, answer(), answer())).to_record()
    record["rules"]["second start"] = {**record["rules"]["seeds"]}
    assert AnswerCheck.from_record(record) == passed(Pair(0, OWN, answer(), answer()))


def test_a_fault_that_shows_under_load_only_is_called_so():
    pair = wrong(9.0)
    right = replace(pair, candidate=pair.baseline, scored=None)
    for loaded, words in ((pair, Reproduction.LOADED), (right, Reproduction.TRANSIENT)):
        (finding,) = confirm(passed(pair), [pair], [Repeat(right, pair.scored, loaded)]).findings
        assert (finding.confirmed, finding.reproduction) == (True, words)


CALL = '{"rows": [1], "checked": true, "state": "new"}'


@pytest.mark.parametrize(
    ("kind", "changes", "invalid"),
    [
        ("tools", {}, None),
        ("tools", {"tool_calls": (ToolCall("record=ls", CALL),)}, Invalid.CALL),
        ("tools", {"tool_calls": (ToolCall("record", "{}"),)}, Invalid.CALL),
        ("tools", {"tool_calls": (ToolCall("record", "{"),)}, Invalid.CALL),
        ("tools", {"tool_calls": ()}, Invalid.CALL),
        ("tools", {"text": f"<tool_call>{CALL}"}, Invalid.LEAK),
        ("tools", {"finish": "length", "tool_calls": ()}, Invalid.CUT),
        ("json", {}, None),
        ("json", {"text": "{}"}, Invalid.JSON),
        ("json", {"text": "{"}, Invalid.JSON),
        ("own", {"error": "HTTP 500"}, Invalid.ERROR),
        ("own", {"ids": (1, 2, 3) * 9}, Invalid.LOOP),
        ("own", {"finish": "length"}, None),
    ],
)
def test_an_invalid_answer_is_of_one_kind(kind, changes, invalid):
    ask = ask_of(1, kind)
    assert invalid_kinds(ask, matched(ask, answer(ask=ask, **changes))) == (
        {invalid} if invalid else set()
    )


ODD = {
    "a search": {"tools": [{"type": "web_search"}]},
    "a tool of a server": {
        "tools": [{"type": "mcp", "server_label": "x"}, {"type": "custom", "custom": {"name": "y"}}]
    },
    "a function that is a text": {"tools": [{"type": "function", "function": "record"}]},
    "a function without a name": {"tools": [{"type": "function", "function": {"parameters": {}}}]},
    "a schema that is a text": {"response_format": {"type": "json_schema", "json_schema": "x"}},
    "a schema that is a list": {"response_format": {"type": "json_schema", "json_schema": ["x"]}},
    "a type that is a list": {"response_format": {"type": ["json_schema"]}},
}


@pytest.mark.parametrize("name", ODD)
def test_a_request_that_mpctl_cannot_judge_is_judged_valid_and_ends_nothing(name):
    pair = Pair(0, replace(OWN, body={**OWN.body, **ODD[name]}), answer(), answer())
    assert not invalid_kinds(pair.ask, pair.candidate)
    assert passed(pair).rules[AnswerRule.VALIDITY].candidate == 0


def test_a_schema_that_cannot_be_read_is_named_with_its_request():
    unread = Pair(7, OWN, answer(), answer(unread_schema="it refers to itself"))
    text = passed(unread).rules[AnswerRule.VALIDITY].unread
    assert text == "1 schemas cannot be read: request 7 (own): it refers to itself"


def test_more_tokens_than_asked_for_are_a_fault():
    assert invalid_kinds(OWN, answer(surplus=1)) == {Invalid.LONG}


def test_invalid_answers_refuse_from_eight_against_none():
    pairs = [Pair(n, OWN, answer(), Answer(error="HTTP 500")) for n in range(8)]
    repeats = [Repeat(Pair(n, OWN, answer(), answer())) for n in range(8)]
    assert not to_confirm(passed(*pairs[:7]))
    check = confirm(passed(*pairs), pairs, repeats)
    assert refusing(check, AnswerRule.VALIDITY)[0].reproduction is Reproduction.TRANSIENT
    assert excess_by_chance(8, 0) == 2**-8 and excess_by_chance(0, 3) == 1.0


@given(st.lists(st.integers(0, 50), min_size=24, max_size=60, unique=True))
def test_distinct_tokens_are_no_loop(tokens):
    assert not loops(tokens) and loops(tokens[:16] * 3)


def test_only_a_fault_that_the_second_score_shows_again_refuses():
    pair = wrong(4.0)
    check = passed(pair)
    assert not refusing(check, AnswerRule.TOKENS) and open_findings(check, AnswerRule.TOKENS)

    def confirmed(rescored, own=None, candidate=None):
        fresh = replace(pair, own=own or scored(), candidate=candidate or pair.candidate)
        return confirm(check, [pair], [Repeat(fresh, rescored)])

    again = refusing(confirmed(pair.scored), AnswerRule.TOKENS)
    assert [f.reproduction for f in again] == [Reproduction.ALONE]
    assert [
        f.reproduction
        for f in refusing(confirmed(pair.scored, candidate=answer()), AnswerRule.TOKENS)
    ] == [Reproduction.TRANSIENT]
    refuted = confirmed(scored(pair.candidate.ids, (0.0, 0.0, 0.3, 0.0)))
    assert not refusing(refuted, AnswerRule.TOKENS) and not open_findings(
        refuted, AnswerRule.TOKENS
    )
    broken = confirmed(pair.scored, own=scored(margins=(0.0, 5.0, 0.0, 0.0)))
    assert (
        not refusing(broken, AnswerRule.TOKENS)
        and open_findings(broken, AnswerRule.TOKENS)[0].on_baseline
    )


def test_a_record_of_a_check_has_no_text_of_an_answer():
    secret = "the user's own words"
    pair = Pair(
        0,
        OWN,
        answer(),
        answer(text=secret, reasoning=secret, tool_calls=(ToolCall(secret, secret),)),
    )
    check = passed(pair, wrong(4.0, 1, text=secret))
    assert check.findings and secret not in json.dumps(check.to_record())
    assert AnswerCheck.from_record(check.to_record()) == check


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.7, 1.0, 1.3]), st.sampled_from([0.9, 1.0]))
def test_samples_of_the_law_are_no_evidence_against_it(seed, temperature, top_p):
    engine = Engine(0.0, np.random.default_rng(seed))
    asks = [(n, ask_of(n, "prose", temperature=temperature, top_p=top_p)) for n in range(3)]
    scores = engine.score(engine.answer(asks), 20)
    result = examine_law([(n, temperature, top_p, told) for n, told in enumerate(scores)], 0.0)
    assert result.e_value < 200 and not result.outside


@pytest.mark.parametrize(
    ("temperature", "top_p", "spread"), [(1.0, 1.0, 0.0), (1.0, 1.0, 0.3), (0.7, 0.65, 0.0)]
)
def test_no_likelihood_ratio_gains_under_the_law(temperature, top_p, spread):
    """The expectation of each ratio under the law is at most 1, so their product is a supermartingale."""
    tops = tuple(math.log(p) for p in (0.5, 0.2, 0.2, 0.07, 0.01))
    law = {tops[0]: 0.5, tops[1]: 0.4, tops[3]: 0.07, math.log(0.001): 0.03}
    if top_p < 1.0:  # two of three are in the nucleus, of which the second has an equal beyond it
        both = [0.5 ** (1 / temperature), 0.2 ** (1 / temperature)]
        law = {tops[0]: both[0] / sum(both), tops[1]: both[1] / sum(both)}
    if spread:  # the law that rounding flattens, to second order
        squares = sum(p**2 for p in (0.5, 0.2, 0.2, 0.07, 0.03))
        each = {tops[0]: 0.5, tops[1]: 0.2, tops[3]: 0.07, math.log(0.001): 0.03}
        law = {top: p * (1 + 2 * spread**2 * (squares - each[top])) for top, p in law.items()}
    assert sum(law.values()) == pytest.approx(1.0)
    ratios = [
        np.exp(likelihood_ratios(Scored((top,), (tops,), (0,)), temperature, top_p, spread)[0])
        for top in law
    ]
    assert {r.shape for r in ratios} == {(1, 17)}
    assert (sum(p * r for p, r in zip(law.values(), ratios, strict=True)) <= 1.0 + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("token random", AnswerRule.TOKENS),
        ("session poisoned after its first turn", AnswerRule.SESSIONS),
        ("tokens taken greedily", AnswerRule.LAW),
    ],
)
def test_a_planted_fault_is_refused_by_its_rule(name, rule):
    fault = next(f for f in FAULTS if f.name == name)
    asks = asks_of(16, seed=3)
    pairs, _, _ = simulated_pass(fault, size=16, noise=0.03, seed=3)
    check = examine(pairs, fidelity="full", level=Level.IDS)
    assert refusing(
        confirm(check, pairs, repeats_of(fault, to_confirm(check), pairs, asks, 0.03)), rule
    )


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_equal_engines_are_not_refused(noise):
    pairs, _, _ = simulated_pass(None, size=16, noise=noise, seed=5)
    check = examine(pairs, fidelity="full", level=Level.IDS)
    check = confirm(
        check, pairs, repeats_of(None, to_confirm(check), pairs, asks_of(16, seed=5), noise)
    )
    assert not any(refusing(check, rule) for rule in AnswerRule)
    assert not any(count.missing for count in check.rules.values())


def test_evidence_counts_against_the_likeliest_rounding_of_the_law():
    """The control's spread is an estimate: engines whose rounding is half as large again are not refused."""
    engine = Engine(0.3, np.random.default_rng(3))
    asks = [(n, ask_of(n, "prose", temperature=0.7, top_p=0.9)) for n in range(150)]
    scores = engine.score(engine.answer(asks), 20)
    evidence = {
        spread: examine_law([(n, 0.7, 0.9, told) for n, told in enumerate(scores)], spread).e_value
        for spread in (0.0, 0.27, 0.33)
    }
    assert evidence[0.0] > 200 and max(evidence[0.27], evidence[0.33]) < 10


def test_sampled_requests_are_asked_again_only_while_they_hint_at_a_fault():
    def with_e_value(value):
        return AnswerCheck(
            "full", Level.IDS, 1, 1, rules={AnswerRule.LAW: RuleCount(1, e_value=value)}
        )

    assert [promises(with_e_value(value)) for value in (None, 0.1, 2.0, 2.5, 200.0, 201.0)] == [
        False,
        False,
        False,
        True,
        True,
        False,
    ]
