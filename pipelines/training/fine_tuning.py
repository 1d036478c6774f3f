"""Fine-tuning: initial weights from a net that has been trained before."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras

from highway_keras import from_preset
from highway_keras.models.trained_weights import pretrained
from pipelines.core.errors import UserError
from pipelines.core.run import FILES, load_file, load_model, open_run
from pipelines.core.sync import renamed
from pipelines.core.url import Location, Url, fetch

# The net before the first step, in the directory of a run that starts from another net.
INITIAL = "initial.keras"
# Fields of a layer's config that change what it computes from the same weights.
_COMPUTING = ("activation", "gate_activation", "carry_gate", "padding", "strides", "pool_size", "dilation_rate")


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
    for wanted, given in zip(_computing(net), _computing(trained), strict=False):
        if wanted != given:
            raise UserError(
                f"the net in {path} computes something else with the same weights: it has {given}, not {wanted}. "
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


def _computing(net: keras.Model) -> list[str]:
    """Describes each layer but the last by what it computes, apart from weights; dropout only matters in training."""
    described = []
    for layer in net.layers[:-1]:
        config = layer.get_config()
        fields = {name: config[name] for name in _COMPUTING if name in config}
        if not isinstance(layer, keras.layers.Dropout | keras.layers.InputLayer):
            described.append(f"{type(layer).__name__}({', '.join(f'{name}={one!r}' for name, one in fields.items())})")
    return described


def _open(source: Location) -> tuple[keras.Model, Location]:
    if isinstance(source, Url):
        with _downloaded(source) as path:
            return _open(path)[0], source
    if source.is_dir():
        return load_model(open_run(source)), source / FILES["final"]
    if not source.exists() and str(source) in pretrained():
        return from_preset(source.name, weights=True), source
    if source.suffix != ".keras" or not source.is_file():
        raise UserError(
            f"there is no net in {source}. Expected a run directory, a .keras file, or a preset with trained weights "
            f"({', '.join(pretrained())}), to start from."
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
