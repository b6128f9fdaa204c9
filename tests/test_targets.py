"""Names of accelerators."""

import importlib.util
from types import SimpleNamespace

import pytest
from jax.experimental import topologies

from jax_sentemb.errors import ConfigError
from jax_sentemb.planning.targets import describe_devices, parse_target


@pytest.mark.parametrize(
    ("text", "chips", "hosts", "topology"),
    [
        ("tpu:v5e-1", 1, 1, "v5e:1x1"),
        ("tpu:v5e-256", 256, 64, "v5e:16x16"),
        ("tpu:v5p-16", 8, 2, "v5p:2x2x2"),  # cores, two a chip
        ("tpu:v6e-8", 8, 2, "v6e:2x4"),
        ("tpu:2xv5e-16", 32, 8, "v5e:4x4"),
        ("v6e", 1, 1, "v6e:1x1"),
        ("v5p", 4, 1, "v5p:2x2x1"),  # the smallest slice
        ("v5e-16", 16, 4, "v5e:4x4"),
        ("h100", 1, 1, "1x1x1"),
        ("h100:8", 8, 1, "1x1x8"),
        ("h200:16", 16, 2, "1x2x8"),
    ],
)
def test_targets(text, chips, hosts, topology):
    found = parse_target(text)
    assert (found.chips, found.hosts, found.topology) == (chips, hosts, topology)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu:v5e-9", "1 to 64 slices of v5e that have 1, 4, 8, 16, 32, 64, 128, 256 chips"),
        ("tpu:v5p-4", "cores, two a chip"),
        ("tpu:0xv5e-4", "1 to 64 slices of v5e"),
        ("5000xv5e-256", "1 to 64 slices of v5e"),
        ("h100:12", "1 to 8 GPUs, or a multiple of 8"),
        ("h100:0", "1 to 8 GPUs"),
        ("a100", "is unknown: write one of tpu:v5e-16"),
    ],
)
def test_what_is_no_target(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_target(text)


@pytest.mark.parametrize(("text", "install"), [("tpu:v5e-8", "pip install libtpu"), ("h100", r"pip install 'jax\[cuda13\]'")])
def test_without_the_compiler_one_line_says_what_to_install(monkeypatch, text, install):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=install):
        describe_devices(parse_target(text))


@pytest.mark.parametrize("plugin", ["jax_cuda12_plugin", "jax_cuda13_plugin"])
def test_the_compiler_of_cuda_12_or_13_is_enough(monkeypatch, plugin):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == plugin else None)
    monkeypatch.setattr(topologies, "get_topology_desc", lambda name, platform, **_: SimpleNamespace(devices=(name, platform)))
    assert describe_devices(parse_target("h100")) == ["h100", "cuda"]
