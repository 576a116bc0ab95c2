"""No message quotes a user's prompt, however a log writes it."""

import json

import pytest

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.platform.meter import HttpMeter
from mpctl.rollout.ports import Endpoint, LoadOrder
from mpctl.safe_text import without_requests, without_texts

PROMPT = "Mrs. Müller, born 3 May,\nIBAN DE02 1203 0000"


@pytest.mark.parametrize(
    "quote", [str, repr, json.dumps, lambda text: json.dumps([{"prompt": text}]), lambda t: t[4:]]
)
def test_a_line_ends_where_it_quotes_a_prompt(quote):
    message = f"a first line\nValueError: bad request: {quote(PROMPT)} and more"
    clean = without_texts(message, [PROMPT])
    assert "a first line" in clean and "ValueError: bad request: " in clean
    assert not any(word in clean for word in ("ller, born", "DE02", "May", "1203"))


def test_a_message_without_a_quotation_stays():
    message = "OSError: http://10.0.0.1:8080/metrics does not answer\nset MPCTL_LOAD=local"
    assert without_texts(message, [PROMPT, "hello"]) == message


@pytest.mark.parametrize("quoted", ["Mrs. Müll", "3 May", "DE02 1203", "Müller,", "ler, born..."])
@pytest.mark.parametrize("mark", "'\"`")
def test_a_few_characters_of_a_prompt_between_quotation_marks_are_left_out(quoted, mark):
    line = f"ValueError: unexpected token in 'x' near {mark}{quoted}{mark} at 7"
    assert (
        without_texts(line, [PROMPT])
        == f"ValueError: unexpected token in 'x' near {mark}... (a prompt is left out)"
    )


def test_a_prompt_of_one_word_is_left_out_whole_and_names_that_prompts_contain_stay():
    assert (
        without_texts("bad prompt 'hello'", ["hello"]) == "bad prompt '... (a prompt is left out)"
    )
    message = "KeyError: 'model' of '/v1/models', not 'a b', '8192' or \"born\""
    assert without_texts(message, ["the model at /v1/models was born with 8192"]) == message


class Failing:
    """A load client that fails in its second block, and whose log quotes the first one."""

    sent = 0

    def send(self, *_, **__):
        self.sent += 1
        if self.sent == 1:
            return
        raise MpctlError(
            f"the load client failed: {PROMPT!r}",
            hint=f"its last lines:\nsent {json.dumps(PROMPT)}",
        )


def test_what_a_load_client_fails_with_is_told_without_prompts():
    meter = HttpMeter(Failing(), "/")
    endpoint, cell = Endpoint("http://x", "m"), Cell("chat", 1)
    meter.send(endpoint, LoadOrder((PROMPT,), cell, 8))
    with pytest.raises(MpctlError) as failed:
        meter.send(endpoint, LoadOrder(("another prompt, of this block",), cell, 8))
    assert (
        failed.value.message
        == str(failed.value)
        == "the load client failed: '... (a prompt is left out)"
    )
    assert failed.value.hint == 'its last lines:\nsent "... (a prompt is left out)'


LOGGED = (
    "DEBUG [logger.py:55] Request cmpl-1 details: prompt: 'Error: my secret', prompt_token_ids: None.",
    'DEBUG [logger.py:75] Request N/A JSON body: {"prompt": "Error: my secret"}',
    "INFO [logger.py:60] Received request cmpl-1: prompt: 'Error: my secret', params: SamplingParams(n=1)",
    "INFO [logger.py:109] Generated response cmpl-1 (streaming complete): output: 'my secret', finish_reason: stop",
)


def test_lines_of_an_engines_log_that_hold_requests_or_answers_are_left_out():
    others = ("INFO Received request cmpl-1: params: SamplingParams(n=1)", "ValueError: no memory")
    log = "\n".join([*LOGGED[:2], *others, *LOGGED[2:]])
    assert without_requests(log) == "\n".join(others)
