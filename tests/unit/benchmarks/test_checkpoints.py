import pytest

from benchmarks.checkpoints import Found, found
from pipelines.training.checkpoint import SHARE


def test_epochs_with_a_save_and_after_it_are_set_against_the_two_that_follow():
    epochs = [9.0, 1.5, 1.1, 1.0, 1.0, 1.7, 1.1, 1.0, 1.2, 1.4]
    saves = [[], [0.2, 0.2], [], [], [], [0.2], [], [], [], [0.4]]
    assert found(epochs, saves) == Found(saving=pytest.approx(2.7), other=pytest.approx(2.1), save=pytest.approx(0.3))


def test_a_turn_in_which_a_later_epoch_has_a_save_does_not_count():
    epochs = [1.5, 1.1, 1.0, 1.0] * 2
    saves = [[0.4], [], [0.1], [], [0.4], [], [], []]
    assert found(epochs, saves).save == 0.4
    with pytest.raises(ValueError, match="train for more epochs"):
        found(epochs[:4], saves[:4])


def test_the_share_of_the_time_grows_with_what_follows_a_save():
    assert Found(saving=2.4, other=2.0, save=0.4).share == pytest.approx(100 * SHARE)
    assert Found(saving=3.2, other=2.0, save=0.4).share == pytest.approx(300 * SHARE)
