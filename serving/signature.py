"""The signature of a model version: Ed25519 over `manifest.json`, which has the SHA-256 of every other file.

It is stored next to the manifest as 64 raw bytes, which OpenSSL can create and verify too:

    openssl genpkey -algorithm ed25519 -out signing.pem
    openssl pkey -in signing.pem -pubout -out signing.pub
    openssl pkeyutl -verify -pubin -inkey signing.pub -rawin -in manifest.json -sigfile manifest.json.sig

The endpoint needs only the public key. `cryptography` is imported where it is used, so that nothing else needs it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving import regular_files
from serving.errors import ModelError, ServingError, in_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = "manifest.json.sig"
SIZE = 64
# Maximum size of a manifest in bytes; each class and layer takes some hundred.
MANIFEST = 2**26
# Maximum size of a key file in bytes.
_KEY = 2**16
# Variable with the passphrase of a signing key.
PASSPHRASE = "HIGHWAY_SIGNING_PASSPHRASE"
_MAKE = "Make one with `openssl genpkey -algorithm ed25519 -out signing.pem`."
_TAKE = "Take it from the private one with `openssl pkey -in signing.pem -pubout -out signing.pub`."


class KeyFileError(ServingError):
    """A key file is missing, or has no key of the right kind."""


def private_key(path: Path, passphrase: bytes | None = None) -> "Ed25519PrivateKey":
    """Reads a signing key.

    Args:
        path: a PEM file (PKCS #8), as OpenSSL writes it.
        passphrase: passphrase of the file; None for a file without one.

    Raises:
        KeyFileError: it is not an Ed25519 private key, or cannot be read or decrypted.

    Example:
        private_key(Path("signing.pem"))
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(path)
    if b"PUBLIC KEY" in content and b"PRIVATE KEY" not in content:
        raise KeyFileError(f"{path} holds no private key, but a public one. Give the private key that it belongs to.")
    encrypted = b"ENCRYPTED" in content
    if encrypted and passphrase is None:
        raise KeyFileError(f"{path} is encrypted. Set {PASSPHRASE} to its passphrase.")
    if passphrase is not None and b"PRIVATE KEY" in content and not encrypted:
        raise KeyFileError(f"{path} is not encrypted, and {PASSPHRASE} is set. Unset it, or name the encrypted key.")
    try:
        key = load_pem_private_key(content, passphrase if encrypted else None)
    except Exception as error:
        if encrypted:
            raise KeyFileError(f"{path} cannot be decrypted ({error}). Check the passphrase in {PASSPHRASE}.") from None
        # Not with the message of `cryptography`, which is of several sentences, about its own documentation.
        raise KeyFileError(f"{path} holds no private key in PEM that can be read. {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is a key of another kind. Expected Ed25519. {_MAKE}")
    return key


def public_key(path: Path) -> bytes:
    """Reads a public key.

    Args:
        path: a PEM file, as OpenSSL writes it.

    Returns:
        The 32 bytes of the key.

    Raises:
        KeyFileError: it is not an Ed25519 public key, or cannot be read.

    Example:
        public_key(Path("signing.pub"))
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read(path)
    if b"PRIVATE KEY" in content:
        raise KeyFileError(
            f"{path} is a private key, which does not belong on an endpoint. Give the public one. {_TAKE}"
        )
    try:
        key: Any = load_pem_public_key(content)
    except Exception:
        raise KeyFileError(f"{path} holds no public key in PEM. {_TAKE}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} is a key of another kind. Expected Ed25519. {_MAKE}")
    return key.public_bytes_raw()


def sign(folder: Path, key: "Ed25519PrivateKey") -> bytes:
    """Returns the signature of a version, to be written to `NAME` in its folder.

    Args:
        folder: the version, complete.
        key: the result of `private_key`.

    Raises:
        ModelError: its manifest cannot be read.

    Example:
        (folder / NAME).write_bytes(sign(folder, private_key(Path("signing.pem"))))
    """
    path = folder / "manifest.json"
    try:
        return key.sign(regular_files.read(path, MANIFEST))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error


def check(folder: Path, content: bytes, trusted: Sequence[bytes]) -> None:
    """Checks the signature of a version.

    Args:
        folder: the version.
        content: its manifest, as the bytes that are parsed afterwards.
        trusted: public keys, 32 bytes each; one of them must have signed.

    Raises:
        ModelError: it is not signed by one of these keys.

    Example:
        check(folder, (folder / "manifest.json").read_bytes(), [public_key(Path("signing.pub"))])
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    path = folder / NAME
    try:
        if (size := regular_files.size(path)) != SIZE:
            raise ModelError(
                f"{path} has {in_bytes(size)} and is no signature, which has {SIZE}. Copy the version again from "
                "where it was signed, or sign it again there."
            )
        signature = regular_files.read(path, SIZE)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} is not signed, and only signed versions are served (--trust). Sign it where it was exported: "
            "`highway export VERSION --verify --sign KEY`."
        ) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    for key in trusted:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
        except InvalidSignature:
            continue
        return
    raise ModelError(
        f"{path} is not a signature of its manifest.json by a trusted key: another key signed it, or the manifest was "
        "changed afterwards. Trust the right key (--trust), or copy the version again from where it was exported."
    )


def _read(path: Path) -> bytes:
    try:
        return regular_files.read(path, _KEY)
    except OSError as error:
        raise KeyFileError(
            f"the key {path} cannot be read: {error.strerror}. Check its path and permissions."
        ) from None
