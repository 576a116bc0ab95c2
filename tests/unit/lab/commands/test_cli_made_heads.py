"""``--draft made:NAME``: a head that was trained for the service."""

from __future__ import annotations

import json

import pytest

from mpctl.lab.drafts.card import Target

made_heads = pytest.importorskip("made_heads")  # of services that mpctl/local runs
TARGET = Target("model")


@pytest.fixture
def state(cli):
    """The state of a service of this machine."""
    return made_heads.local_service(cli.directory)


def test_a_trained_head_is_named_by_its_name(cli, state):
    weights = made_heads.trained_head(state, "demo-2", TARGET)
    made_heads.trained_head(state, "demo-1", TARGET)
    answer = json.loads(
        cli("preflight", "demo", "--spec", "eagle3", "--draft", "made:demo-2", "-o", "json").out
    )
    assert answer["draft"] == answer["speculation"]["model"] == str(weights)
    assert (
        f'"model": "{weights}"'
        in cli("render", "demo", "--spec", "eagle3", "--draft", "made:demo-2").out
    )


@pytest.mark.parametrize("command", [("preflight",), ("rollout", "--yes"), ("bench",)])
@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("demo-9", "'demo-9' is no head of demo"),
        ("demo-3", "the training of demo-3 has no card yet"),
        ("", "''"),
    ],
)
def test_a_head_that_is_not_there_is_an_error_that_names_those_that_are(
    cli, state, command, head, says
):
    made_heads.trained_head(state, "demo-1", TARGET)
    made_heads.begun_training(state, "demo-3", TARGET)
    verb, *options = command
    done = cli(verb, "demo", *options, "--spec", "eagle3", "--draft", f"made:{head}")
    assert done.code == 2
    assert says in done.err
    assert "trained heads: demo-1; 'mpctl drafts list demo' shows them all" in done.err


def test_without_any_head_the_error_says_so(cli, state):
    assert (
        "trained heads: none"
        in cli("preflight", "demo", "--spec", "eagle3", "--draft", "made:demo-1").err
    )


def test_a_manifest_in_a_file_has_no_heads(cli, service):
    done = cli("render", "-f", service, "--spec", "eagle3", "--draft", "made:chat-1")
    assert done.code == 2
    assert "heads are trained for running services alone" in done.err


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target("another"), "model another, and model serves"),
        (Target("model", "v2"), "revision v2, and an unknown one serves"),
        (Target("model", digest="0" * 64), "weights 000000000000, and "),
    ],
)
@pytest.mark.parametrize("draft", ["made:demo-1", "the folder"])
def test_a_head_for_another_target_is_refused(cli, state, target, says, draft):
    (cli.directory / "model").mkdir(exist_ok=True)
    (cli.directory / "model" / "model.safetensors").write_bytes(b"weights of the target")
    weights = made_heads.trained_head(state, "demo-1", target)
    done = cli(
        "preflight",
        "demo",
        "--spec",
        "eagle3",
        "--draft",
        str(weights) if draft == "the folder" else draft,
    )
    assert done.code == 9
    assert f"demo-1 was trained for another target: {says}" in done.out + done.err
    before = (state / "desired.json").read_bytes()
    assert cli("rollout", "demo", "--yes", "--spec", "eagle3", "--draft", "made:demo-1").code == 9
    assert (state / "desired.json").read_bytes() == before


def test_a_head_that_was_trained_on_the_measurements_prompts_is_refused(cli, state):
    made_heads.trained_head(state, "demo-1", TARGET, ("fix the loop", "name the file"))
    prompts = cli.directory / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": text}) + "\n" for text in ("fix  the loop", *"abcdefghijklm"))
    )
    rollout = ("rollout", "demo", "--yes", "--spec", "eagle3", "--draft", "made:demo-1")
    done = cli(*rollout, "--prompts", str(prompts))
    assert done.code == 9
    assert "demo-1 was trained on 1 of the measurement's 14 prompts" in done.out + done.err
    assert "fix the loop" not in done.out + done.err
    assert (
        "trained-on-these-prompts" not in cli("rollout", "demo", "--yes", *rollout[3:]).err
    )  # built-in prompts


@pytest.fixture
def elsewhere(cli, state):
    """A head that another tool trained."""
    head = cli.directory / "elsewhere"
    head.mkdir()
    (head / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64})
    )
    (head / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (cli.directory / "model").mkdir(exist_ok=True)
    (cli.directory / "model" / "model.safetensors").write_bytes(b"weights of the target")
    return head


ROLLOUT = ("rollout", "demo", "--yes", "--spec", "eagle3", "--draft", "elsewhere")


def test_a_card_is_written_for_a_head_made_elsewhere_and_refuses_its_training_prompts(
    cli, elsewhere
):
    prompts = cli.directory / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"planted {n}"}) + "\n" for n in range(14)))
    known = ("--target", "model", "--made-with", "SpecForge 0.2", "--prompts", str(prompts))
    assert cli("drafts", "card", "elsewhere", *known).code == 0
    text = (elsewhere / "card.json").read_text()
    card = json.loads(text)
    assert (card["name"], card["method"], card["made_with"]) == (
        "elsewhere",
        "eagle3",
        "SpecForge 0.2",
    )
    assert (len(card["target"]["digest"]), len(card["training_digests"])) == (64, 14)
    assert "planted" not in text
    done = cli(*ROLLOUT, "--prompts", str(prompts))
    assert done.code == 9
    assert "elsewhere was trained on 14 of the measurement's 14 prompts" in done.out + done.err
    assert "stale-card" not in done.out + done.err
    (cli.directory / "model" / "model.safetensors").write_bytes(b"weights of its next version")
    assert "[stale-card] elsewhere was trained for another target: weights" in cli(*ROLLOUT).err


def test_two_cards_of_one_training_set_share_no_digest(cli, elsewhere):
    prompts = cli.directory / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"planted {n}"}) + "\n" for n in range(14)))
    digests = []
    for _ in range(2):
        assert (
            cli("drafts", "card", "elsewhere", "--target", "model", "--prompts", str(prompts)).code
            == 0
        )
        digests += json.loads((elsewhere / "card.json").read_text())["training_digests"]
        (elsewhere / "card.json").unlink()
    assert len(set(digests)) == 28


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gone", "--target", "model"), "gone holds no *.safetensors"),
        (("elsewhere",), "--target: names the model that the head was trained for"),
        (("elsewhere", "--target", "model", "--spec", "ngram"), "ngram has no head to train"),
        (("model", "--target", "model"), "card.json exists"),
    ],
)
def test_a_card_that_cannot_be_written_is_an_error(cli, elsewhere, arguments, says):
    (cli.directory / "model" / "card.json").write_text("{}")
    done = cli("drafts", "card", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_card_beside_a_head_made_elsewhere_counts(cli, service):
    head = cli.directory / "elsewhere"
    head.mkdir()
    (head / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64})
    )
    card = {
        "name": "elsewhere",
        "method": "eagle3",
        "target": {"model": "org/other"},
        "head_digest": "ab",
    }
    (head / "card.json").write_text(json.dumps(card))
    options = ("preflight", "-f", service, "--spec", "eagle3", "--draft", "elsewhere")
    assert (
        "[stale-card] elsewhere was trained for another target: model org/other"
        in cli(*options).err
    )
    for text in ("[]", "[" * 200_000):
        (head / "card.json").write_text(text)
        done = cli(*options)
        assert done.code == 2
        assert "card.json: this is no card of a head" in done.err
