"""No message quotes a user's prompt, however a log writes it."""

import json

import pytest

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.platform.local.meter import LocalMeter
from mpctl.platform.quotations import without_texts
from mpctl.rollout.ports import Endpoint

PROMPT = "Mrs. Müller, born 3 May,\nIBAN DE02 1203 0000"


@pytest.mark.parametrize("quote", [str, repr, json.dumps, lambda text: json.dumps([{"prompt": text}]), lambda t: t[4:]])
def test_a_line_ends_where_it_quotes_a_prompt(quote):
    message = f"a first line\nValueError: bad request: {quote(PROMPT)} and more"
    clean = without_texts(message, [PROMPT])
    assert "a first line" in clean and "ValueError: bad request: " in clean
    assert not any(word in clean for word in ("ller, born", "DE02", "May", "1203"))


def test_a_message_without_a_quotation_stays():
    message = "OSError: http://10.0.0.1:8080/metrics does not answer\nuse --load local"
    assert without_texts(message, [PROMPT, "hello"]) == message


class Failing:
    """A load client that fails in its second block, and whose log quotes the first one."""

    sent = 0

    def send(self, *_, **__):
        self.sent += 1
        if self.sent == 1:
            return
        raise MpctlError(f"vllm bench serve failed: {PROMPT!r}", hint=f"its last lines:\nsent {json.dumps(PROMPT)}")


def test_what_a_load_client_fails_with_is_told_without_prompts():
    meter = LocalMeter(Failing(), "/")
    endpoint, cell = Endpoint("http://x", "m", ""), Cell("chat", 1)
    meter.send(endpoint, (PROMPT,), cell, 8)
    with pytest.raises(MpctlError) as failed:
        meter.send(endpoint, ("another prompt, of this block",), cell, 8)
    assert failed.value.message == str(failed.value) == "vllm bench serve failed: '... (a prompt is left out)"
    assert failed.value.hint == 'its last lines:\nsent "... (a prompt is left out)'
