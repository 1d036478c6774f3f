"""`highway predict --url`: an endpoint is asked, and nothing is loaded here."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.inference.predict import TOP
from serving.answers import Prediction
from serving.client import Client, ClientError

# Of one request, well inside what an endpoint takes; one picture may have more bytes.
PICTURES, BYTES = 64, 8 * 2**20


def predict(url: str, model: str, pictures: Sequence[Path], count: int = TOP) -> tuple[str, list[Prediction]]:
    """Classifies picture files at an endpoint.

    Args:
        url: of the endpoint; the key is taken from the environment variable HIGHWAY_API_KEY.
        model: its name there.
        pictures: the files. One that cannot be read or is refused is an error for all.
        count: how many classes to name.

    Returns:
        The version that answered, as `NAME version NUMBER`, and a prediction for each picture.

    Raises:
        UserError: the endpoint cannot be reached, has no such model, wants another key, or refuses a picture; or it
            changed to another version meanwhile.

    Example:
        _, predictions = predict("http://127.0.0.1:8501", "digits", [Path("seven.png")])
        predictions[0].top[0].label  # "7"
    """
    try:
        with Client(url, os.environ.get(API_KEY) or None) as client:
            answers, version = [], None
            for some in _requests(pictures):
                answers.append(client.predict(model, some, version=version, top=count))
                # All pictures are classified by one version, even if a new one comes.
                version = answers[0].version
    except ClientError as error:
        raise UserError(f"{error}{_advice(error.status)}") from error
    found = [one for answer in answers for one in answer.predictions]
    return f"{model} version {version}", [
        one.model_copy(update={"file": str(picture)}) for picture, one in zip(pictures, found, strict=True)
    ]


def _requests(pictures: Sequence[Path]) -> Iterator[list[Path]]:
    some: list[Path] = []
    size = 0
    for picture in pictures:
        # What cannot be read is told by the client.
        more = picture.stat().st_size if picture.is_file() else 0
        if some and (len(some) == PICTURES or size + more > BYTES):
            yield some
            some, size = [], 0
        some.append(picture)
        size += more
    if some:
        yield some


def _advice(status: int | None) -> str:
    return f" Set {API_KEY} to the endpoint's key." if status == 401 else ""
