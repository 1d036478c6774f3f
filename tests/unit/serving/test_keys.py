"""Keys of clients, from the environment and from a file that changes."""

import errno
import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import regular_files
from serving.keys import Keys, KeysError, RateLimit


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# clients\nalice first\n\nbob  other \n")
    return path


def replace(path, text):
    """Replaces a file as an editor does, which even a clock that stands still cannot hide."""
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.rename(path)


def test_keys_have_names(file):
    keys = Keys("söcret", file)
    assert bool(keys)
    sent = ("söcret", "first", "other", "", "firs", "first ", "alice", "alice first")
    assert [keys.find(one.encode()) for one in sent] == ["default", "alice", "bob", *[None] * 5]
    assert not Keys()
    assert Keys().find(b"") is None


def test_editors_may_add_a_byte_order_mark_and_spaces_before_a_comment(file):
    file.write_text("\ufeffalice first\r\n  # clients\r\n\t# of others\r\nbob other\r\n")
    keys = Keys(None, file)
    assert [keys.find(one) for one in (b"first", b"other")] == ["alice", "bob"]
    file.write_text("\ufeff# clients\nalice first\n")
    assert Keys(None, file).find(b"first") == "alice"


@pytest.mark.parametrize("only", ["secret\n", "secret\r\n", " secret "])
def test_space_around_the_key_of_the_environment_is_no_part_of_it(only):
    assert Keys(only).find(b"secret") == "default"


@pytest.mark.parametrize(("only", "said"), [("s\udcff", "not UTF-8"), ("", "is empty"), (" \n", "is empty")])
def test_a_key_that_no_client_can_send_is_refused(only, said):
    with pytest.raises(KeysError, match=rf"the key that clients must send .*{said}.* Set HIGHWAY_API_KEY to") as error:
        Keys(only)
    error.value.args[0].encode()


def test_a_key_is_revoked_even_if_the_file_cannot_be_read_at_first(file, caplog, monkeypatch):
    keys = Keys(None, file)
    replace(file, "bob other\n")

    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(regular_files, "read", fail)
        for _ in range(3):
            keys.refresh()
    assert keys.find(b"first") == "alice"
    keys.refresh()
    assert (keys.find(b"first"), keys.find(b"other")) == (None, "bob")
    assert [one.message for one in caplog.records if one.levelno > logging.INFO] == ["keys not changed"]


def test_a_key_is_rotated_without_a_restart(file, caplog):
    caplog.set_level(logging.INFO)
    keys = Keys(None, file)
    steps = {"alice first\nalice second\n": ["alice", "alice"], "alice second\n": [None, "alice"]}
    for text, expected in steps.items():
        replace(file, text)
        keys.refresh()
        keys.refresh()
        assert [keys.find(b"first"), keys.find(b"second")] == expected
    assert [one.message for one in caplog.records] == ["keys changed"] * 2
    assert "second" not in str([vars(one) for one in caplog.records])


@pytest.mark.parametrize("text", ["", "alice\n", "alice new\nal/ice other\n", "alice new\nbob new\n", None])
def test_keys_stay_valid_while_the_file_is_not(file, text, caplog):
    keys = Keys(None, file)
    if text is None:
        file.unlink()
    else:
        replace(file, text)
    keys.refresh()
    keys.refresh()
    assert (keys.find(b"first"), keys.find(b"new")) == ("alice", None)
    (line,) = caplog.records
    assert (line.message, str(file) in line.why, "new" in line.why.replace(str(file), "")) == (
        "keys not changed", True, False,
    )  # fmt: skip
    with pytest.raises(KeysError):
        Keys(None, file)
    replace(file, "carol new\n")
    keys.refresh()
    assert (keys.find(b"first"), keys.find(b"new")) == (None, "carol")


def test_a_pipe_does_not_block_the_start(tmp_path):
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(KeysError, match="not a regular file"):
        Keys(None, tmp_path / "keys")


@given(
    rate=st.floats(0.1, 50),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_no_more_requests_pass_than_the_rate_allows(rate, pauses):
    now = 0.0
    limit = RateLimit(rate, lambda: now)
    accepted = []
    for pause in pauses:
        now += pause
        wait = limit.wait("a")
        if not wait:
            accepted.append(now)
        else:
            now += wait * 1.000001
            assert limit.wait("a") == 0
            accepted.append(now)
    assert len(accepted) <= max(rate, 1) + rate * now + 1e-3
    # Another name has its own.
    assert limit.wait("b") == 0


def test_a_burst_is_what_a_second_allows():
    limit = RateLimit(5, lambda: 7.0)
    assert [limit.wait("a") == 0 for _ in range(7)] == [True] * 5 + [False] * 2
    assert limit.wait("a") == pytest.approx(0.2)
