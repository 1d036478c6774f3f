"""The stores behind URLs: the package and the variables of each, and whether an error is about access to it."""

import logging
from collections.abc import Mapping
from typing import NamedTuple


class Store(NamedTuple):
    """A kind of store."""

    extra: str
    """Extra of the program that has its package; TensorFlow knows the store by the same name."""
    credentials: str
    """Variables that name its credentials."""
    address: str
    """Variable that holds its address."""
    upload: str
    """Command that uploads a folder, without its arguments: the folder, and its URL."""


_S3 = Store("s3", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "aws s3 sync")
_GS = Store("gs", "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "gcloud storage rsync --recursive")
STORES: Mapping[str, Store] = {"s3": _S3, "s3a": _S3, "gs": _GS, "gcs": _GS}
"""Stores by the protocol of their URLs."""


def of(url: str) -> Store | None:
    """Returns the store of a URL; None if it is another that fsspec may open.

    Example:
        of("gs://bucket/models").extra  # "gs"
    """
    return STORES.get(url.partition("://")[0])


def denies_access(error: Exception) -> bool:
    """Returns whether an error of a store is about credentials: none, wrong ones, or ones without access.

    The errors of botocore and Google have no class in common, and are not imported.
    """
    kind = type(error).__name__
    # gcsfs raises the first kind for 401, and an `OSError` for 403.
    denied = kind == "HttpError" and getattr(error, "code", None) in (401, 403)
    expired = kind == "RefreshError" or "Credential" in kind
    return isinstance(error, PermissionError) or denied or expired or str(error).startswith("Forbidden")


def silence_logs() -> None:
    """Stops the logs of gcsfs, which hold the stack trace of each error that it also raises."""
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
