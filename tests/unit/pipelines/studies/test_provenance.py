"""Provenance of the numbers of every study."""

import pytest

from pipelines import studies
from pipelines.core.frozen import flat
from tests.toy_data import changed_fields

FULL = {name: studies.get(name) for name in studies.names()}
SHORT = {f"{name} short": study.short for name, study in FULL.items() if study.short}
STRICT = ("depth-contrast", "depth-twins", "depth-hundred", "depth-routes", "data-movement")
"""Studies that tag only the fields they change, and the epochs, which they tag even at the default of 1."""


@pytest.mark.parametrize("name", FULL | SHORT)
def test_each_changed_number_of_each_arm_has_one_tag(name):
    for arm in (FULL | SHORT)[name].arms.values():
        tags = arm.provenance
        tagged = [*tags.recorded, *tags.count_matched, *tags.assumed]
        assert len(tagged) == len(set(tagged))
        assert changed_fields(arm.config) <= set(tagged) <= set(flat(arm.config))
        if name in STRICT:
            assert changed_fields(arm.config) | {"epochs"} == set(tagged)
