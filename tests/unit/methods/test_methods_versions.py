"""Versions as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.methods.versions import parse_version, show


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.11.0", (0, 11, 0)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.29", (0, 29, 0)),
        ("0.12.0rc1", (0, 12, 0)),
        ("0.25.2.dev0+g752a3a504", (0, 25, 2)),
        ("v0.6.4.post1", (0, 6, 4)),
        ("vllm/vllm-openai:v0.23.0-cu129", (0, 23, 0)),
        ("registry.example:5000/team/vllm:0.19.1", (0, 19, 1)),
        ("vllm/vllm-openai:v0.23.0@sha256:" + "a" * 64, (0, 23, 0)),
        (" v0.20.0 ", (0, 20, 0)),
        ("rocm/vllm:rocm7.0_vllm_0.28.0_20260901", (0, 28, 0)),
        ("registry.example/serving:cuda13-vllm-v0.31.1", (0, 31, 1)),
        ("registry.example/serving:cu129-v0.30.0-py312", (0, 30, 0)),
        ("lmcache/vllm-openai:v0.3.9-vllm0.29.0", (0, 29, 0)),
        ("registry.example/vllm-ours:2.3.1", None),
        ("registry.example/vllm-ours:2026.09.01", None),
        ("registry.example/mirror/vllm:26.07-py3", None),
        ("vllm/vllm-openai:nightly-1a2b3c4", None),
        ("kserve/kserve-controller:v1.2.0", (1, 2, 0)),
        ("latest", None),
        ("vllm/vllm-openai:latest", None),
        ("kserve/huggingfaceserver:v0.15.2-gpu", None),
        ("lmcache/vllm-openai:v0.3.9", None),
        ("nvcr.io/nvidia/vllm:25.11-py3", None),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0", None),
        ("mcr.microsoft.com/aks/kaito/kaito-base:0.1.1", None),
        ("vllm/vllm-openai", None),
        ("registry.example:5000/team/vllm", None),
        ("vllm@sha256:" + "1" * 64, None),
        ("nightly-0.32", None),
        ("8", None),
        ("1a2b3c4", None),
        ("", None),
        (None, None),
    ],
)
def test_parse_version(text, version):
    assert parse_version(text) == version


@given(st.tuples(*[st.integers(0, 9999)] * 3))
def test_what_is_shown_is_read_back(version):
    assert parse_version(show(version)) == version
    image = parse_version(f"vllm/vllm-openai:v{show(version)}-cu129")
    assert image == (version if version < (1, 0, 0) else None)


@given(st.text(max_size=60))
def test_any_text_gives_a_version_or_none(text):
    assert parse_version(text) is None or len(parse_version(text)) == 3
