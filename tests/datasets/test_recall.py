"""Associative recall: every answer and distance derived again from the tokens, and the laws of the draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import chisquare

from msbench import datasets as data
from msbench import models
from msbench.config.data import RecallConfig
from msbench.datasets.archive_dataset import GENERATED
from msbench.datasets.dataset import SPLITS, Dataset, RaggedTokens
from msbench.datasets.recall import RECALL, draw_distances, score_baselines
from msbench.errors import ConfigError, DataError
from msbench.runs.suite import load_suite, resolve_specs

RARE = 1e-5  # a p-value this small is a fault, not chance
SMALL = RecallConfig(
    pairs=3,
    keys=5,
    values=4,
    noise=2,
    distance=40,
    test_distances=(6, 20, 90),
    train=600,
    validation=60,
    test=90,
)
CONFIGS = {
    "small": SMALL,
    "one pair": RecallConfig(pairs=1, distance=30, test_distances=(2, 50), train=400, validation=40, test=20),
    "every key": RecallConfig(pairs=8, keys=8, values=2, noise=1, train=200, validation=20, test=14),
    "largest vocabulary": RecallConfig(keys=100, values=100, noise=54, train=200, validation=20, test=14),
    "one distance": RecallConfig(distance=8, test_distances=(8,), train=200, validation=20, test=10),
}
GOLDEN = "49931f3603d6602fe2ff49f3734baf822a0f03e268422fb9ea03fa8eb6e94ecd"


def split_of(dataset: Dataset, name: str) -> RaggedTokens:
    split = dataset.splits[name]
    assert isinstance(split, RaggedTokens)
    return split


def solve(tokens: list[int], config: RecallConfig) -> tuple[int, int, int]:
    """The class asked for, its distance, and the number of its pair: read token by token."""
    first_key, first_noise = 2 + config.values, 2 + config.values + config.keys
    *body, mark, query = tokens
    assert mark == 1
    places: dict[int, int] = {}
    for number in range(config.pairs):
        key, value = body[2 * number : 2 * number + 2]
        assert first_key <= key < first_noise, "a key"
        assert 2 <= value < first_key, "a value"
        assert key not in places, "keys differ"
        places[key] = 2 * number + 1
    noise = body[2 * config.pairs :]
    assert all(first_noise <= each < first_noise + config.noise for each in noise)
    place = places[query]
    return tokens[place] - 2, len(tokens) - 1 - place, place // 2 + 1


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_answer_and_distance_follows_from_the_tokens(config: RecallConfig, tmp_path: Path) -> None:
    dataset = data.setup(config, tmp_path)
    wanted = {"train": config.train, "validation": config.validation, "test": config.test}
    assert {name: len(split) for name, split in dataset.splits.items()} == wanted
    for name in SPLITS:
        split = split_of(dataset, name)
        solved = [solve(split.example(index).tolist(), config) for index in range(len(split))]
        labels, distances, asked = (list(column) for column in zip(*solved, strict=True))
        assert split.labels.tolist() == labels
        found = data.describe_examples(config, split)
        assert found["distance"].tolist() == distances
        assert found["asked"].tolist() == asked
        assert found["length"].tolist() == split.lengths.tolist()
        if name == "test":
            each = config.test // len(config.test_distances)
            assert distances == [distance for distance in config.test_distances for _ in range(each)]
        else:
            assert min(distances) >= 2 * config.pairs
            assert max(distances) <= config.distance


def test_splits_share_no_example(tmp_path: Path) -> None:
    """With so few symbols, many draws are of another split."""
    config = CONFIGS["one pair"].model_copy(update={"keys": 6, "values": 5, "noise": 1})
    dataset = data.setup(config, tmp_path)
    assert dataset.manifest["generator"]["redrawn"] > 20
    sets = [
        {split_of(dataset, name).example(index).tobytes() for index in range(len(dataset.splits[name]))}
        for name in SPLITS
    ]
    assert len(set.union(*sets)) == sum(map(len, sets))
    kept = sum(map(len, dataset.splits.values())) - sum(map(len, sets))
    assert dataset.manifest["duplicates_kept"] == kept > 0


def test_too_few_different_examples_are_an_error(tmp_path: Path) -> None:
    config = RecallConfig(
        pairs=1, keys=1, values=2, noise=1, distance=2, test_distances=(2,), train=5, validation=5, test=50
    )
    with pytest.raises(DataError, match=r"too few different examples at distance 2: of 1,000 drawn, each"):
        data.setup(config, tmp_path)
    assert [path for path in (tmp_path / "recall").iterdir() if path.suffix != ".lock"] == []


def test_golden_digest(tmp_path: Path) -> None:
    """Where this fails after an upgrade of NumPy, its streams changed: raise the dataset's VERSION."""
    assert data.setup(SMALL, tmp_path).digest == GOLDEN


