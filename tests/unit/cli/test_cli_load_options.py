"""Where the load client runs: as asked, as it was planned, or as the platform has it."""

import pytest

from mpctl.cli.load_options import load_of
from mpctl.cli.main import run
from mpctl.errors import InputError


@pytest.mark.parametrize(
    ("asked", "platform", "unfinished", "where"),
    [
        ("auto", "kubernetes", None, "job"),
        ("auto", "local", None, "local"),
        ("auto", "kubernetes", "local", "local"),
        ("local", "kubernetes", "job", "local"),
        ("job", "kubernetes", "local", "job"),
    ],
)
def test_where(asked, platform, unfinished, where):
    assert load_of(asked, platform, unfinished=unfinished) == where


def test_no_job_without_a_cluster():
    with pytest.raises(InputError, match="--load: there is no cluster to run a Job in"):
        load_of("job", "local")


def test_a_server_at_an_address_is_measured_from_here(capsys):
    assert run(["bench", "--url", "http://127.0.0.1:1", "--load", "job"]) == 2
    assert "--load: there is no cluster to run a Job in" in capsys.readouterr().err
