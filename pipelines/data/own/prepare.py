"""Prepares the user's own data as a TFDS data set in the user's cache: images of one size, or rows of a table."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from rich.console import Console

from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.url import Url, is_url
from pipelines.data import sources
from pipelines.data.images import conversion
from pipelines.data.own import arrow, by_url, rows
from pipelines.data.own import survey as surveys
from pipelines.data.own.formats import find_items, passed_over
from pipelines.data.own.item import SPLITS, Item, Split
from pipelines.data.own.storing import SOURCE, progress_bar, store
from pipelines.data.own.survey import Survey, assign, survey
from pipelines.data.own.table_data import OF_IMAGES, given, read_table, with_table
from pipelines.data.parallel import fixed
from pipelines.data.roots import INFO, data_name, path_of, pinned, refuse_missing, unpinned
from pipelines.data.sources import SizesError
from serving.errors import ImageError, LimitError
from serving.manifest import ConversionKind

# Part of the digest: another number if images are converted differently.
FORMAT = 2


@dataclass(frozen=True)
class OwnData:
    """The user's own data, read once."""

    source: str
    """Absolute path of the file or folder, or the name of a published data set."""
    name: str
    """Name of the prepared data set."""
    found: Survey
    """The images."""
    splits: Sequence[Split]
    """The split of each image."""

    @property
    def counts(self) -> Counter[Split]:
        """Number of images in each split."""
        return Counter(self.splits)


class ImageForm(NamedTuple):
    """The form of prepared images."""

    shape: tuple[int, ...]
    """Height, width and channels."""
    kind: ConversionKind
    """Conversion of image files to that shape; see `conversion.natural`."""


def is_own(data: str) -> bool:
    """Returns whether `data` is the path of the user's own data, not a TFDS name or the folder of a prepared data set.

    Args:
        data: the word after `--data`.

    Raises:
        UserError: see `roots.path_of`.
    """
    path = path_of(data)
    # A folder that Hugging Face has saved, and that of each split in it, has a file of the same name.
    is_prepared = (path / INFO).is_file() or any(path.glob(f"*/{INFO}"))
    if not path.exists() or (is_prepared and not arrow.matches(path)):
        return False
    # A TFDS name takes precedence over a folder of the same name, which can be given as `./mnist`.
    return "/" in data or data not in tfds.list_builders(with_community_datasets=False)


def is_table(data: str) -> bool:
    """Returns whether `data` is the path of the user's own table of numbers, not of images.

    Args:
        data: the word after `--data`.

    Raises:
        UserError: the file cannot be read.
    """
    return is_own(data) and rows.matches(Path(data).expanduser())


def read(data: str, group: str | None, console: Console, separator: str | None = None) -> OwnData:
    """Reads all images of the user's own data, and assigns them to splits.

    Args:
        data: path of the data.
        group: column of groups; None for no groups.
        console: where to print progress.
        separator: text between the classes in a label; None if a label is one class, or a list.

    Raises:
        UserError: the data cannot be read; see `formats.find_items`.
    """
    path = Path(data).expanduser().absolute()
    own = _surveyed(str(path), data_name(path), find_items(path, group, separator), console)
    return replace(own, found=replace(own.found, passed_over=passed_over(path)))


def _surveyed(source: str, name: str, items: Sequence[Item], console: Console) -> OwnData:
    with progress_bar(console, f"reading {name}", len(items)) as advance:
        found = survey(items, advance)
    if not found.images:
        raise UserError(f"none of the {len(items):,} images of {source} can be read. The first: {found.damaged[0]}")
    return OwnData(source, name, found, assign(found.images))


def prepare(own: OwnData, shape: tuple[int, ...], console: Console, kind: ConversionKind = "natural") -> Path:
    """Returns the prepared data set of the user's own data, preparing it if necessary.

    Every image is decoded and converted as by the endpoint. The folder is named after the content: unchanged data are
    prepared once.

    Args:
        own: the result of `read`.
        shape: height and width of the prepared images, and their channels; without these, they are grey if no image
            has colours.
        console: where to print progress.
        kind: conversion of image files to that shape; see `conversion.natural`.

    Returns:
        The folder of the data set.

    Raises:
        UserError: the disk is full, or the cache is not writable.

    Example:
        prepare(read("shapes", None, Console()), (32, 32), Console())
    """
    form = ImageForm(shape if len(shape) > 2 else (*shape, 1 if own.found.is_grey else 3), kind)
    digest = _digest(own, form)
    about = {"source": own.source, "digest": digest, "damaged": list(own.found.damaged)}
    label = tfds.features.ClassLabel(names=list(own.found.labels))
    folder = store(
        own.source,
        own.name,
        digest,
        {
            "image": tfds.features.Image(shape=form.shape),
            **({sources.LABELS: tfds.features.Sequence(label)} if own.found.multi_label else {"label": label}),
            "name": tfds.features.Text(),
        },
        lambda advance: {split: _examples(own, split, form, advance) for split in own.counts},
        total=len(own.splits),
        files={SOURCE: json.dumps(about, indent=2) + "\n"},
        console=console,
    )
    counts = own.counts
    shown = ", ".join(f"{counts[split]:,} {split}" for split in ("train", "validation", "test") if counts[split])
    size = " x ".join(map(str, form.shape))
    say(console, f"{own.source}: {shown} images of {len(own.found.labels)} classes, prepared as {size}")
    return folder


