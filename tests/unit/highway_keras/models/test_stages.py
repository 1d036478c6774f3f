from highway_keras.models.stages import Stage, layers, parameters, scaled, with_resize

STAGES = (Stage(16, blocks=(3,)), Stage(32, blocks=(3, 1)), Stage(10, entry=1))


def test_scaling_rounds_and_keeps_at_least_one_filter():
    assert [stage.filters for stage in scaled(STAGES, 1.4)] == [22, 45, 14]
    assert [stage.filters for stage in scaled(STAGES, 0.01)] == [1, 1, 1]
    assert [stage.blocks for stage in scaled(STAGES, 2)] == [(3,), (3, 1), ()]


def test_layers_are_convolutions_hidden_layer_and_classifier():
    assert layers(STAGES, hidden=None) == 2 + 3 + 1 + 1
    assert layers(STAGES, hidden=5) == 2 + 3 + 1 + 1 + 1


def test_resizing_turns_an_entry_into_a_block_only_where_it_does_nothing_else():
    first, second, third = with_resize(STAGES, "zero_pad")

    assert first == STAGES[0]
    assert (second.entry, second.blocks) == (None, (3, 3, 1))
    assert third == STAGES[2]  # no blocks
    for kept in (Stage(16, blocks=(3,)), Stage(20, padding="valid", blocks=(3,)), Stage(20, entry=None, blocks=(3,))):
        assert with_resize((Stage(16), kept), "subsample")[1] == kept
    assert with_resize(STAGES, "plain") == STAGES


def test_normalization_adds_a_gain_to_every_convolution_but_gates():
    for kind in ("highway", "plain", "residual"):
        one, other = (
            parameters(STAGES, (8, 8, 3), 2, 5, kind, batch_normalization=normalized) for normalized in (False, True)
        )
        assert other - one == 2 * 16 + 3 * 32 + 10 + 5


def test_parameter_counts_equal_a_manual_count():
    stages = (Stage(4, entry=5, padding="valid", blocks=(3,), pool=(3, 2)), Stage(6, entry=1))
    convolutions = (25 * 2 + 1) * 4 + (1 * 4 + 1) * 6
    block = (9 * 4 + 1) * 4
    # 11x10 is 7x6 without padding, and 4x3 after pooling that rounds up
    for kind, maps in (("highway", 2), ("plain", 1), ("residual", 1)):
        assert parameters(stages, (11, 10, 2), 3, None, kind) == convolutions + maps * block + (4 * 3 * 6 + 1) * 3
    assert parameters(stages, (11, 10, 2), 3, 7, "plain") == convolutions + block + (4 * 3 * 6 + 1) * 7 + (7 + 1) * 3
