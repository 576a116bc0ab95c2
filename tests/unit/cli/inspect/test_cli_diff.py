"""``mpctl diff``: 1 says that something differs, so that no error may say it."""

import pytest

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {token: t}}]
"""


def damaged(cli, _monkeypatch):
    path = cli.state / "local" / "default" / "qwen" / "desired.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"text": ')
    return "is damaged"


def unreachable(cli, _monkeypatch):
    path = cli.directory / "kubeconfig"
    path.write_text(KUBECONFIG)
    cli.env(MPCTL_KUBECONFIG=str(path), MPCTL_REQUEST_TIMEOUT="1s")
    return "does not answer"


def unexpected(_cli, monkeypatch):
    def fail(*_arguments, **_named):
        raise RuntimeError("of ours")

    monkeypatch.setattr("mpctl.app.session.open.open_session", fail)
    return "RuntimeError: of ours"


@pytest.mark.needs("local")
@pytest.mark.parametrize("cause", [damaged, unreachable, unexpected])
def test_an_error_is_no_difference(cli, monkeypatch, cause):
    said = cause(cli, monkeypatch)
    done = cli("diff", "qwen")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.needs("local")
def test_other_commands_keep_their_code(cli, monkeypatch):
    damaged(cli, monkeypatch)
    assert cli("preflight", "qwen", "--spec", "ngram").code == 1


def test_a_manifest_is_compared_with_a_change(cli):
    path = cli.directory / "deployment.yaml"
    path.write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: qwen}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - name: engine\n        image: vllm/vllm-openai:v0.33.0\n        args:\n        - m\n"
    )
    result = cli("diff", "-f", str(path), "--spec", "ngram")
    assert result.code == 1
    assert "--- qwen (in the file)" in result.out
    assert "+        - '--speculative-config=" in result.out
    assert cli("diff", "-f", str(path), "--spec", "none").code == 0
    without = cli("diff", "-f", str(path))
    assert without.code == 2
    assert "a manifest has no revisions" in without.err
