"""Nothing private is left behind: secrets and prompts that are planted in every input are searched in every output."""

import pytest

from .planted import DATABASE, KEY, PROMPT, SECRETS, TOKEN, CommandLines, files_with_finds, finds, write_prompts

QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "8")
# The manifest itself, which a rollback restores byte for byte: docs/privacy.md says so, the preflight warns.
MANIFESTS = ("desired.json", "revisions/")


@pytest.fixture
def planted(mpctl, tmp_path):
    """mpctl with a service whose manifest holds secrets in plain text, and a folder of its own for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mpctl.environment["TMPDIR"] = str(temporary)
    mpctl.environment["HF_TOKEN"] = TOKEN
    path = mpctl.manifest()
    text = path.read_text().replace(
        "        args: [",
        f"          - name: HF_TOKEN\n            value: {TOKEN}\n"
        f"          - name: DATABASE\n            value: postgresql://user:{DATABASE}@db/x\n"
        f'        args: ["--api-key={KEY}", ',
    )
    path.write_text(text)
    with CommandLines() as lines:
        mpctl("local", "up", "-f", str(path))
        yield mpctl
    assert lines.found == set()


def test_no_secret_and_no_prompt_is_left_behind(planted, tmp_path):
    prompts = f"users={write_prompts(tmp_path / 'prompts.jsonl')}"
    shown = []

    def run(*arguments, code=0):
        done = planted(*arguments, code=code)
        shown.append(f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    run("preflight", "--spec", "ngram")
    run("render", "--spec", "ngram", "-vv")
    run("diff", "--spec", "ngram", code=1)
    run("rollout", "--spec", "ngram", "--prompts", prompts, *QUICK, "-v", "-v", "--debug")
    run("diff", code=1)
    run("bench", "demo", "--prompts", prompts, *QUICK, "--run", "run.json.gz")
    for form in ("html", "json"):
        run("report", "rollout-1", "-o", form)
    run("rollback")
    run("status", "-o", "json")
    run("history", "-o", "json")
    for form in ("json", "yaml"):
        run("history", "--revision", "1", "-o", form)
    run("local", "logs")
    lines = [line for text in shown for line in (text.splitlines() or [""]) if finds(line.encode())]
    assert lines == []
    leaked = {p: f for p, f in files_with_finds(planted.service).items() if not p.startswith(MANIFESTS)}
    assert leaked == {}
    assert files_with_finds(planted.state, (PROMPT,)) == {}
    assert files_with_finds(planted.environment["TMPDIR"]) == {}
    assert set(files_with_finds(tmp_path)) - {"service.yaml", "prompts.jsonl"} <= {
        f"state/local/default/demo/{p}" for p in files_with_finds(planted.service, SECRETS)
    }
    run("history", "--purge", "--yes")
    assert set(files_with_finds(planted.service)) == {"desired.json"}


def test_the_search_finds_what_is_there(tmp_path):
    """A search that finds nothing must be able to find something."""
    import base64
    import gzip
    import json

    packed = base64.b64encode(gzip.compress(json.dumps({"a": f"say {PROMPT} twice"}).encode()))
    (tmp_path / "object.json").write_bytes(json.dumps({"binaryData": {"record": packed.decode()}}).encode())
    assert files_with_finds(tmp_path) == {"object.json": {PROMPT}}
