"""Fine-tuning: initial weights from a net that has been trained before."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import keras

from highway_keras import from_preset
from highway_keras.models.trained_weights import pretrained
from pipelines.core.errors import UserError
from pipelines.core.run import FILES, load_file, load_model, open_run
from pipelines.core.sync import renamed
from pipelines.core.url import Location, Url, fetch

# Options of a layer that do not change what it computes in inference from the same weights: names, precision, training,
# how weights start (`transform_bias`, `depth`), and sizes, which the shapes of the weights decide.
_OTHER = re.compile(
    r"name|registered_name|module|trainable|dtype|seed|.*momentum|synchronized|rematerialize|transform_bias|depth|"
    r".*_(initializer|regularizer|constraint)|units|filters|kernel_size|"
    r"batch_shape|build_input_shape|inbound_nodes|input_layers|output_layers|(build|compile|quantization)_config"
)

# Layers that do nothing in inference, by their class.
_IDLE = ("Dropout", "InputLayer")


def assign(net: keras.Model, source: Location) -> str | None:
    """Copies the weights of a trained net into a net with the same layers.

    Args:
        net: the new net.
        source: a run directory, for its net after the last step; a `.keras` file; the URL of either; or the name of a
            preset with trained weights.

    Returns:
        The name of the last layer if it keeps its initial weights, because it has another number of outputs; else None.

    Raises:
        UserError: there is no net, its file is damaged, or its layers differ from those of the new net.

    Example:
        assign(net, Path("runs/cifar10_19"))
    """
    trained, path = _open(source)
    ours, theirs = (_weighted(model) for model in (net, trained))
    if [type(layer) for layer in ours] != [type(layer) for layer in theirs]:
        raise UserError(
            f"the net in {path} has other layers than {net.name}: {_listed(theirs)}, not {_listed(ours)}. "
            "Choose the recipe that it was trained with, and the same --model fields."
        )
    for (_, wanted), (name, given) in zip(_computing(net), _computing(trained), strict=False):
        for option in {**wanted, **given}:
            if wanted.get(option) != given.get(option):
                raise UserError(
                    f"the net in {path} computes something else with the same weights: its layer {name} has "
                    f"{option}={given.get(option)!r}, not {option}={wanted.get(option)!r}. "
                    "Choose the recipe that it was trained with, and the same --model fields."
                )
    different = [layer for layer, other in zip(ours, theirs, strict=True) if _shapes(layer) != _shapes(other)]
    if different and different != ours[-1:]:
        first = different[0]
        other = theirs[ours.index(first)]
        raise UserError(
            f"the layer {first.name} has weights of {_shapes(first)}, and the net in {path} has {_shapes(other)}. Only "
            "the last layer may differ: choose data with images of the same size, and the same --model fields."
        )
    for layer, other in zip(ours, theirs, strict=True):
        if layer not in different:
            layer.set_weights(other.get_weights())
    return different[0].name if different else None


def _computing(net: keras.Model) -> list[tuple[str, dict[str, Any]]]:
    """Lists each layer but the last with the options that decide what it computes in inference."""
    layers = [one for one in net.layers[:-1] if type(one).__name__ not in _IDLE]
    return [(one.name, {"class": type(one).__name__, **dict(_options(one.get_config()))}) for one in layers]


def _options(config: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yields these options of a layer's config with their values, those of layers inside it after their place in it."""
    if isinstance(config, dict):
        for name, value in config.items():
            if not _OTHER.fullmatch(name):
                yield from _options(value, f"{place}.{name}" if place else name)
    elif isinstance(config, list | tuple):
        counting = [one for one in config if not (isinstance(one, dict) and one.get("class_name") in _IDLE)]
        for number, value in enumerate(counting):
            yield from _options(value, f"{place}.{number}")
    else:
        yield place, config


def _open(source: Location) -> tuple[keras.Model, Location]:
    if isinstance(source, Url):
        with _downloaded(source) as path:
            return _open(path)[0], source
    if source.is_dir():
        return load_model(open_run(source)), source / FILES["final"]
    if not source.exists() and str(source) in pretrained():
        return from_preset(source.name, weights=True), source
    if source.suffix != ".keras" or not source.is_file():
        close = get_close_matches(str(source), pretrained(), n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UserError(
            f"there is no net in {source}. {hint}Expected a run directory, a .keras file, or a preset with trained "
            f"weights ({', '.join(pretrained())}), to start from."
        )
    return load_file(source), source


@contextmanager
def _downloaded(source: Url) -> Iterator[Path]:
    """Yields a local copy of a `.keras` file, or of the necessary files of a run directory."""
    wanted = {source, *(source / name for name in ("config.json", "run.json", FILES["final"]))}
    with tempfile.TemporaryDirectory(prefix="highway-") as folder, renamed(Path(folder), source.parent):
        path = Path(folder) / source.name
        found = [one.url for one in source.files() if one.url in wanted]
        fetch([(url, path if url == source else path / url.name) for url in found])
        yield path


def _weighted(model: keras.Model) -> list[keras.Layer]:
    return [layer for layer in model.layers if layer.weights]


def _shapes(layer: keras.Layer) -> str:
    return ", ".join("x".join(map(str, weight.shape)) for weight in layer.weights)


def _listed(layers: list[keras.Layer]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(type(layer).__name__ for layer in layers).items())
