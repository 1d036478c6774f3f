from pipelines.studies.framework.results import Results
from pipelines.studies.papers.depth_hundred import BLOCKS, NETS, STUDY, make_tables
from pipelines.studies.shared import nets
from tests.unit.pipelines.studies.fake import result


def test_seconds_are_those_of_the_runs_that_did_not_diverge(tmp_path):
    first, *_ = names = [nets.name(net, BLOCKS) for net in NETS]
    runs = [
        result(first, STUDY.arms[first].config, seed, accuracy, tmp_path) for seed, accuracy in ((0, 0.9), (1, None))
    ]
    (table,) = make_tables(Results(runs))
    assert len(table.rows) == len(names)
    assert table.rows[0][-1] == "30 (n = 1, 1 more diverged)"
