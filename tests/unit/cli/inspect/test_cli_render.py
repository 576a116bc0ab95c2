"""``mpctl render`` and ``preflight`` from a file: nothing is contacted, only the setting's bytes change."""

import ast
import difflib
from pathlib import Path

import pytest
import yaml

from mpctl.app.change import check

DATA = Path(__file__).parents[3] / "data" / "manifests"
KSERVE = DATA / "kserve-args.yaml"
SERVICES = {
    "kserve-args.yaml": "qwen3-8b",
    "modelplane-model-deployment-v2.yaml": None,
    "modelplane-model-deployment-baseline.yaml": None,
}


@pytest.fixture
def offline(monkeypatch):
    """A connection of any kind fails."""

    def refuse(*_args, **_more):
        raise AssertionError("something was contacted")

    monkeypatch.setattr("socket.socket.connect", refuse)


def changed(before, after):
    return [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]


@pytest.mark.parametrize("file", SERVICES)
def test_speculation_on_and_off_again_gives_the_same_bytes(cli, offline, file, tmp_path):
    name = SERVICES[file]
    arguments = [name] if name else []
    original = (DATA / file).read_text()
    on = cli(
        "render",
        *arguments,
        "-f",
        str(DATA / file),
        "--spec",
        "ngram",
        "--set",
        "num_speculative_tokens=3",
    )
    assert on.code == 0, on.err
    assert "num_speculative_tokens" in on.out
    lines = changed(original, on.out)
    assert all(
        ("speculative" in line or "num_speculative" in line)
        for line in lines
        if line.startswith("+")
    ), lines
    edited = tmp_path / "edited.yaml"
    edited.write_text(on.out)
    off = cli("render", *arguments, "-f", str(edited), "--spec", "none")
    baseline = cli("render", *arguments, "-f", str(DATA / file), "--spec", "none")
    assert off.code == baseline.code == 0
    assert off.out == baseline.out


def test_line_ends_and_other_documents_stay(cli, offline):
    file = DATA / "kserve-dotted-crlf.yaml"
    done = cli("render", "-f", str(file), "--spec", "ngram")
    assert done.code == 0, done.err
    assert done.out.count("\r\n") >= file.read_bytes().decode().count("\r\n") - 6
    assert "\n" not in done.out.replace("\r\n", "")


def test_what_the_file_already_says_comes_out_unchanged(cli, offline):
    text = KSERVE.read_text()
    done = cli("render", "qwen3-8b", "-f", str(KSERVE), "--spec", "none")
    assert done.out == text
    assert "already has" in done.err


def test_the_candidate_is_a_second_service_of_one_pod(cli, offline):
    done = cli("render", "qwen3-8b", "-f", str(KSERVE), "--spec", "ngram", "--candidate")
    assert done.code == 0, done.err
    (candidate,) = [d for d in yaml.safe_load_all(done.out) if d]
    assert candidate["metadata"]["name"] == "qwen3-8b-candidate"
    assert candidate["metadata"]["namespace"] == "chat"
    assert not [k for k in str(candidate["metadata"]).split("'") if k.startswith("mpctl.dev/")]
    predictor = candidate["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 1)
    assert any("speculative-config" in word for word in predictor["model"]["args"])
    assert candidate["metadata"]["annotations"] == {"serving.kserve.io/autoscalerClass": "none"}
    both = [d for d in yaml.safe_load_all(KSERVE.read_text() + done.out) if d]
    assert len(both) == len([d for d in yaml.safe_load_all(KSERVE.read_text()) if d]) + 1


def test_the_candidate_can_be_appended_to_a_file_without_a_last_line_end(cli, offline, tmp_path):
    file = tmp_path / "service.yaml"
    file.write_text(KSERVE.read_text().rstrip("\n"))
    arguments = ("qwen3-8b", "-f", str(file), "--spec", "ngram", "--candidate")
    before = list(yaml.safe_load_all(file.read_text()))
    with file.open("a") as appended:
        appended.write(cli("render", *arguments).out)
    assert list(yaml.safe_load_all(file.read_text()))[: len(before)] == before
    assert cli("render", "qwen3-8b", "-f", str(KSERVE), *arguments[3:]).out.startswith("---\n")


def test_a_model_deployment_has_no_candidate(cli, offline):
    file = DATA / "modelplane-model-deployment-v2.yaml"
    done = cli("render", "-f", str(file), "--spec", "none", "--candidate")
    assert (done.code, done.out) == (2, "")
    assert (
        "has no candidate; these kinds have one: InferenceService, LLMInferenceService, Deployment"
        in done.err
    )


def test_a_refusal_prints_no_manifest(cli, offline):
    done = cli(
        "render",
        "qwen3-8b",
        "-f",
        str(KSERVE),
        "--spec",
        "eagle3",
        "--draft",
        "org/head",
        "--set",
        "method=x",
    )
    assert done.code != 0
    assert done.out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "missing.yaml", "--spec", "ngram"], "missing.yaml: the manifest cannot be read"),
        (["-f", str(KSERVE), "--spec", "ngram"], "2 services found: qwen3-8b, qwen3-8b-container"),
        (["qwen", "-f", str(KSERVE), "--spec", "ngram"], 'service "qwen" not found'),
        (["-f", str(KSERVE)], "--spec"),
    ],
)
def test_bad_input(cli, offline, arguments, said):
    for command in ("render", "preflight"):
        done = cli(command, *arguments)
        assert (done.code, done.out) == (2, "")
        assert said in done.err


