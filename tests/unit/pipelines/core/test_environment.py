import os
import sys
from pathlib import Path

import keras
import pytest

from pipelines.core import environment
from pipelines.core.errors import UserError

X86 = """processor\t: 0
model name\t: Some CPU @ 2.00GHz
flags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
model name\t: Other
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16\n"


def test_versions_include_everything_that_decides_a_result():
    found = environment.versions()
    assert found["keras"] == keras.__version__
    assert {"python", "numpy", "pillow", "highway-keras"} <= set(found)


def test_nodes_with_and_without_cuda_have_the_same_installed(monkeypatch):
    def found(build):
        monkeypatch.setattr(environment, "versions", lambda packages: {"keras": "3.15.1", build: "2.21.0"})
        return environment.installed.__wrapped__()

    assert found("tensorflow-cpu") == found("tensorflow")


def test_the_processor_is_read_from_cpuinfo(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text(X86)
    assert environment.cpu(info) == ("Some CPU @ 2.00GHz", ("avx2", "avx512f", "avx512_bf16", "amx_bf16"))
    info.write_text(ARM)
    assert environment.cpu(info)[1] == ("asimd", "bf16")


def test_without_cpuinfo_the_platform_names_the_processor(tmp_path):
    model, features = environment.cpu(tmp_path / "none")
    assert model
    assert features == ()


def test_devices_are_found_without_a_framework(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "accel0", "tty"):
        (tmp_path / name).touch()
    assert environment.devices(tmp_path) == ["accel0", "nvidia0", "nvidia1"]


def test_the_command_can_be_typed_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/highway", "train", "demo", "--run", "a b"])
    assert environment.command() == "highway train demo --run 'a b'"
    monkeypatch.setattr(sys, "argv", ["/x/pipelines/__main__.py", "train"])
    assert environment.command() == "python -m pipelines train"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/highway", "evaluate", "run", "--data", os.fsdecode(b"caf\xe9")])
    assert environment.command() == r"highway evaluate run --data 'caf\xe9'"


def test_a_process_that_works_for_another_reports_its_command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/pipelines/training/processes/train.py", "{}"])
    monkeypatch.setenv(environment.COMMAND, "highway reproduce depth-contrast")
    assert environment.command() == "highway reproduce depth-contrast"


def test_a_commit_is_that_of_this_code_alone(monkeypatch):
    here = environment.code()
    assert here is None or len(here.commit) == 40
    # An untracked file in a checkout, like a package installed in a .venv inside it.
    monkeypatch.setattr(environment, "__file__", str(Path(environment.__file__).with_name("untracked.py")))
    assert environment.code() is None


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert environment.code() is None


def test_the_machine_is_described():
    machine = environment.machine()
    assert machine.cores >= 1
    assert machine.cpu


def test_one_gpu_or_none_is_chosen(tmp_path, monkeypatch):
    # Set first, so that it is restored.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    environment.choose_gpu("auto", tmp_path)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    environment.choose_gpu(1, tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    # Numbered as by `nvidia-smi`.
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    environment.choose_gpu(None, tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    with pytest.raises(UserError, match=r"there is no GPU 2. The numbers are 0, 1; `--gpus none` uses the CPU"):
        environment.choose_gpu(2, tmp_path)
    with pytest.raises(UserError, match="This machine has no NVIDIA GPU"):
        environment.choose_gpu(0, tmp_path / "nothing")


def test_a_gpu_is_chosen_among_those_of_a_job(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-8f6")
    # The only device file in a container.
    (tmp_path / "nvidia5").touch()
    environment.choose_gpu(1, tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-8f6"
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    with pytest.raises(UserError, match=r"there is no GPU 1. The numbers are 0;"):
        environment.choose_gpu(1, tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    environment.choose_gpu(0, tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(("chosen", "unused"), [("1", "1"), ("", None), ("-1", None)])
def test_gpus_that_the_backend_does_not_find_are_named(monkeypatch, chosen, unused):
    monkeypatch.setattr(environment, "accelerators", tuple)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert environment.unused_gpus() == unused
    monkeypatch.setattr(environment, "accelerators", lambda: ("NVIDIA H200",))
    assert environment.unused_gpus() is None