def prepare_for(shape: tuple[int, ...], kind: ConversionKind, data: str, config: Config, console: Console) -> Path:
    """Returns the user's own data in the form that a trained net takes.

    If there is no test split, all images belong to "train".

    Args:
        shape: height, width and channels of the net's input.
        kind: how images are converted to it.
        data: path of the data.
        config: the configuration that the net was trained with, for the separator of labels.
        console: where to print progress.

    Returns:
        The folder of the data set.

    Raises:
        UserError: the data cannot be read or prepared.
    """
    # No image is assigned to a split by a group here.
    own = read(data, None, console, config.label_separator)
    for why in (*own.found.damaged, *own.found.passed_over):
        say(console, f"left out: {why}")
    if all(image.item.split != "test" for image in own.found.images):
        own = replace(own, splits=["train"] * len(own.splits))
    return prepare(own, shape, console, kind)


def resolved(config: Config, data_dir: Path | None, console: Console) -> Config:
    """Returns a configuration whose data can be trained on: its own data, or a prepared form of them.

    Data at a URL are named by it, and by a digest of the prepared form. On every machine they are downloaded and
    prepared as needed, and must then have this digest.

    Args:
        config: the configuration.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
        console: where to print progress, and what is unusual about the data.

    Raises:
        UserError: the data cannot be read or prepared, or no net can be trained from them; or the data at a URL have
            changed.
    """
    url, folder = unpinned(config.data)
    if folder and (folder / INFO).is_file():
        return config
    with by_url.local(config.data, console) as path:
        found = _resolved(config.model_copy(update={"data": path}), data_dir, console)
    found = named(found, url)
    if folder and found.data != config.data:
        raise UserError(
            f"{url} has changed, or is prepared with other options: its data were {config.data}, and are {found.data} "
            f"now. Restore them, or start a new run with --data {url}."
        )
    return found


def named(prepared: Config, data: str) -> Config:
    """Returns a configuration that names prepared data by their URL; unchanged for other data.

    Args:
        prepared: the configuration, with the folder of the prepared data.
        data: path or URL of the data.
    """
    if not is_url(data):
        return prepared
    url, _ = unpinned(data)
    return prepared.model_copy(update={"data": pinned(Url(url), Path(prepared.data))})


def restore(config: Config, console: Console) -> None:
    """Downloads and prepares the data of a run again, if they come from a URL and are not on this machine.

    Args:
        config: configuration of the run.
        console: where to print progress.

    Raises:
        UserError: the data cannot be read, or have changed since.
    """
    if is_url(config.data):
        resolved(config, None, console)


def _resolved(config: Config, data_dir: Path | None, console: Console) -> Config:
    if is_table(config.data):
        return with_table(config, read_table(config), console)
    refuse_missing(config.data)
    if is_own(config.data):
        refuse_target(config)
        _refuse_task(config, "classification")
        own = read(config.data, config.group, console, config.label_separator)
    else:
        try:
            info = sources.describe(config.data, data_dir)
            refuse_target(config, info.target)
            if config.label_separator is not None and not info.multi_label:
                raise UserError(f"{config.data} has one class for each image. Leave out --label-separator.")
            _refuse_task(config, info.task)
            # The folder of a prepared form of your own data was prepared with these options.
            options = given(config, (*OF_IMAGES, "group"))
            if options and not Path(config.data).exists():
                raise UserError(f"{config.data} is a published data set, without use for {options}. Leave that out.")
            return config
        except SizesError:
            builder = sources.open_builder(config.data, data_dir)
        own = _surveyed(config.data, builder.name, list(_published(builder)), console)
    return with_prepared(config, own, console)


def refuse_target(config: Config, found: str | None = None) -> None:
    """Refuses a target for data that are not a table of numbers, or that have another target.

    Args:
        config: the configuration.
        found: target of the data; None for other data.

    Raises:
        UserError: the configuration has another target.
    """
    if config.target not in (None, found):
        has = f"is a table whose target is {found}" if found else "is not a table of numbers"
        raise UserError(f"{config.data} {has}. Leave out --target {config.target}.")


