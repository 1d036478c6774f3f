from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.data.own.item import Item
from pipelines.data.own.survey import SurveyedImage, assign, assign_keys, held_out, keys, refuse_divided


def images(labels, groups=None, splits=None, start=0):
    return [
        SurveyedImage(
            Item(str(number), label, bytes, splits[number] if splits else None, groups[number] if groups else None),
            f"digest {start + number}",
            (1, 1),
            False,
        )
        for number, label in enumerate(labels)
    ]


def test_shares_are_about_those_asked_for():
    counts = Counter(assign(images("ab" * 5000), validation=0.1, test=0.2))
    assert counts["test"] == pytest.approx(2000, abs=150)
    assert counts["validation"] == pytest.approx(1000, abs=120)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=60, max_size=120), st.integers(0, 10**6), st.integers(30, 59))
def test_an_image_stays_where_it_is_when_others_are_added(labels, start, before):
    # Every class has many images, so that none is moved to an empty split.
    labels = list("abc" * 20) + labels
    later = assign(images(labels, start=start))
    earlier = assign(images(labels[: 60 + before - 30], start=start))
    moved = [one for one, other in zip(earlier, later, strict=False) if one != other]
    # Only the lowest image of a class may have been moved to a split that the class was missing.
    assert len(moved) <= 6


def test_small_classes_are_in_every_split():
    for start in range(0, 1000, 7):
        found = assign(images("aaab", start=start))
        assert set(found[:3]) == {"train", "validation", "test"}
        assert found[3] == "train"


def test_groups_and_equal_images_stay_together():
    labels = ["a", "b"] * 200
    groups = [str(number // 4) for number in range(400)]
    found = assign(images(labels, groups))
    assert all(len(set(found[start : start + 4])) == 1 for start in range(0, 400, 4))
    twins = images("ab" * 100) + images("ab" * 100)
    found = assign(twins)
    assert found[:200] == found[200:]


def test_splits_of_the_data_are_kept():
    splits = ["test", "train", "validation"]
    assert assign(images("abc", splits=splits)) == splits
    assert assign([]) == []


def held(found, count):
    return held_out([image.item.split for image in found], keys(found), [image.item.labels for image in found], count)


def test_held_out_images_of_a_group_or_of_the_same_content_stay_together():
    splits = ["train"] * 400 + ["test"] * 100
    grouped = images("ab" * 250, [str(number // 4) for number in range(500)], splits)
    found = held(grouped, 40)
    assert found.count("validation") == pytest.approx(40, abs=16)
    assert found[400:] == splits[400:]
    assert all(len(set(found[start : start + 4])) == 1 for start in range(0, 500, 4))
    twins = images("ab" * 100, splits=["train"] * 200) * 2
    found = held(twins, 40)
    assert found[:200] == found[200:]
    assert set(found) == {"train", "validation"}
    with pytest.raises(UserError, match=r"--validation 3 would separate examples of one group, or copies"):
        held(images("ab" * 4, ["p", "q"] * 4, ["train"] * 8), 3)


@pytest.mark.parametrize(
    ("groups", "splits", "count"),
    [
        (None, ["train"] * 6, 2),  # `sources` holds out as many as asked for.
        ("pppqqq", ["train"] * 5 + ["validation"], 2),
        ("pppqqq", ["train"] * 6, 0),
        ("pppqqq", ["train"] * 6, 6),
    ],
)
def test_splits_are_kept_if_none_is_to_be_held_out_together(groups, splits, count):
    assert held(images("ababab", groups, splits), count) == splits


def test_splits_that_divide_a_group_are_refused():
    refuse_divided(["p", None, "q", None], ["train", "train", "test", "test"])
    with pytest.raises(UserError, match=r"two splits for 2: p, q\. Correct the splits, or leave out --group"):
        refuse_divided(["p", "q", "p", "q", "r"], ["train", "test", "test", "validation", "train"])


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcde")).map(tuple), min_size=30, max_size=60), st.integers(0, 10**6))
def test_every_class_of_several_is_trained_on(labels, start):
    found = assign(images(labels, start=start))
    assert {"train", "test", "validation"} >= set(found)
    trained = {name for names, split in zip(labels, found, strict=True) if split == "train" for name in names}
    assert trained == {name for names in labels for name in names}


def test_classes_of_groups_are_trained_on():
    # Without a look at the other class of a group, A would be in no training group.
    groups = [("p677-0", "AC"), ("p677-1", "C"), ("p677-2", "A"), ("p677-3", "C"), ("p677-4", "A")]
    keys, labels = zip(*((f"group {group}", (label,)) for group, names in groups for label in names), strict=True)
    found = assign_keys(keys, labels)
    assert {label for (label,), split in zip(labels, found, strict=True) if split == "train"} == {"A", "C"}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abc")), min_size=1, max_size=20), st.integers(0, 10**6))
def test_every_class_of_any_groups_is_trained_on(rows, start):
    found = assign(images([label for _, label in rows], [f"{start} {group}" for group, _ in rows]))
    trained = {label for (_, label), split in zip(rows, found, strict=True) if split == "train"}
    assert trained == {label for _, label in rows}
