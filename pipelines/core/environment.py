"""The environment of a run: code, packages and machine."""

import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from pipelines.core.console import printable
from pipelines.core.errors import UserError
from pipelines.core.run import Code, Machine

PACKAGES = ("highway-keras", "keras", "tensorflow", "tensorflow-cpu", "jax", "numpy", "tensorflow-datasets", "pillow")
# CPU features that decide which number format is fast, and whether two timings are comparable.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16", "asimd", "bf16", "sve")
# Features of CPUs that compute in the narrow format of a policy. Without them, TensorFlow also adds in it, for example
# gradients over the positions of a convolution: 256 + 1 is 256 in bfloat16.
NARROW = {"mixed_bfloat16": ("amx_bf16", "avx512_bf16"), "mixed_float16": ("amx_fp16", "avx512_fp16")}
VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICES = ("nvidia[0-9]*", "accel[0-9]*", "kfd")
API_KEY = "HIGHWAY_API_KEY"
"""Variable with an endpoint's key: if set, `highway serve` requires it and `highway predict --url` sends it."""
COMMAND = "HIGHWAY_COMMAND"
"""Environment variable with the user's command line, for the processes that a command starts."""


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Returns the versions of Python and of installed packages; by default, of packages that affect results."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def comparable(found: Mapping[str, str]) -> dict[str, str]:
    """Returns versions with one name for the builds of TensorFlow with and without CUDA, which have the same code."""
    return {name.removesuffix("-cpu"): version for name, version in found.items()}


def build_here(name: str, found: Mapping[str, str]) -> str:
    """Returns the name under which a package is installed: of the two builds of TensorFlow, that in `found`."""
    plain = name.removesuffix("-cpu")
    return next((build for build in (name, plain, f"{plain}-cpu") if build in found), name)


@cache
def installed() -> dict[str, str]:
    """Returns what the results of this process depend on: versions of packages, and a digest of this program's code.

    Two machines with equal values compute equal results, apart from rounding on other processors.
    """
    return {**comparable(versions((*PACKAGES, "onnxruntime", "pyarrow"))), "code": _digest()}


def _digest() -> str:
    own = __name__.partition(".")[0]
    digest = hashlib.sha256()
    # In the wheel, the packages have other names (build_backend.py).
    for package in ("highway_keras", own, own.replace("pipelines", "serving")):
        root = Path(__file__).parents[2] / package
        for path in sorted(root.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def now() -> str:
    """Returns the time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command() -> str:
    """Returns the user's command line, quoted for a shell; bytes that are not UTF-8, which JSON lacks, are escaped."""
    if given := os.environ.get(COMMAND):
        return given
    path = Path(sys.argv[0])
    # `python -m` replaces the module's name with the path of its file.
    module = f"{path.parent.name}.{path.stem}".removesuffix(".__main__")
    program = ["python", "-m", module] if path.suffix == ".py" else [path.name or "python"]
    return printable(shlex.join([*program, *sys.argv[1:]]))


def code() -> Code | None:
    """Returns the commit of the checkout that this code runs from; None for an installed package."""
    here = Path(__file__).parent
    # A package installed inside another checkout must not report the commit of that checkout.
    if _git(here, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = _git(here, "rev-parse", "HEAD")
    changes = _git(here, "status", "--porcelain", "--untracked-files=no")
    return Code(commit=commit, dirty=bool(changes)) if commit else None


def machine() -> Machine:
    """Returns processor and accelerators. Imports Keras, whose backend finds the accelerators."""
    model, features = cpu()
    return Machine(cpu=model, cpu_features=features, cores=cores(), accelerators=accelerators())


def cpu(info: Path = Path("/proc/cpuinfo")) -> tuple[str, tuple[str, ...]]:
    """Returns the model name of the processor, and which of the `FEATURES` it has.

    Args:
        info: Linux's description of the processor; on other systems, only the platform's name is known.
    """
    lines: dict[str, str] = {}
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            lines.setdefault(key.strip(), value.strip())
    flags = set(lines.get("flags", lines.get("Features", "")).split())
    model = lines.get("model name") or platform.processor() or platform.machine()
    return model, tuple(feature for feature in FEATURES if feature in flags)


def cores() -> int:
    """Returns the number of cores that this process may use; in a container, the machine may have more."""
    return len(available())


def available() -> list[int]:
    """Returns the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def devices(folder: Path = Path("/dev")) -> list[str]:
    """Returns the device files of GPUs and TPUs. Asks no framework, so a framework may be unable to use them.

    Args:
        folder: the system's folder of device files.
    """
    return sorted(path.name for pattern in DEVICES for path in folder.glob(pattern))


def choose_gpu(number: int | Literal["auto"] | None, folder: Path = Path("/dev")) -> None:
    """Lets the frameworks see one NVIDIA GPU only, or none; called before they are imported.

    Args:
        number: number of the GPU among those of CUDA_VISIBLE_DEVICES, which a job of SLURM sets, or without it among
            all, as `nvidia-smi` counts; None for none, "auto" changes nothing.
        folder: the system's folder of device files.

    Raises:
        UserError: there is no such GPU.
    """
    if number == "auto":
        return
    if number is None:
        os.environ[VISIBLE] = ""
        return
    given = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    # In a container, the file of the only GPU may be nvidia3, and CUDA counts from 0.
    files = [name for name in devices(folder) if re.fullmatch(r"nvidia\d+", name)]
    found = given or [str(place) for place in range(len(files))]
    if number >= len(found):
        numbers = ", ".join(str(place) for place in range(len(found)))
        there = f"The numbers are {numbers}" if found else "This machine has no NVIDIA GPU"
        raise UserError(f"there is no GPU {number}. {there}; `--gpus none` uses the CPU.")
    # By default, CUDA counts from the fastest one.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ[VISIBLE] = found[number]


def unused_gpus() -> str | None:
    """Returns the CUDA_VISIBLE_DEVICES that chose GPUs of which the Keras backend found none; None if all is well."""
    chosen = os.environ.get(VISIBLE, "")
    return chosen if chosen not in {"", "-1"} and not accelerators() else None


def accelerators() -> tuple[str, ...]:
    """Returns the names of the GPUs and TPUs of this process that the Keras backend found."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return tuple(device.device_kind for device in jax.local_devices() if device.platform != "cpu")
    import tensorflow as tf

    found = [device for kind in ("GPU", "TPU") for device in tf.config.list_physical_devices(kind)]
    return tuple(tf.config.experimental.get_device_details(device).get("device_name", device.name) for device in found)


def compute_capability() -> tuple[int, int] | None:
    """Returns the compute capability of the first NVIDIA GPU as (major, minor); None for other accelerators."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        major, _, minor = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
    import tensorflow as tf

    found = [tf.config.experimental.get_device_details(device) for device in tf.config.list_physical_devices("GPU")]
    return found[0].get("compute_capability") if found else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
