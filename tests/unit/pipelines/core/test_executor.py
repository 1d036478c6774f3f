import pytest

from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import AttemptError, Outcome, attempt


def raising(error):
    raise error


def test_what_a_function_returns_is_its_result():
    assert attempt("a", "7", int) == Outcome("a", 7, None)


def test_the_message_of_a_user_error_is_its_error():
    assert attempt("a", UserError("so"), raising) == Outcome("a", None, "so")


def test_a_task_that_may_succeed_elsewhere_counts_as_lost():
    assert attempt("a", AttemptError("so"), raising) == Outcome("a", None, "so", lost=True)


def test_another_exception_shows_where_it_was_raised():
    error = attempt("a", ZeroDivisionError("so"), raising).error
    assert error.splitlines()[-1] == "ZeroDivisionError: so"
    assert "in raising" in error


def test_a_full_disk_is_no_outcome():
    with pytest.raises(UserError, match=r"the disk is full \(\[Errno 28\]"):
        attempt("a", OSError(28, "No space left on device"), raising)


def test_a_signal_is_no_outcome():
    with pytest.raises(StoppedError):
        attempt("a", StoppedError("stopped", 15), raising)