def _refuse_task(config: Config, task: sources.Task) -> None:
    """Refuses another task than that of data which are not a table of your own."""
    if config.task != "auto" and (config.task == "regression") != (task == "regression"):
        kind = "numbers to predict, and no classes" if task == "regression" else "classes, and no numbers to predict"
        raise UserError(f"{config.data} has {kind}. Leave out --task {config.task}.")


def with_prepared(config: Config, own: OwnData, console: Console) -> Config:
    """Returns a configuration with the prepared form of data that have been read.

    Args:
        config: the configuration.
        own: the data.
        console: where to print progress, and what is unusual about the data.

    Raises:
        UserError: the data cannot be prepared, or no classifier can be trained from them.
    """
    images = own.found.images
    labels = [image.item.labels for image in images]
    own = replace(own, splits=surveys.held_out(own.splits, surveys.keys(images), labels, config.validation))
    surveys.refuse(own.found, own.splits, config.skip_damaged)
    for note in surveys.notes(own.found, own.splits):
        say(console, f"note: {note}")
    return config.model_copy(
        update={"data": str(prepare(own, config.height_and_width, console, conversion.FITS[config.image_fit]))}
    )


def _published(builder: tfds.core.DatasetBuilder) -> Iterator[Item]:
    """Lists the images of a prepared data set. If it has a training split only, its images belong to no split yet.

    Args:
        builder: its builder.
    """
    features = builder.info.features
    several = "label" not in features
    names = features[sources.LABELS if several else "label"].int2str
    known = [name for name in builder.info.splits if name in SPLITS]
    for name in known:
        split: Split | None = SPLITS[name] if len(known) > 1 else None
        records = _Records(builder, name)
        for number, found in enumerate(records.labels()):
            label = tuple(map(names, found.tolist())) if several else names(int(found))
            yield Item(f"{name} {number}", label, partial(records.image, number), split)


@dataclass
class _Records:
    """The encoded images of a split, to be read in order: going back would mean reading from the first image again."""

    builder: tfds.core.DatasetBuilder
    split: str
    _next: int = 0
    _images: Iterator[bytes] = field(default_factory=lambda: iter(()))

    def labels(self) -> Iterator[np.ndarray]:
        """Yields the class of each image, int64, or its classes, [k]."""
        for example in self._read():
            yield example["label"] if "label" in example else example[sources.LABELS]

    def image(self, number: int) -> bytes:
        """Reads an image."""
        if number < self._next or not self._next:
            self._images, self._next = (bytes(example["image"]) for example in self._read()), 0
        while self._next < number:
            next(self._images)
            self._next += 1
        self._next += 1
        return next(self._images)

    def _read(self) -> Iterator[dict]:
        encoded = {"image": tfds.decode.SkipDecoding()}
        config = tfds.ReadConfig(try_autocache=False, options=fixed())
        dataset = self.builder.as_dataset(split=self.split, shuffle_files=False, read_config=config, decoders=encoded)
        return dataset.as_numpy_iterator()


def _rgba(item: Item, side: int, source: str) -> np.ndarray:
    """Decodes an image, which could be decoded when the data were read."""
    try:
        return surveys.pixels(item.read(), item.name, side)
    except (OSError, ImageError, LimitError) as error:
        why = f"{item.name} can no longer be read: {error}".rstrip(".")
        raise UserError(f"{source} has changed since the command began: {why}. Repeat it.") from error


def _examples(
    own: OwnData, split: Split, form: ImageForm, advance: Callable[[int], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a key and the example of each image of a split."""
    convert, side = conversion.converter(form.kind, form.shape), conversion.side_of(form.kind, form.shape)
    for number, (image, its) in enumerate(zip(own.found.images, own.splits, strict=True)):
        if its == split:
            item = image.item
            converted = convert(tf.constant(_rgba(item, side, own.source)))["image"].numpy()
            answer = {"label": item.label} if isinstance(item.label, str) else {sources.LABELS: list(item.label)}
            yield f"{number:09}", {"image": converted, "name": item.name, **answer}
            advance(1)


def _digest(own: OwnData, form: ImageForm) -> str:
    """Returns a digest of everything that the prepared files depend on."""
    whole = hashlib.sha256(json.dumps([FORMAT, *form, own.found.labels]).encode())
    for image, split in zip(own.found.images, own.splits, strict=True):
        whole.update(json.dumps([image.digest, image.item.label, image.item.name, split]).encode())
    return whole.hexdigest()