def test_preflight_of_a_file(cli, offline):
    done = cli("preflight", "qwen3-8b", "-f", str(KSERVE), "--spec", "ngram", "-o", "json")
    record = yaml.safe_load(done.out)
    assert record["kind"] == "Preflight"
    assert record["service"] == "chat/qwen3-8b"
    (finding,) = record["findings"]
    assert finding["reason"] == "answers are cut after 60 s by HTTPRoute qwen3-8b of KServe"
    assert finding["todo"].startswith("set spec.predictor.timeout: 1800")
    assert record["unchecked"]
    assert done.code == 0

    done = cli(
        "preflight",
        "qwen3-8b",
        "-f",
        str(KSERVE),
        "--spec",
        "ngram",
        "--refuse",
        "answers-cut",
        "-o",
        "json",
    )
    (finding,) = yaml.safe_load(done.out)["findings"]
    assert (finding["severity"], done.code) == ("refuse", 9)
    done = cli(
        "preflight", "qwen3-8b", "-f", str(KSERVE), "--spec", "ngram", "--refuse", "answer-cut"
    )
    assert done.code == 2 and "did you mean answers-cut" in done.err


def test_a_manifest_from_standard_input(cli, offline, monkeypatch):
    import io

    class Stdin:
        buffer = io.BytesIO(KSERVE.read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin())
    done = cli("render", "qwen3-8b-container", "-f", "-", "--spec", "ngram")
    assert done.code == 0, done.err
    assert "qwen3-8b-container" in done.out


HYBRID = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: chat, namespace: n}
spec:
  predictor:
    timeout: 1800
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.28.0
      args: [--model=Qwen/Qwen3.6-27B]
