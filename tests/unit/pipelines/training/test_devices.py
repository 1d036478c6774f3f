import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config import Augment
from pipelines.core.errors import UserError
from pipelines.training import devices
from tests.toy_data import toy_config


@pytest.fixture
def machine(monkeypatch):
    """A function that sets the numbers of devices and processes."""

    def run(available, processes=1):
        monkeypatch.setattr(devices, "available", lambda: available)
        monkeypatch.setattr(devices, "processes", lambda: processes)

    return run


def check(batch_size, asked, **augment):
    devices.check(toy_config(batch_size=batch_size, augment=Augment(**augment)), asked)


def test_devices_that_divide_a_batch_are_accepted(machine):
    machine(available=4)
    check(20, None)
    check(21, 1)
    check(20, 4)
    machine(available=2, processes=3)
    check(12, 2, mixup=0.2)


@pytest.mark.parametrize(
    ("batch_size", "asked", "processes", "message"),
    [
        (20, 5, 1, "--devices 5 is more than this process has: 4. Lower it"),
        (20, 3, 1, "20 cannot be divided evenly among 3 devices. Choose --batch-size 18 or 21"),
        (2, 3, 1, "among 3 devices. Choose --batch-size 3"),
        (20, None, 3, "among 3 processes. Choose --batch-size 18 or 21"),
        (20, 2, 3, "among 3 processes with 2 devices each. Choose --batch-size 18 or 24"),
    ],
)
def test_others_are_refused_with_the_nearest_that_would_do(machine, batch_size, asked, processes, message):
    machine(available=4, processes=processes)
    with pytest.raises(UserError, match=message):
        check(batch_size, asked)


def test_images_are_mixed_within_a_process(machine):
    machine(available=1, processes=3)
    with pytest.raises(UserError, match=r"3 processes, with an even number of images each to mix. Choose .* 18 or 24"):
        check(21, None, cutmix=1.0)


def test_a_backend_without_several_devices_is_refused(machine, monkeypatch):
    machine(available=4)
    monkeypatch.setattr(devices.keras.backend, "backend", lambda: "torch")
    with pytest.raises(UserError, match=r"--devices 2 needs KERAS_BACKEND=jax or KERAS_BACKEND=tensorflow. On torch"):
        check(20, 2)
    check(20, 1)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 40), st.integers(1, 16))
def test_the_devices_to_use_divide_each_process_s_share(available, processes, share, wanted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "available", lambda: available)
        patch.setattr(devices, "processes", lambda: processes)
        found = devices.fitting(share * processes, wanted)
    assert share % found == 0
    assert found <= min(available, wanted)
    assert found == wanted or wanted > available or share % wanted
