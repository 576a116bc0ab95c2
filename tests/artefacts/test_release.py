"""What a release consists of: its list of digests, the commands that it names, and the watch in its two forms."""

from __future__ import annotations

import hashlib
import re

import pytest
import yaml

from .conftest import REPOSITORY, make_release, run


def test_every_file_has_its_digest_and_every_named_file_exists(release):
    sums = dict(
        line.split("  ")[::-1] for line in release.file("SHA256SUMS").read_text().splitlines()
    )
    names = {path.name for path in release.folder.iterdir()} - {"SHA256SUMS"}
    assert sums.keys() == names
    for name, digest in sums.items():
        assert hashlib.sha256(release.file(name).read_bytes()).hexdigest() == digest
    text = release.file("INSTALL.md").read_text() + release.file("mpctl.yaml").read_text()
    assert not re.search("@[A-Z]+@", text)
    named = set(re.findall(rf"{re.escape(release.address)}(\S+)", text))
    assert len(named) == 5
    assert named <= names
    assert f"- uses: {REPOSITORY}@v{release.version}\n" in text


def test_the_chart_installs_the_objects_of_the_base(release, helm, tmp_path):
    words = release.command("helm")
    assert words[:2] == ["helm", "install"]
    rendered = run(helm, "template", *words[2:-1], cwd=tmp_path).stdout
    assert words[-1] == "--create-namespace"
    base = release.file("watch.yaml").read_text()
    image = f"image: ghcr.io/{REPOSITORY}:{release.version}"
    records = list(yaml.safe_load_all(base.replace("image: mpctl\n", f"{image}\n")))
    without_namespace = [record for record in records if record["kind"] != "Namespace"]
    assert len(without_namespace) == len(records) - 1
    assert by_name(yaml.safe_load_all(rendered)) == by_name(without_namespace)


def by_name(records):
    return sorted(records, key=lambda record: (record["kind"], record["metadata"]["name"]))


@pytest.mark.parametrize("repository", ["", "acme", "acme/mpctl/other", "acme/mpctl; true"])
def test_a_release_without_a_repository_is_refused(repository, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    git = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_DIR": str(tmp_path)}
    done = make_release(tmp_path / "dist", REPOSITORY=repository, **git)
    assert done.returncode == 2
    assert "set REPOSITORY to OWNER/NAME" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_folder_with_other_files_is_not_removed(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    done = make_release(tmp_path)
    assert done.returncode == 2
    assert "holds something else than a release" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"
