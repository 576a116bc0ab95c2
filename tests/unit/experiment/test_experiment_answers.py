"""Scores of a candidate's answer by an arm that is no longer there."""

from mpctl.experiment.answers import Answer, Scored, scored_by

ROWS = ({1: -0.1, 2: -2.1}, {3: 0.0, 4: -0.75, 5: -9.0}, {6: 0.0, 7: -20.0})


def test_tokens_are_scored_up_to_the_first_other_one():
    baseline = Answer(ids=(1, 3, 6), alternatives=ROWS)
    scored = scored_by(baseline, Answer(ids=(1, 4, 6)))
    assert scored == Scored((-0.1, -0.75), ((-0.1, -2.1), (0.0, -0.75, -9.0)), (1, 3))
    assert scored.margins == (0.0, 0.75)


def test_a_token_beyond_the_alternatives_is_at_most_as_likely_as_the_last_of_them():
    scored = scored_by(Answer(ids=(1, 3, 6), alternatives=ROWS), Answer(ids=(1, 99)))
    assert scored is not None and scored.margins == (0.0, 9.0)


def test_equal_answers_and_answers_without_alternatives_have_no_score():
    baseline = Answer(ids=(1, 3, 6), alternatives=ROWS)
    assert scored_by(baseline, Answer(ids=(1, 3, 6))) is None
    assert scored_by(Answer(ids=(1, 3)), Answer(ids=(1, 4))) is None
