"""The images below a URL, in the order of local files. They are read later, batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pipelines.core.errors import UserError
from pipelines.core.url import Stored, Url
from pipelines.inference.image_ref import ImageRef, is_image


@dataclass(frozen=True)
class Objects:
    """The images in a folder of a bucket; or a single object, whatever its suffix, as with a file.

    Args:
        url: the URL of the folder or of the object.

    Raises:
        UserError: there is nothing at the URL, or the store cannot be used.
    """

    url: Url

    def __post_init__(self) -> None:
        if not self._found:
            raise UserError(f"there is nothing at {self.url}. Expected an image, a tar file, or a folder of images.")

    def __iter__(self) -> Iterator[ImageRef]:
        for one in self._images:
            yield ImageRef(str(one.url), lambda one=one: one)  # type: ignore[misc]

    def count(self) -> int:
        """Returns the number of images."""
        return len(self._images)

    @cached_property
    def _found(self) -> list[Stored]:
        return self.url.files()

    @cached_property
    def _images(self) -> list[Stored]:
        return [one for one in self._found if one.url == self.url or is_image(one.url.name)]