"""


def test_a_combination_that_is_known_to_fail_prints_no_manifest_unless_ignored(
    cli, offline, tmp_path
):
    (tmp_path / "s.yaml").write_text(HYBRID)
    render = ("render", "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    done = cli(*render)
    assert (done.code, done.out) == (9, "") and "known-bad-kb01" in done.err
    assert "ngram" in cli(*render, "--accept", "known-bad-kb01").out
    rows = tmp_path / "rows.yaml"
    rows.write_text("date: 2026-12-01\nsource: none\nmodels: {}\nrows: []\n")
    cli.env(MPCTL_KNOWN_BAD=str(rows))
    assert "ngram" in cli(*render).out


def test_the_list_of_known_bad_combinations_has_a_thread_for_each(cli):
    items = yaml.safe_load(cli("methods", "known-bad", "-o", "json").out)["items"]
    assert len(items) == 94 and all("#" in item["thread"] for item in items)


def test_overriding_a_finding_that_was_not_found_does_no_harm_and_an_unknown_one_is_refused(
    cli, offline, tmp_path
):
    (tmp_path / "s.yaml").write_text(HYBRID.replace("Qwen3.6-27B", "Qwen3-8B"))
    render = ("render", "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    for finding in ("known-bad-kb01", "engine-too-old", "kv-pool", "unknown-key", "requests-lost"):
        assert cli(*render, "--accept", finding).code == 0
    done = cli(*render, "--accept", "nonsense")
    assert (done.code, "unknown finding: nonsense" in done.err) == (2, True)


def test_every_finding_of_the_preflight_can_be_accepted(cli, service):
    package = Path(check.__file__).parents[2]
    files = [
        *package.glob("methods/**/*.py"),
        *package.glob("estimate/memory.py"),
        *package.glob("app/change/*.py"),
    ]
    calls = [
        node
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    ]
    made = [
        call.args[0] for call in calls if getattr(call.func, "id", "") == "Finding" and call.args
    ]
    ids = {
        part.value for first in made for part in ast.walk(first) if isinstance(part, ast.Constant)
    }
    names = sorted(ids - {"known-bad-"})
    accepted = [word for name in names for word in ("--accept", name)]
    assert len(names) > 15
    assert cli("preflight", "-f", service, "--spec", "ngram", *accepted).code == 0


@pytest.mark.parametrize(
    ("target", "draft", "finding"),
    [
        ("Qwen/Qwen3-8B", "meta-llama/Llama-3.2-1B-Instruct", "vocabulary-mismatch"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "draft-size"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "draft-size"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-Embedding-0.6B", "draft-no-text"),
    ],
)
def test_a_pair_of_models_that_cannot_work_is_named_without_their_files(
    cli, offline, tmp_path, target, draft, finding
):
    (tmp_path / "s.yaml").write_text(HYBRID.replace("Qwen/Qwen3.6-27B", target))
    asked = (
        "preflight",
        "-f",
        str(tmp_path / "s.yaml"),
        "--spec",
        "draft_model",
        "--draft",
        draft,
        "-o",
        "json",
    )
    found = yaml.safe_load(cli(*asked).out)["findings"]
    assert (finding, "refuse") in {(entry["id"], entry["severity"]) for entry in found}


@pytest.mark.parametrize(
    ("argument", "unread"),
    [("--config=/etc/vllm.yaml", "--config /etc/vllm.yaml"), ("$(EXTRA)", "variable EXTRA")],
)
def test_none_is_said_of_the_manifest_alone_where_more_is_not_read(
    cli, offline, tmp_path, argument, unread
):
    (tmp_path / "s.yaml").write_text(
        HYBRID.replace("[--model=Qwen/Qwen3.6-27B]", f"[--model=a/b, {argument}]")
    )
    done = cli("render", "-f", str(tmp_path / "s.yaml"), "--spec", "none")
    assert f"already has none in this manifest; not read: {unread}" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("target", "refused"), [("Qwen/Qwen3-8B", True), ("Qwen/Qwen3-Next-80B-A3B-Instruct", False)]
)
def test_mtp_on_a_family_without_its_layers_is_refused_by_the_name(
    cli, offline, tmp_path, target, refused
):
    (tmp_path / "s.yaml").write_text(HYBRID.replace("Qwen/Qwen3.6-27B", target))
    done = cli("preflight", "-f", str(tmp_path / "s.yaml"), "--spec", "mtp", "-o", "json")
    found = {entry["id"]: entry["severity"] for entry in yaml.safe_load(done.out)["findings"]}
    assert (found.get("mtp-layers") == "refuse") == refused


def test_leaving_a_staged_draft_says_which_storage_stays(cli, offline, tmp_path):
    text = HYBRID.replace(
        "    containers:\n",
        "    storageUris: [{uri: hf://a/b, mountPath: /mnt/models}]\n    containers:\n",
    )
    text = text.replace(
        "[--model=Qwen/Qwen3.6-27B]", "[--model=/mnt/models, --speculative-config.method=ngram]"
    )
    (tmp_path / "s.yaml").write_text(text)
    done = cli("render", "-f", str(tmp_path / "s.yaml"), "--spec", "none")
    assert done.code == 0, done.err
    assert "storageUris stays with hf://a/b" in done.err
