from pipelines.core.errors import UserError, nearest, unknown


def test_unknown_names_the_nearest_and_all_choices():
    error = unknown("recipe", "mnist_conv_33", ["mnist_conv_32", "cifar10_19"])
    assert isinstance(error, UserError)
    assert str(error) == (
        "there is no recipe 'mnist_conv_33'. Did you mean 'mnist_conv_32'? Choices: cifar10_19, mnist_conv_32."
    )


def test_unknown_proposes_nothing_without_a_similar_name():
    assert "Did you mean" not in str(unknown("verb", "zzz", ["train", "export"]))


def test_nearest():
    assert nearest("trian", ["export", "train"]) == "train"
    assert nearest("zzz", ["export", "train"]) is None
    assert nearest("train", []) is None
