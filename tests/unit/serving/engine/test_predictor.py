"""Requests whose version is gone, and deadlines."""

import asyncio
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from serving.engine.decoding import Decoder
from serving.engine.predictor import Deadlines, Predictor
from serving.engine.settings import Settings
from serving.errors import GoneError, LimitError, UnknownModelError
from serving.model import Seen
from serving.protocols.request import Request
from serving.statistics import Statistics

REQUEST = Request(np.zeros((1, 2, 2, 1), np.uint8), None)


def version(number, *, gone, columns=(), outputs=("probabilities",), lone_requests=None):
    async def predict(images, lone=False):
        if lone_requests is not None:
            lone_requests.append(lone)
        # Lets simultaneous requests begin, too.
        await asyncio.sleep(0.01)
        if gone:
            raise GoneError(f"{number} is gone")
        return {"probabilities": np.ones((len(images), 1)), "gate_means": np.full((len(images), 1), number)}

    manifest = SimpleNamespace(columns=columns, outputs=dict.fromkeys(outputs), multi_label=False)
    return SimpleNamespace(predict=predict, statistics=Statistics(), manifest=manifest)


def predicted(tmp_path, served, look, find, *, count=1, request=REQUEST):
    async def ask():
        predictor = Predictor(Settings(tmp_path), executor, look)
        try:
            return await asyncio.gather(*(predictor.predict(served, request, find) for _ in range(count)))
        finally:
            predictor.close()

    with ThreadPoolExecutor(1) as executor:
        return asyncio.run(ask())


def test_one_refresh_is_enough_for_all_requests_whose_version_is_gone(tmp_path):
    first, second = version(1, gone=True), version(2, gone=False)
    now, looks = [first], []

    def look():
        looks.append(1)
        now[0] = second

    found = predicted(tmp_path, first, look, lambda: now[0], count=20)
    assert {(one.served is second, int(one.outputs["gate_means"][0, 0])) for one in found} == {(True, 2)}
    assert len(looks) == 1


def test_a_gone_version_without_a_replacement_is_an_error(tmp_path):
    served = version(1, gone=True)
    with pytest.raises(GoneError, match="1 is gone"):
        predicted(tmp_path, served, lambda: None, lambda: served)


def test_a_replacement_that_is_gone_too_is_an_error(tmp_path):
    first, second = version(1, gone=True), version(2, gone=True)
    with pytest.raises(GoneError, match="2 is gone"):
        predicted(tmp_path, first, lambda: None, lambda: second)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"columns": ("rooms",)}, {"columns": ("age",)}),
        ({"outputs": ("probabilities", "gate_means")}, {"outputs": ("probabilities",)}),
    ],
)
def test_a_replacement_with_other_columns_or_outputs_does_not_answer(tmp_path, before, after):
    first, second = version(1, gone=True, **before), version(2, gone=False, **after)
    with pytest.raises(GoneError, match="1 is gone"):
        predicted(tmp_path, first, lambda: None, lambda: second)


def test_an_error_of_the_second_lookup_is_raised(tmp_path):
    def find():
        raise UnknownModelError("no version 1")

    with pytest.raises(UnknownModelError, match="no version 1"):
        predicted(tmp_path, version(1, gone=True), lambda: None, find)


def test_deadlines_cancel_only_late_tasks():
    async def waits(deadlines, seconds, *, cancelled=False):
        task = asyncio.current_task()
        if cancelled:
            asyncio.get_running_loop().call_later(0.02, task.cancel)
        try:
            with deadlines.start():
                await asyncio.sleep(seconds)
        except TimeoutError:
            return "late"
        except asyncio.CancelledError:
            return "cancelled"
        return "in time"

    async def main():
        deadlines = Deadlines(0.1)
        first = [waits(deadlines, 0.01), waits(deadlines, 5), waits(deadlines, 5, cancelled=True)]
        found = await asyncio.gather(*first)
        # Deadlines that start later expire later, and a task may have one after another.
        later = await asyncio.gather(waits(deadlines, 0.05), waits(deadlines, 5))
        return found + later

    assert asyncio.run(main()) == ["in time", "late", "cancelled", "in time", "late"]


def taking_files(served, grey=True):
    """Lets a version convert image files, and returns a request with one and the list of what is decoded."""
    decoded, file = [], io.BytesIO()

    def see(rgba, segments):
        decoded.append(rgba)
        return Seen(np.zeros((1, 2, 2, 1), np.uint8), None)

    served.see, served.side = see, 500
    served.manifest = SimpleNamespace(is_grey=grey, input=SimpleNamespace(shape=(None, 2, 2, 1)), multi_label=False)
    Image.new("RGB", (9, 9), (200, 10, 10)).save(file, "JPEG")
    return Request(None, [file.getvalue()]), decoded


@pytest.mark.parametrize("grey", [True, False])
def test_the_colours_of_a_jpeg_are_decoded_only_for_nets_that_take_them(tmp_path, grey):
    served = version(1, gone=False)
    request, decoded = taking_files(served, grey)
    predicted(tmp_path, served, lambda: None, lambda: served, request=request)
    assert (np.ptp(decoded[0][..., :3]) == 0) == grey


def test_a_request_is_alone_if_no_other_image_is_being_decoded(tmp_path):
    lone = []
    served = version(1, gone=False, lone_requests=lone)
    for request, count in ((taking_files(served)[0], 1), (taking_files(served)[0], 3), (REQUEST, 1)):
        predicted(tmp_path, served, lambda: None, lambda: served, count=count, request=request)
    # Of three, two are predicted while the last one is being decoded. Nobody knows of other pixels.
    assert lone == [True, False, False, True, False]


def test_expensive_files_do_not_crowd_out_cheap_ones(tmp_path, monkeypatch):
    began, free = threading.Event(), threading.Event()

    def decode(self, file, name, side, grey):
        began.set()
        free.wait(10)
        return np.zeros((1, 1, 4), np.uint8)

    monkeypatch.setattr(Decoder, "decode_limited", decode)
    served = version(1, gone=False)
    cheap, _ = taking_files(served)
    file = io.BytesIO()
    Image.new("L", (4000, 3000)).save(file, "PNG")
    expensive = Request(None, [file.getvalue()] * 4)

    async def ask(executor):
        predictor = Predictor(Settings(tmp_path, queue=2), executor, lambda: None)
        slow = asyncio.create_task(predictor.predict(served, expensive, lambda: served))
        await asyncio.to_thread(began.wait, 10)
        answers = [await predictor.predict(served, cheap, lambda: served) for _ in range(4)]
        free.set()
        await slow
        predictor.close()
        return answers

    with ThreadPoolExecutor(1) as executor:
        assert len(asyncio.run(ask(executor))) == 4


def test_files_that_cannot_be_decoded_in_time_are_refused_at_once(tmp_path):
    served = version(1, gone=False)
    request, decoded = taking_files(served)
    file = io.BytesIO()
    Image.new("1", (7000, 7100)).save(file, "PNG")
    bombs = Request(None, [*request.files, *[file.getvalue()] * 250])
    with pytest.raises(LimitError, match=r"^the 251 image files of this request would take about \d+ s to decode"):
        predicted(tmp_path, served, lambda: None, lambda: served, request=bombs)
    assert decoded == []
    # How long files of other formats take is not known before.
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "GIF")
    predicted(tmp_path, served, lambda: None, lambda: served, request=Request(None, [file.getvalue()] * 50))
    assert len(decoded) == 50
