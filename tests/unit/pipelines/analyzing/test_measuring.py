import pytest

from highway_keras.analysis.layout import Call, Layout
from pipelines.analyzing.measuring import batch_size


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (Call("small", None, 4), 500),
        (Call("deep", 999, 50), 335),
        (Call("wide", None, 80, 4 * 32 * 32), 51),
        (Call("huge", None, 64, 1000 * 1000), 1),
    ],
)
def test_large_nets_are_read_in_small_batches(call, size):
    assert batch_size(Layout((call,))) == size
