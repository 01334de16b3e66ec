"""Models in their order with intervals, and the scale that one seed or rule far away does not stretch."""

import pytest
from report_runs import RULES, PlannedRun, build, printed, run

from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.ranking import Scale, find_range, rank_models

VALUES = {
    "mamba": (0.60, 0.62, 0.64),
    "lru": (0.70, 0.71, 0.72),
    "s5": (0.65, 0.66, 0.17),
    "s4": (None, 0.62, 0.64),
}


def make_table() -> Table:
    specs = [PlannedRun("listops", name, seed) for name in VALUES for seed in range(3)]
    values = [value for of_model in VALUES.values() for value in of_model]
    records = [
        run(spec, value, status="finished" if value else "diverged", baselines=RULES)
        for spec, value in zip(specs, values, strict=True)
    ]
    return build(specs, records, [printed("Mamba", "61.50", model="mamba"), printed("S6", "59.60")])


def test_models_are_in_order_with_their_intervals() -> None:
    [ranking] = rank_models(make_table())
    assert [(row.name, row.reported) for row in ranking.rows] == [
        *(("lru", None), ("s4", None), ("Mamba", 61.5), ("S6", 59.6), ("s5", None)),
    ]
    mamba = ranking.rows[2]
    assert mamba.measured == pytest.approx(62.0)
    # Student's t with two degrees of freedom: 4.3027 * 2 / sqrt(3)
    assert [mamba.low, mamba.high] == pytest.approx([62 - 4.9683, 62 + 4.9683], abs=1e-3)
    assert [row.failed for row in ranking.rows] == ["", "1 of 3 diverged", "", "", ""]
    assert [(rule.name, rule.value) for rule in ranking.rules] == [
        ("majority", 17.0),
        ("root operator only", 36.3),
    ]


def test_a_single_seed_has_the_interval_of_its_test_examples() -> None:
    spec = PlannedRun("listops", "mamba")
    [ranking] = rank_models(build([spec], [run(spec, 0.5)]))
    assert [ranking.rows[0].low, ranking.rows[0].high] == pytest.approx([47.8, 52.2], abs=0.05)


def test_what_is_far_from_the_rest_is_beyond_the_scale_and_said() -> None:
    [ranking] = rank_models(make_table())
    assert not ranking.scale.has(17.0)
    assert ranking.scale.place(17.0) == 0
    assert all(ranking.scale.has(row.measured) for row in ranking.rows if row.measured)
    assert ranking.notes == [
        "Beyond the scale of Accuracy (%): a seed of s5 (17.00), majority (17.00), root operator only (36.30)"
    ]


def test_a_table_without_results_has_no_ranking() -> None:
    spec = PlannedRun("listops", "mamba")
    assert rank_models(build([spec], [run(spec, None, status="diverged")])) == []


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((46, 62), [50, 55, 60]),
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((57.1, 57.26), [57.1, 57.15, 57.2, 57.25]),
    ],
)
def test_ticks_are_round(ends: tuple[float, float], ticks: list[float]) -> None:
    assert Scale(*ends).ticks == pytest.approx(ticks)


def test_a_range_leaves_out_what_is_far() -> None:
    assert find_range([]) == (0.0, 1.0)
    assert find_range([5.0]) == (5.0, 5.0)
    assert find_range([5.0], [4.9, 5.2, 9.0], least=1.0) == (4.9, 5.2)
    assert find_range([80.0, 81.0, 82.0, 81.5, 80.5, 82.5, 10.0]) == (80.0, 82.5)
