import errno
from functools import partial

import pytest

from pipelines.core.errors import LostHostError, UserError, disk_is_full, nearest, reason, unknown
from pipelines.core.guard import guarded


def test_unknown_names_the_nearest_and_all_choices():
    error = unknown("recipe", "mnist_conv_33", ["mnist_conv_32", "cifar10_19"])
    assert isinstance(error, UserError)
    assert str(error) == (
        "there is no recipe 'mnist_conv_33'. Did you mean 'mnist_conv_32'? Choices: cifar10_19, mnist_conv_32."
    )


def test_unknown_lists_many_choices_only_if_none_is_near():
    many = [f"mnist_dense_{depth}" for depth in range(20)]
    assert str(unknown("recipe", "mnist_dens_7", many)) == (
        "there is no recipe 'mnist_dens_7'. Did you mean 'mnist_dense_7'?"
    )
    assert str(unknown("recipe", "zzz", many)).endswith("mnist_dense_9.")


def test_unknown_proposes_nothing_without_a_similar_name():
    assert "Did you mean" not in str(unknown("verb", "zzz", ["train", "export"]))


def test_nearest():
    assert nearest("trian", ["export", "train"]) == "train"
    assert nearest("zzz", ["export", "train"]) is None
    assert nearest("train", []) is None


def test_the_status_says_whether_repeating_helps():
    def fail(error):
        raise error

    statuses = [guarded("highway", partial(fail, error("what happened"))) for error in (UserError, LostHostError)]
    assert statuses == [2, 75]


def test_a_file_without_permission_is_named(capsys):
    def read():
        raise PermissionError(errno.EACCES, "Permission denied", "/data/rows.csv")

    assert guarded("highway", read) == 2
    assert capsys.readouterr().err == (
        "highway: error: /data/rows.csv cannot be used: Permission denied. Change its permissions, or name another "
        "path.\n"
    )


def test_an_error_of_permissions_that_names_no_file_is_a_bug():
    def act():
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(PermissionError):
        guarded("highway", act)


def test_a_framework_error_loses_its_internals():
    error = Exception("{{function_node __wrapped__X}} truncated record at 5.\nagain [Op:IteratorGetNext] name: ")
    assert reason(error) == "truncated record at 5. again"
    assert reason(KeyError()) == "KeyError"


def test_a_full_disk_is_found_in_the_message_of_a_framework():
    error = RuntimeError("{{function_node __wrapped__SaveV2}} models/part-00000; No space left on device [Op:SaveV2]")
    assert disk_is_full(error) == "models/part-00000; No space left on device"
    assert disk_is_full(RuntimeError("no such file")) == ""
