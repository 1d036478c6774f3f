"""Large files, decoded in processes with limits."""

import asyncio
import contextlib
import gc
import io
import os
import resource
import signal
import struct
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving import image_files
from serving.engine.decoding import Decoder, estimate
from serving.errors import BusyError, ImageError, LimitError
from tests.endpoint import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


def saved(size, form="PNG", seed=0, **options):
    file = io.BytesIO()
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(file, form, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def decoder():
    with ThreadPoolExecutor(1) as light:
        made = Decoder(light, processes=1, queue=1, pixels=10**8, seconds=1, memory=2**27)
        yield made
        made.close()


def number(decoder):
    """Returns the ID of the decoding process."""
    return decoder._children.call(os.getpid)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF"])
def test_the_process_decodes_like_this_one(decoder, form):
    file = saved((900, 700), form)
    np.testing.assert_array_equal(decoder.decode_limited(file, "a"), image_files.decode(file, "a"))


def test_memory_is_returned_after_a_large_image(decoder):
    def kilobytes(what):
        status = Path(f"/proc/{process}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith(what)).split()[1])

    small = saved((30, 20))
    decoder.decode_limited(small, "a")
    process = number(decoder)
    before = kilobytes("VmRSS")
    decoder.decode_limited(saved((4000, 4000), compress_level=1), "a")
    # The process returns free memory to the system before it takes the next file.
    decoder.decode_limited(small, "a")
    assert kilobytes("VmHWM") - before > 50_000
    assert kilobytes("VmRSS") - before < 20_000
    # 30 MB in small pieces come from the heap, whose end the C library would keep.
    assert decoder._children.call(len, [f"{number:0600}" for number in range(50_000)]) == 50_000
    eventually(lambda: kilobytes("VmRSS") - before < 20_000)


def test_a_damaged_file_is_reported(decoder):
    with pytest.raises(ImageError, match=r"^cut\.png cannot be read"):
        decoder.decode_limited(saved((300, 200))[:5000], "cut.png")


def test_only_cheap_files_that_arrive_together_are_decoded_in_other_threads(decoder):
    async def threads(count):
        file = saved((30, 20))
        return await asyncio.gather(*(decoder.decode(file, "a", lambda _: threading.get_ident()) for _ in range(count)))

    own = threading.get_ident()
    assert asyncio.run(threads(1)) == [own]
    assert own not in asyncio.run(threads(3))


def test_an_error_does_not_keep_the_file(decoder):
    async def ask():
        def to_input(rgba):
            return rgba

        kept = weakref.ref(to_input)
        with contextlib.suppress(ImageError):
            await decoder.decode(b"no image", "a", to_input)
        return kept

    gc.disable()
    try:
        kept = asyncio.run(ask())
        # The thread sets the result first, and then drops its references.
        eventually(lambda: kept() is None)
    finally:
        gc.enable()


def test_a_file_that_needs_too_much_memory_is_refused_and_the_next_is_not(decoder):
    file = io.BytesIO()
    # 45 million pixels of four bytes.
    Image.new("RGB", (9000, 5000)).save(file, "PNG", compress_level=1)
    with pytest.raises(LimitError, match=r"^bomb (?:takes|needs) more"):
        decoder.decode_limited(file.getvalue(), "bomb")
    assert decoder.decode_limited(saved((30, 20)), "a").shape == (20, 30, 4)


def test_a_process_that_is_killed_is_replaced(decoder):
    decoder.decode_limited(saved((30, 20)), "a")
    process = number(decoder)
    for ignored in (signal.SIGTERM, signal.SIGINT):
        os.kill(process, ignored)
        assert decoder.decode_limited(saved((30, 20)), "a").shape == (20, 30, 4)
        assert number(decoder) == process
    os.kill(process, signal.SIGKILL)
    # Only when all of its threads have ended; its first may be a zombie before that.
    eventually(lambda: os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    assert decoder.decode_limited(saved((30, 20)), "a").shape == (20, 30, 4)
    assert number(decoder) != process
    # The new process is limited, too.
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert decoder._children.call(os.getpriority, os.PRIO_PROCESS, 0) == min(own + 10, 19)
    assert decoder._children.call(resource.getrlimit, resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def test_a_file_that_takes_too_long_is_refused(monkeypatch, decoder):
    monkeypatch.setattr(decoder, "seconds", 0)
    slow = b"P3 2000 2000 255 " + b"1 " * 12_000_000
    with pytest.raises(LimitError, match="more than 0 s"):
        decoder.decode_limited(slow, "slow")


def test_an_image_that_is_too_large_is_not_said_to_take_too_long():
    file = bytearray(saved((9, 9)))
    struct.pack_into(">II", file, 16, 2**31 - 1, 2**31 - 1)

    async def ask(light):
        await Decoder(light, processes=1, queue=1, pixels=10**8).decode(bytes(file), "a.png", len)

    with ThreadPoolExecutor(1) as light, pytest.raises(ImageError, match=r"^a\.png is larger than 100,000,000 pixels"):
        asyncio.run(ask(light))


def test_cheaper_files_are_decoded_first_and_those_beyond_the_queue_refused(monkeypatch):
    free, began, order = threading.Event(), threading.Event(), []

    def decode(self, file, name, side, grey):
        began.set()
        free.wait(10)
        order.append(name)
        return np.zeros((1, 1, 4), np.uint8)

    monkeypatch.setattr(Decoder, "decode_limited", decode)
    files = {"first": (600, 600), "bomb": (6000, 5000), "photograph": (1000, 700), "small": (9, 9)}
    files = {name: saved(size, compress_level=1) for name, size in files.items()}
    assert estimate(files["small"]).light

    async def ask(light):
        decoder = Decoder(light, processes=1, queue=2, pixels=10**8)
        first = asyncio.create_task(decoder.decode(files["first"], "first", len))
        await asyncio.to_thread(began.wait, 10)
        rest = [asyncio.create_task(decoder.decode(files[name], name, len)) for name in ("bomb", "photograph")]
        # A small file neither waits behind them nor is refused.
        assert await decoder.decode(files["small"], "small", len) == 9
        with pytest.raises(BusyError, match="2 large image files are waiting already") as refused:
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


def test_a_file_for_which_no_thread_can_be_started_takes_no_place(no_thread_at_first, monkeypatch):
    monkeypatch.setattr(Decoder, "decode_limited", lambda *_: np.zeros((1, 1, 4), np.uint8))

    async def ask(light):
        decoder = Decoder(light, processes=1, queue=1, pixels=10**8)
        decoder._threads = no_thread_at_first
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await decoder.decode(saved((600, 600), "GIF"), "a", len)
        assert await decoder.decode(saved((600, 600), "GIF"), "a", len) == 1
        assert not decoder._waiting
        decoder.close()

    with ThreadPoolExecutor(1) as light:
        asyncio.run(ask(light))


def test_closing_does_not_wait_for_a_conversion_that_never_ends():
    began, closed = threading.Event(), threading.Event()

    def to_input(_):
        began.set()
        return closed.wait(10)

    async def ask(light):
        decoder = Decoder(light, processes=1, queue=1, pixels=10**8)
        converting = asyncio.create_task(decoder.decode(saved((600, 600), "GIF"), "a", to_input))
        await asyncio.to_thread(began.wait, 10)
        decoder.close()
        closed.set()
        return await converting

    with ThreadPoolExecutor(1) as light:
        # False if closing waited until the conversion gave up.
        assert asyncio.run(ask(light))
