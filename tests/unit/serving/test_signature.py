"""Signed versions; keys and signatures are interchangeable with OpenSSL's."""

import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from serving import manifest, signature
from serving.errors import ModelError
from serving.model import open_model
from serving.signature import KeyFileError, private_key, public_key, sign

PASSPHRASE = b"correct horse"


def write(path, key, encryption=None):
    encryption = encryption or serialization.NoEncryption()
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(*kinds, encryption))
    public = key.public_key().public_bytes(kinds[0], serialization.PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture
def key(tmp_path):
    return write(tmp_path / "signing.pem", Ed25519PrivateKey.generate())


@pytest.fixture
def other(tmp_path):
    return write(tmp_path / "other.pem", Ed25519PrivateKey.generate())


@pytest.fixture
def trusted(key):
    return [public_key(key.with_suffix(".pub"))]


@pytest.fixture
def signed(version, key):
    (version / signature.NAME).write_bytes(sign(version, private_key(key)))
    return version


def test_a_version_signed_by_any_of_several_keys_is_opened(signed, trusted, other):
    assert open_model(signed, trusted=trusted).manifest.name == "tiny"
    assert open_model(signed, trusted=[public_key(other.with_suffix(".pub")), *trusted]).folder == signed
    assert open_model(signed).folder == signed


def test_an_unsigned_version_is_refused(version, trusted):
    with pytest.raises(ModelError, match=r"is not signed, and only signed versions are served"):
        open_model(version, trusted=trusted)


def test_a_version_signed_by_another_key_is_refused(signed, other):
    with pytest.raises(ModelError, match="not a signature of its manifest"):
        open_model(signed, trusted=[public_key(other.with_suffix(".pub"))])


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (b"", "has 0 bytes and is no signature, which has 64"),
        (bytes(64), "not a signature of its manifest"),
        (bytes(65), "has 65 bytes and is no signature, which has 64"),
    ],
)
def test_a_damaged_signature_is_refused(signed, trusted, damaged, said):
    (signed / signature.NAME).write_bytes(damaged)
    with pytest.raises(ModelError, match=rf"manifest\.json\.sig {said}|manifest\.json\.sig is {said}"):
        open_model(signed, trusted=trusted)


def test_a_version_changed_after_signing_is_refused(signed, trusted):
    whole = (signed / manifest.NAME).read_text()
    (signed / manifest.NAME).write_text(json.dumps({**json.loads(whole), "version": 2}))
    with pytest.raises(ModelError, match="the manifest was changed"):
        open_model(signed, trusted=trusted)
    (signed / manifest.NAME).write_text(whole)
    (signed / "variables" / "added").touch()
    with pytest.raises(ModelError, match="variables/added is not in the manifest"):
        open_model(signed, trusted=trusted)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="OpenSSL's program is not installed")
def test_openssl_makes_keys_and_signatures_and_checks_ours(version, signed, tmp_path):
    def openssl(*words):
        return subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    openssl("genpkey", "-algorithm", "ed25519", "-out", "made.pem")
    openssl("pkey", "-in", "made.pem", "-pubout", "-out", "made.pub")
    given = ["-rawin", "-in", version / manifest.NAME]
    openssl("pkeyutl", "-sign", "-inkey", "made.pem", *given, "-out", version / signature.NAME)
    open_model(version, trusted=[public_key(tmp_path / "made.pub")])
    (version / signature.NAME).write_bytes(sign(version, private_key(tmp_path / "made.pem")))
    check = ["-verify", "-pubin", "-inkey", "made.pub", *given, "-sigfile", version / signature.NAME]
    assert "Verified Successfully" in openssl("pkeyutl", *check)


def test_an_encrypted_key_needs_its_passphrase(tmp_path):
    path = write(
        tmp_path / "secret.pem", Ed25519PrivateKey.generate(), serialization.BestAvailableEncryption(PASSPHRASE)
    )
    assert private_key(path, PASSPHRASE)
    for passphrase, said in (
        (None, "is encrypted. Set HIGHWAY_SIGNING_PASSPHRASE to its passphrase"),
        (b"wrong", "cannot be decrypted .* Check the passphrase in HIGHWAY_SIGNING_PASSPHRASE"),
    ):
        with pytest.raises(KeyFileError, match=rf"secret\.pem {said}"):
            private_key(path, passphrase)


def test_a_passphrase_of_a_key_without_one_is_refused(key):
    with pytest.raises(KeyFileError, match=r"signing\.pem is not encrypted, and HIGHWAY_SIGNING_PASSPHRASE is set"):
        private_key(key, PASSPHRASE)


def test_other_keys_are_refused_by_name(tmp_path, key):
    curve = write(tmp_path / "curve.pem", generate_private_key(SECP256R1()))
    with pytest.raises(KeyFileError, match=r"curve\.pem is a key of another kind. Expected Ed25519"):
        private_key(curve)
    with pytest.raises(KeyFileError, match=r"curve\.pub is a key of another kind"):
        public_key(curve.with_suffix(".pub"))
    with pytest.raises(KeyFileError, match="does not belong on an endpoint"):
        public_key(key)
    with pytest.raises(KeyFileError, match=r"holds no private key, but a public one\. Give the private key"):
        private_key(key.with_suffix(".pub"))
    (tmp_path / "text").write_text("no key")
    for read in (private_key, public_key):
        with pytest.raises(KeyFileError, match="text holds no"):
            read(tmp_path / "text")
        with pytest.raises(KeyFileError, match=r"^the key .*missing cannot be read: No such file"):
            read(tmp_path / "missing")


def test_what_is_no_key_is_refused_in_our_own_words(tmp_path):
    path = tmp_path / "junk"
    path.write_text("hi")
    for read, kind in ((public_key, "public key in PEM"), (private_key, "private key in PEM that can be read")):
        with pytest.raises(KeyFileError, match=rf"junk holds no {kind}\. (Take it from|Make one with)"):
            read(path)
