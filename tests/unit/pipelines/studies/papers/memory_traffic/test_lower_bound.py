import pytest

from pipelines.studies.papers.memory_traffic.lower_bound import PASSES, arrays, least


def test_passes_of_a_block():
    # Forward and backward; the highway block has two maps, the blend of three arrays, and the carried gradient.
    assert {kind: arrays(passes) for kind, passes in PASSES.items()} == {"plain": 12, "residual": 17, "highway": 31}


def test_weights_go_with_the_parameters_and_activations_with_the_batch():
    def found(**changes):
        return least("plain", **{"blocks": 3, "units": 5, "batch": 8, "inputs": 20, "parameters": 100} | changes)

    one = found()
    assert one.weights == 4 * 11 * 100
    assert one.activations == 4 * (8 * (2 * 20 + 8 * 5) + 3 * 12 * 8 * 5)
    assert one.total == one.weights + one.activations
    assert found(batch=16) == (one.weights, 2 * one.activations)
    assert found(parameters=200) == (2 * one.weights, one.activations)


@pytest.mark.parametrize(("kind", "passes"), [("highway", 31), ("residual", 17)])
def test_another_block_adds_its_passes(kind, passes):
    deep, flat = (
        least(kind, blocks=blocks, units=5, batch=8, inputs=20, parameters=0).activations for blocks in (7, 6)
    )
    assert deep - flat == 4 * passes * 8 * 5
