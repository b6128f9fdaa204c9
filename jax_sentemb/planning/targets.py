"""Find accelerators by name: their data sheets, and descriptions of their devices for a compiler."""

import importlib.util
import os
import re
from typing import Any, NamedTuple

from jax_sentemb.errors import ConfigError

GB, TERA = 1e9, 1e12


class Chip(NamedTuple):
    """The data sheet of a chip; rates are peaks of one chip."""

    bfloat16: float  # FLOP/s of dense products with float32 sums
    float32: float  # FLOP/s; a TPU computes a float32 product in six bfloat16 passes
    memory: float  # bytes that a program can use
    bandwidth: float  # bytes/s of that memory
    network: float  # bytes/s that a chip sends to its neighbours, all links together
    between_hosts: float  # bytes/s that a chip sends to another machine, if `network` does not reach it
    per_host: int  # chips of one machine in a large slice
    units: int  # of one chip, as the vendor's name of a slice counts them: a v5p has 2 (cores)
    source: str


CLOUD = "https://docs.cloud.google.com/tpu/docs/"
NVIDIA = "https://www.nvidia.com/en-us/data-center/"
# memory: the compiler reserves a part of the 16 GiB of a v5e and of the 32 GiB of a v6e for itself. JAX allocates 75 % of a GPU's
# memory unless XLA_PYTHON_CLIENT_MEM_FRACTION is set. between_hosts: a network card of 400 Gbit/s for each GPU (DGX).
CHIPS = {
    "v5e": Chip(197 * TERA, 197 / 6 * TERA, 15.75 * 2**30, 819 * GB, 200 * GB, 200 * GB, 4, 1, CLOUD + "v5e"),
    "v5p": Chip(459 * TERA, 459 / 6 * TERA, 95 * 2**30, 2765 * GB, 600 * GB, 600 * GB, 4, 2, CLOUD + "v5p"),
    "v6e": Chip(918 * TERA, 918 / 6 * TERA, 31.25 * 2**30, 1600 * GB, 400 * GB, 400 * GB, 4, 1, CLOUD + "v6e"),
    "h100": Chip(989 * TERA, 67 * TERA, 0.75 * 80e9, 3350 * GB, 450 * GB, 50 * GB, 8, 1, NVIDIA + "h100"),
    "h200": Chip(989 * TERA, 67 * TERA, 0.75 * 141e9, 4800 * GB, 450 * GB, 50 * GB, 8, 1, NVIDIA + "h200"),
}
TPUS = ("v5e", "v5p", "v6e")
FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8", 1024: "8x8x16"}
MAX_SLICES = 64
EXAMPLES = "tpu:v5e-16, tpu:v5p-128, v6e (the smallest slice), tpu:2xv5e-256 (two slices), h100:8, h200"
COMPILERS = {"tpu": ("libtpu",), "cuda": ("jax_cuda13_plugin", "jax_cuda12_plugin")}  # any of these packages
INSTALL = {
    "tpu": "the TPU compiler is not installed: pip install libtpu (0.5 GB; no TPU is needed)",
    "cuda": "the GPU compiler is not installed: pip install 'jax[cuda13]' (the extra plan-cuda; 4 GB, no GPU is needed)",
}


class Target(NamedTuple):
    """A slice of TPUs or machines with GPUs."""

    name: str
    platform: str  # "tpu" or "cuda"
    chip: Chip
    chips: int
    topology: str  # as the compiler names it
    slices: int = 1

    @property
    def hosts(self) -> int:
        """Return the number of machines that the chips are in."""
        return -(-self.chips // self.chip.per_host)


def parse_target(text: str) -> Target:
    """Return the target that `text` names, for instance tpu:v5e-16, v6e (the smallest slice) or h100:8.

    Raises:
        ConfigError: The target is unknown.
    """
    if match := re.fullmatch(r"(?:tpu:)?(?:(\d+)x)?(v5e|v5p|v6e)(?:-(\d+))?", text):
        slices, generation = int(match[1] or 1), match[2]
        chip, shapes = CHIPS[generation], CUBES if generation == "v5p" else FLAT
        chips, remainder = divmod(int(match[3] or min(shapes) * chip.units), chip.units)
        if remainder or chips not in shapes or not 1 <= slices <= MAX_SLICES:
            sizes = ", ".join(str(size * chip.units) for size in shapes)
            counts = "cores, two a chip" if chip.units == 2 else "chips"
            raise ConfigError(f"--target {text}: 1 to {MAX_SLICES} slices of {generation} that have {sizes} {counts}")
        return Target(text, "tpu", chip, slices * chips, f"{generation}:{shapes[chips]}", slices)
    if match := re.fullmatch(r"(h100|h200)(?::(\d+))?", text):
        chip, count = CHIPS[match[1]], int(match[2] or 1)
        if count < 1 or (count > chip.per_host and count % chip.per_host):
            raise ConfigError(f"--target {text}: give 1 to {chip.per_host} GPUs, or a multiple of {chip.per_host}")
        hosts = -(-count // chip.per_host)
        return Target(text, "cuda", chip, count, f"1x{hosts}x{count // hosts}")
    raise ConfigError(f"--target {text} is unknown: write one of {EXAMPLES}")


def describe_devices(target: Target) -> list[Any]:
    """Return devices of the target for a mesh. Nothing can run on them.

    Raises:
        ConfigError: The compiler of the target is missing; the message contains the command that installs it.
    """
    if all(importlib.util.find_spec(package) is None for package in COMPILERS[target.platform]):
        raise ConfigError(f"--target {target.name}: {INSTALL[target.platform]}")
    from jax.experimental import topologies

    if target.platform == "cuda":
        return list(topologies.get_topology_desc(target.name, "cuda", target_config=_gpu(target), topology=target.topology).devices)
    # The values that libtpu would otherwise request from a TPU machine.
    surroundings = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_MIN_LOG_LEVEL": "3",
        "TPU_STDERR_LOG_LEVEL": "3",
    }
    for name, value in surroundings.items():
        os.environ.setdefault(name, value)
    options = {"num_slices": target.slices} if target.slices > 1 else {}
    return list(topologies.get_topology_desc(platform="tpu", topology_name=target.topology, **options).devices)


def _gpu(target: Target) -> str:
    """Return XLA's description of a Hopper GPU (GpuTargetConfigProto as text), from the data sheet and CUDA's device properties."""
    name, memory = {
        "h100": ("NVIDIA H100 80GB HBM3", 84942979072),
        "h200": ("NVIDIA H200", 150754820096),
    }[target.name.partition(":")[0]]
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {int(target.chip.bandwidth)} l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: {memory}
  shared_memory_per_block_optin: 232448 cuda_compute_capability {{ major: 9 }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 device_vendor: "NVIDIA Corporation" name: "{name}"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""
