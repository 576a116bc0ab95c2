"""The signed verdict of a rollout on scripted engines, through the command line: signed at promotion, verified with the
public key alone, refused once the service is another."""

import json
import shutil
from base64 import b64decode

import pytest
from signed import write_keys

from .conftest import Mpctl, environment_in

SMALL = ("--requests", "4", "--repeats", "8", "--max-tokens", "24", "--fidelity", "off")


@pytest.fixture
def keys(up):
    """A key pair as files in the directory of the commands: (private, public)."""
    write_keys(up.directory)
    return "key.pem", "key.pub"


def statements_in(path):
    return [
        json.loads(b64decode(json.loads(line)["payload"])) for line in path.read_text().splitlines()
    ]


def test_a_promotion_is_signed_and_verifies_until_the_service_changes(up, keys):
    private, public = keys
    (up.directory / "traffic.jsonl").write_text(
        "".join(
            json.dumps({"prompt": f"PLANTED-PROMPT {n} say the alphabet"}) + "\n" for n in range(64)
        )
    )
    up.environment["MPCTL_SIGN_WITH"] = private
    done = up(
        "rollout", "--spec", "ngram", *SMALL, "--prompts", "traffic.jsonl", "--yes",
        "--policy", up.policy(),
    )  # fmt: skip
    assert "the signed verdict is in demo-rollout-1.intoto.jsonl" in done.stderr
    bundle = up.directory / "demo-rollout-1.intoto.jsonl"
    figures, gate = statements_in(bundle)
    assert [s["name"] for s in figures["subject"]] == ["service before", "service after"]
    assert figures["predicate"]["unidentified"] == ["engine image", "target"]
    assert gate["predicate"]["result"] == "PASSED"
    assert gate["subject"] == figures["subject"]
    assert figures["predicate"]["cells"][0]["timePerTokenRatio"]["value"] < 1
    everything = json.dumps([figures, gate])
    assert "PLANTED-PROMPT" not in everything
    assert up.live_text() not in everything

    assert "live service: as promoted" in up("verify", bundle.name, "--key", public).stdout
    elsewhere = (
        up.directory / "elsewhere"
    )  # another home, which has neither the service nor its history
    elsewhere.mkdir()
    for name in (bundle.name, public):
        shutil.copy(up.directory / name, elsewhere)
    auditor = Mpctl(elsewhere, environment_in(elsewhere) | {"HOME": str(elsewhere)})
    verified = auditor.json("verify", bundle.name, "--key", public, "--offline")
    assert (verified["verdict"], verified["service"]) == ("promote", "default/demo")
    assert verified["liveService"] == "not compared"
    assert verified["setting"].startswith('--speculative-config{"method":"ngram"')
    again = up(
        "report",
        "rollout-1",
        "-o",
        "attestation",
        "--output-file",
        "b.intoto.jsonl",
    )
    assert "wrote b.intoto.jsonl" in again.stderr
    old = up("verify", bundle.name, "--key", public, "--max-age", "1s", code=9)
    assert "longer ago than allowed" in old.stderr

    up("rollback", "--yes")
    changed = up("verify", bundle.name, "--key", public, code=9)
    assert "service default/demo is not what rollout-1 promoted" in changed.stderr
    assert up("verify", bundle.name, "--key", public, "--offline").returncode == 0


def test_a_key_that_cannot_sign_stops_a_rollout_before_it_starts(up):
    (up.directory / "none.pem").write_text("no key")
    up.environment["MPCTL_SIGN_WITH"] = "none.pem"
    refused = up("rollout", "--spec", "ngram", *SMALL, "--yes", code=2)
    assert "none.pem: sign_with: not a usable private key" in refused.stderr
    assert not (up.service / "ledger.jsonl").exists()


def test_a_report_of_a_file_or_without_a_key_is_no_bundle(up, keys):
    assert "name it in the setting sign_with" in up("report", "-o", "attestation", code=2).stderr
    up("bench", "--spec", "ngram", *SMALL[:-2], "--run", "two.json.gz")
    up.environment["MPCTL_SIGN_WITH"] = keys[0]
    refused = up("report", "two.json.gz", "-o", "attestation", code=2)
    assert "name a rollout" in refused.stderr
