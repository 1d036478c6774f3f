"""Large files, in processes that are limited."""

import asyncio
import io
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving import pictures
from serving.decoding import Child, Decoder
from serving.errors import BusyError, LimitError, PictureError
from serving.glance import glance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


def saved(size, form="PNG", seed=0, **options):
    file = io.BytesIO()
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(file, form, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def child():
    made = Child(10**8, seconds=1, room=2**27)
    yield made
    made.close()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF"])
def test_it_decodes_as_this_process_does(child, form):
    file = saved((900, 700), form)
    np.testing.assert_array_equal(child.decode(file, "a"), pictures.decode(file, "a"))


def test_memory_goes_back_after_a_large_picture(child):
    def kilobytes(what):
        process, _ = child._running
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith(what)).split()[1])

    small = saved((30, 20))
    child.decode(small, "a")
    before = kilobytes("VmRSS")
    child.decode(saved((4000, 4000), compress_level=1), "a")
    # It gives back what it can before it takes the next one.
    child.decode(small, "a")
    assert kilobytes("VmHWM") - before > 50_000
    assert kilobytes("VmRSS") - before < 20_000


def test_what_is_wrong_with_a_file_is_told(child):
    with pytest.raises(PictureError, match=r"^cut\.png cannot be read"):
        child.decode(saved((300, 200))[:5000], "cut.png")


def test_a_file_that_needs_too_much_memory_is_refused_and_the_next_is_not(child):
    file = io.BytesIO()
    # 45 million pixels of four bytes.
    Image.new("RGB", (9000, 5000)).save(file, "PNG", compress_level=1)
    with pytest.raises(LimitError, match=r"^bomb takes more"):
        child.decode(file.getvalue(), "bomb")
    assert child.decode(saved((30, 20)), "a").shape == (20, 30, 4)


def test_a_process_that_is_killed_is_replaced(child):
    child.decode(saved((30, 20)), "a")
    process, _ = child._running
    os.kill(process.pid, signal.SIGTERM)
    assert child.decode(saved((30, 20)), "a").shape == (20, 30, 4)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert child.decode(saved((30, 20)), "a").shape == (20, 30, 4)


def test_a_file_that_takes_too_long_is_refused():
    slow = b"P3 2000 2000 255 " + b"1 " * 12_000_000
    child = Child(10**8, seconds=0)
    try:
        with pytest.raises(LimitError, match="more than 0 s"):
            child.decode(slow, "slow")
    finally:
        child.close()


def test_what_is_less_work_is_done_first_and_more_than_the_queue_is_refused(monkeypatch):
    free, began, order = threading.Event(), threading.Event(), []

    def decode(self, file, name):
        began.set()
        free.wait(10)
        order.append(name)
        return np.zeros((1, 1, 4), np.uint8)

    monkeypatch.setattr(Child, "decode", decode)
    files = {"first": (600, 600), "bomb": (6000, 5000), "photograph": (1000, 700), "small": (9, 9)}
    files = {name: saved(size, compress_level=1) for name, size in files.items()}
    assert glance(files["small"]).light

    async def ask(light):
        decoder = Decoder(light, processes=1, queue=2, pixels=10**8)
        first = asyncio.create_task(decoder.decode(files["first"], "first", len))
        await asyncio.to_thread(began.wait, 10)
        rest = [asyncio.create_task(decoder.decode(files[name], name, len)) for name in ("bomb", "photograph")]
        # Neither behind them nor refused.
        assert await decoder.decode(files["small"], "small", len) == 9
        with pytest.raises(BusyError, match="2 large picture files are waiting already") as refused:
            await decoder.decode(files["first"], "one more", len)
        assert refused.value.after > 0.3
        scans = saved((1000, 1000), "JPEG", progressive=True)
        with pytest.raises(LimitError, match=r"scans would take about \d+ s"):
            await decoder.decode(scans[:-2] + b"\xff\xda" * 50_000, "scans", len)
        free.set()
        await asyncio.gather(first, *rest)
        decoder.close()

    with ThreadPoolExecutor(1) as light:
        asyncio.run(ask(light))
    assert order == ["first", "photograph", "bomb"]
