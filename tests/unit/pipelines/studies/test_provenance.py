"""Where the numbers of every study come from."""

import pytest

from pipelines import studies
from pipelines.recipes.provenance import flat
from tests.toy_data import changed_fields

ARMS = [(name, arm) for name in studies.names() for arm in studies.get(name).arms]


@pytest.mark.parametrize(("name", "arm"), ARMS)
def test_each_number_that_is_chosen_has_one(name, arm):
    chosen = studies.get(name).arms[arm]
    tags = chosen.provenance
    tagged = [*tags.recorded, *tags.count_matched, *tags.assumed]
    values = flat(chosen.config)
    assert len(tagged) == len(set(tagged))
    assert set(tagged) <= set(values)
    assert changed_fields(chosen.config) <= set(tagged)
