"""Secrets never reach what is shown or kept."""

import pytest

from mpctl.manifest import redacted


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key=k1", "--port", "1"], ("--api-key=<hidden>", "--port", "1")),
        (["--api-key", "k1", "k2", "--model", "m"], ("--api-key", "<hidden>", "<hidden>", "--model", "m")),
        (["--hf-token", "t"], ("--hf-token", "<hidden>")),
        (["--api_key=k"], ("--api_key=<hidden>",)),
        (["--ssl-keyfile-password", "p"], ("--ssl-keyfile-password", "<hidden>")),
        (["--tokenizer", "m", "--max-num-batched-tokens=9"], ("--tokenizer", "m", "--max-num-batched-tokens=9")),
        (["serve", "m", "--enforce-eager"], ("serve", "m", "--enforce-eager")),
    ],
)
def test_values_of_secret_flags_are_hidden(arguments, shown):
    assert redacted(arguments) == shown
