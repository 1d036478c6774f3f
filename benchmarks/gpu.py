"""The convolutional step on a GPU in bfloat16: ours on TensorFlow and JAX, PyTorch with AMP and with torch.compile."""

import shutil
import subprocess

from benchmarks import conv, roster
from benchmarks.session import Session
from benchmarks.table import Row


def run(session: Session) -> list[Row]:
    """Measures on the first GPU.

    Args:
        session: of this run.

    Returns:
        The rows; none, and a note, where there is no GPU.
    """
    gpu = name()
    if gpu is None:
        session.note("gpu: skipped, there is no NVIDIA GPU here (nvidia-smi lists none)")
        return []
    session.machine = f"{gpu}; {session.machine}"
    return conv.measure(session, roster.GPU, ("mixed_bfloat16",), None, rounds=9, steps=100, section="gpu")


def name() -> str | None:
    """The first NVIDIA GPU's, or None."""
    if shutil.which("nvidia-smi") is None:
        return None
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = listed.stdout.strip().splitlines()
    return lines[0].split(" (UUID")[0] if listed.returncode == 0 and lines else None