def test_data_depend_on_the_config_alone(tmp_path: Path) -> None:
    one = data.setup(SMALL, tmp_path / "one", processes=1)
    two = data.setup(SMALL, tmp_path / "two", processes=2)
    files = [RECALL.folder_of(SMALL, tmp_path / root) / "manifest.json" for root in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    seeded = SMALL.model_copy(update={"seed": 1})
    assert len({each.digest for each in (one, two, data.setup(seeded, tmp_path))}) == 2


def test_the_test_split_is_the_same_whatever_is_trained_on(tmp_path: Path) -> None:
    other = SMALL.model_copy(update={"train": 100, "validation": 30, "distance": 12})
    first, second = (split_of(data.setup(each, tmp_path), "test") for each in (SMALL, other))
    assert np.array_equal(first.tokens, second.tokens)
    assert np.array_equal(first.labels, second.labels)


def test_distances_are_log_uniform() -> None:
    low, high, count = 3, 11, 20_000
    drawn = draw_distances(low, high, count, np.random.default_rng(5))
    whole = np.arange(low, high + 1)
    expected = count * np.log((whole + 1) / whole) / np.log((high + 1) / low)
    found = np.bincount(drawn, minlength=high + 1)
    assert found[:low].sum() == 0
    assert chisquare(found[low:], expected).pvalue > RARE


def test_keys_values_pairs_and_noise_are_uniform(tmp_path: Path) -> None:
    config = SMALL.model_copy(update={"train": 5_000})
    dataset = data.setup(config, tmp_path)
    train = split_of(dataset, "train")
    heads = np.array([train.example(index)[: 2 * config.pairs] for index in range(len(train))])
    for column in range(config.pairs):
        keys, values = np.bincount(heads[:, 2 * column]), np.bincount(heads[:, 2 * column + 1])
        assert chisquare(values[2:6]).pvalue > RARE
        assert chisquare(keys[6:11]).pvalue > RARE
    asked = data.describe_examples(config, train)["asked"]
    assert chisquare(np.bincount(asked)[1:]).pvalue > RARE
    assert chisquare(np.bincount(train.tokens)[11:]).pvalue > RARE


def test_trivial_rules_worked_out_by_hand() -> None:
    config = RecallConfig(pairs=3, keys=3, values=3, noise=1, distance=6, test_distances=(6,), test=4)
    # Values, number of the asked pair: 0 0 1 of pair 1; 0 0 1 of pair 3; 0 1 2 of pair 2; 2 2 2 of pair 3.
    rows = [([0, 0, 1], 0), ([0, 0, 1], 2), ([0, 1, 2], 1), ([2, 2, 2], 2)]
    examples, labels = [], []
    for values, asked in rows:
        pairs = [token for number, value in enumerate(values) for token in (5 + number, 2 + value)]
        examples.append([*pairs, *[8] * (2 * asked), 1, 5 + asked])
        labels.append(values[asked])
        assert solve(examples[-1], config) == (labels[-1], 6, asked + 1)
    offsets = np.append(0, np.cumsum([len(each) for each in examples]))
    test = RaggedTokens(np.concatenate(examples).astype(np.uint8), offsets, np.array(labels, np.uint8))
    train = RaggedTokens(test.tokens, test.offsets, np.array([1, 1, 2, 0], np.uint8))
    assert score_baselines(config, train, test) == {
        "majority": 2 / 4,
        "most frequent of its values": pytest.approx((1 + 0 + 1 / 3 + 1) / 4),
        "value of its last pair": 2 / 4,
    }


def test_the_task_is_described(tmp_path: Path) -> None:
    dataset, outline = data.setup(SMALL, tmp_path), data.outline(SMALL)
    info = dataset.info
    assert (info.kind, info.vocabulary, info.classes, info.chance) == ("tokens", 13, 4, 0.25)
    assert list(info.baselines) == ["majority", "most frequent of its values", "value of its last pair"]
    assert (outline.kind, outline.vocabulary, outline.classes) == ("tokens", 13, 4)
    assert info.longest == outline.longest == 96
    assert outline.baselines == {}
    assert (dataset.manifest["sources"], dataset.manifest["licence"]) == ([], GENERATED)


def test_rules_that_solve_recall_at_a_distance_are_left_out(tmp_path: Path) -> None:
    assert list(data.setup(CONFIGS["one pair"], tmp_path).info.baselines) == ["majority"]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"pairs": 17}, "pairs 17 need as many different keys; keys is 16"),
        ({"keys": 200, "noise": 45}, "keys 200, values 10 and noise 45 are 255 symbols; .* 254 of them"),
        ({"values": 1}, "greater than or equal to 2"),
        ({"distance": 7}, "distance 7 is below 8, with pairs 4, the smallest distance"),
        ({"test_distances": [7, 25]}, "test_distances has 7, below 8, with pairs 4, the smallest distance"),
        ({"test_distances": [50, 25]}, "test_distances must rise"),
        ({"test_distances": [25, 25]}, "test_distances must rise"),
        ({"test_distances": []}, "at least 1 item"),
        ({"test": 1_401}, "test 1401 is no multiple of 7, the number of test_distances"),
        ({"distance": 100_001}, "less than or equal to 100000"),
    ],
)
def test_options_that_cannot_be_are_refused(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        RecallConfig(**values)


def test_nothing_is_imported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recall is generated here, .*; leave out --from"):
        data.setup(SMALL, tmp_path, source=tmp_path)


def test_the_model_without_states_sees_as_far_back_as_the_suite_says() -> None:
    """From the second test distance on, neither the asked value nor its key can reach its last output."""
    (spec,) = resolve_specs(load_suite("laptop-recall"), ["msssm-no-ssm"], seeds=[0])
    assert isinstance(spec.data, RecallConfig)
    info = data.outline(spec.data)
    model = models.build(spec.model_name, spec.model, info, spec.seed).eval()
    tokens = torch.arange(2, 2 + 60).remainder(info.vocabulary - 2).add(2).repeat(61, 1)
    for back in range(60):  # the last row stays as it is
        tokens[back, 59 - back] = tokens[back, 59 - back] % (info.vocabulary - 2) + 2
    with torch.no_grad():
        logits = model(tokens, torch.full((61,), 60))
    changed = (logits[:60] != logits[60]).any(dim=1)
    assert changed.nonzero().max() == 42
    assert spec.data.test_distances[1] > 42
