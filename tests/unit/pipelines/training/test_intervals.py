import pytest

from pipelines.training.intervals import SHARE, Saves


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def trained(seconds_a_step, seconds_a_save, steps):
    """The steps that are saved, and the time that all took."""
    clock = Clock()
    saves, kept = Saves("auto", 0, clock), []
    for step in range(1, steps + 1):
        clock.now += seconds_a_step
        if saves.due(step):
            clock.now += seconds_a_save
            saves.done(step, seconds_a_save)
            kept.append(step)
    return kept, clock.now - 100


@pytest.mark.parametrize("save", [0.001, 0.02, 1.0])
@pytest.mark.parametrize("step", [0.001, 0.1])
def test_all_saves_but_the_first_cost_their_share(step, save):
    kept, seconds = trained(step, save, steps=20_000)
    assert kept[0] == 1
    assert (len(kept) - 1) * save <= SHARE * seconds
    # And no less than they may.
    assert len(kept) == 20_000 or (len(kept) + 1) * save > SHARE * (seconds - step)


def test_a_slow_save_puts_off_the_next_ones():
    clock = Clock()
    saves = Saves("auto", 0, clock)
    saves.done(1, 0.1)
    clock.now += 0.3 / SHARE
    assert saves.due(2)
    saves.done(2, 2.0)
    clock.now += 3 / SHARE
    assert not saves.due(3)
    clock.now += 1 / SHARE
    assert saves.due(4)


@pytest.mark.parametrize(
    ("interval", "start", "execution", "kept"),
    [
        (1, 0, 1, [1, 2, 3, 4, 5, 6]),
        (3, 0, 1, [3, 6]),
        (3, 0, 2, [4, 6]),
        (4, 2, 2, [4, 8]),
        (100, 0, 1, []),
    ],
)
def test_a_number_is_of_steps(interval, start, execution, kept):
    saves, found = Saves(interval, start), []
    for step in range(start + execution, start + 6 * execution + 1, execution):
        if step > max([6, *kept]):
            break
        if saves.due(step):
            saves.done(step, 0.0)
            found.append(step)
    assert found == kept
