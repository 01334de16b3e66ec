"""Values with their origins, and their validation into frozen configs."""

from pathlib import Path
from typing import Annotated, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from msbench.config.base import Config
from msbench.config.layers import (
    LocatedValues,
    load_yaml,
    merge_layers,
    parse_override,
    parse_yaml,
    run_checks,
    validate,
)
from msbench.errors import ConfigError, UnknownName


class Inner(Config):
    rate: float = 2
    rates: tuple[float, ...] = ()


class Outer(Config):
    name: str
    lr: Annotated[float, Field(gt=0)] = 1e-3
    min_lr: float = 0.0
    epochs: int = 1
    inner: Inner = Inner()

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}")
        return self


def failure(cls: type[Config], part: LocatedValues, owner: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        validate(cls, part, owner)
    return str(caught.value)


class TestConfig:
    def test_is_frozen_and_hashable(self) -> None:
        config = Inner(rates=(1.0,))
        with pytest.raises(ValidationError, match="frozen"):
            config.rate = 3
        assert hash(config) == hash(Inner.model_validate({"rates": [1]}))

    def test_integers_become_floats_where_floats_are_wanted_defaults_too(self) -> None:
        assert repr(Inner()) == "Inner(rate=2.0, rates=())"
        assert repr(Inner.model_validate({"rate": 3, "rates": [1, 2]})) == "Inner(rate=3.0, rates=(1.0, 2.0))"

    def test_minus_zero_is_zero(self) -> None:
        assert Inner(rate=-0.0).model_dump_json() == Inner(rate=0).model_dump_json()

    @pytest.mark.parametrize("value", ["3", True, 3.0, None, [3]])
    def test_nothing_but_an_integer_is_an_integer(self, value: object) -> None:
        with pytest.raises(ValidationError):
            Outer.model_validate({"name": "x", "epochs": value})


class TestParse:
    def test_origins_are_file_and_line(self) -> None:
        part = parse_yaml("a: 1\nb:\n  - 2\n", "suites/x.yaml")
        assert part.origins == {
            ("a",): "suites/x.yaml:1",
            ("b",): "suites/x.yaml:2",
            ("b", 0): "suites/x.yaml:3",
        }
        assert part.origin(("b", 0, "deeper")) == "suites/x.yaml:3"
        assert part.origin(("z",)) == "suites/x.yaml"

    def test_load_names_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x.yaml"
        path.write_bytes(b"\xef\xbb\xbfa: 1e-3\r\n")
        assert load_yaml(path) == LocatedValues({"a": 1e-3}, {("a",): f"{path}:1"}, str(path))

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
            load_yaml(tmp_path / "none.yaml")
        with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
            load_yaml(tmp_path)


class TestOverride:
    @pytest.mark.parametrize(
        "text", ["1e-3", "1E-3", "0.001", "[1e-4, 1e-3]", "no", "010", "null", "'1e-3'", "true", "1:30", "-3"]
    )
    def test_has_the_type_that_the_file_would_give(self, text: str) -> None:
        in_file = parse_yaml(f"train:\n  lr: {text}\n", "x").values
        assert parse_override(f"train.lr={text}").values == in_file
        assert repr(parse_override(f" train.lr = {text} ").values) == repr(in_file)

    def test_value_may_hold_equal_signs(self) -> None:
        assert parse_override("a.b='x=y'").values == {"a": {"b": "x=y"}}

    def test_origin_is_the_flag(self) -> None:
        part = parse_override("train.lr=3")
        assert part.origin(("train", "lr")) == "--set train.lr"

    @pytest.mark.parametrize(
        "text", ["", "train.lr", "=3", "train.lr=", "train.lr= ", ".lr=3", "a..b=1", "a b=1"]
    )
    def test_malformed_says_the_form(self, text: str) -> None:
        with pytest.raises(ConfigError, match="must have the form KEY=VALUE"):
            parse_override(text)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a.b={c: 1}", "--set a.b: a mapping is not a value"),
            ("a.b=x: y", "--set a.b: a mapping is not a value"),
            ("a.b=[1", "--set a.b: column 3: "),
            ("a.b=!x 1", "--set a.b: column 1: tags are refused"),
        ],
    )
    def test_a_value_that_is_none(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_override(text)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


class TestAt:
    PART = parse_yaml("a:\n  b:\n    c: 1\nempty:\nscalar: 3\n", "x.yaml")

    def test_origins_are_rebased_and_the_prefix_extended(self) -> None:
        part = self.PART.at("a", "b")
        assert part.values == {"c": 1}
        assert part.prefix == ("a", "b")
        assert part.origin(("c",)) == "x.yaml:3"
        assert part.origin(("missing",)) == "x.yaml:2"
        assert self.PART.at("a").at("b") == part

    @pytest.mark.parametrize("path", [("z",), ("empty",), ("empty", "deeper"), ("a", "z")])
    def test_absent_or_null_is_empty(self, path: tuple[str, ...]) -> None:
        assert self.PART.at(*path).values == {}

    def test_no_mapping_is_an_error_with_its_line(self) -> None:
        with pytest.raises(ConfigError, match=r"^x\.yaml:5: scalar: must be a mapping, not 3$"):
            self.PART.at("scalar", "x")


class TestMerge:
    def test_later_wins_and_origins_follow(self) -> None:
        base = parse_yaml("train:\n  lr: 1\n  rates: [1, 2]\n  epochs: 3\n", "base")
        top = parse_yaml("\n\ntrain: {lr: 2, rates: [3]}\n", "top")
        merged = merge_layers(base, top)
        assert merged.values == {"train": {"lr": 2, "rates": [3], "epochs": 3}}
        assert merged.origin(("train", "lr")) == "top:3"
        assert merged.origin(("train", "rates", 1)) == "top:3"
        assert merged.origin(("train", "epochs")) == "base:4"
        assert base.values["train"]["lr"] == 1

    def test_null_is_a_value(self) -> None:
        assert merge_layers(parse_yaml("a: 1", "x"), parse_yaml("a:", "y")).values == {"a": None}

    def test_a_mapping_that_replaces_a_number_has_its_own_origin(self) -> None:
        merged = merge_layers(parse_yaml("train:\n  lr: 1\n", "x"), parse_override("train.lr.x=3"))
        assert merged.origin(("train", "lr")) == "--set train.lr.x"
        assert merged.origin(("train",)) == "x:1"

    NESTED = st.recursive(
        st.integers(0, 3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=8,
    )
    MAPPINGS = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=3)

    @given(MAPPINGS, MAPPINGS)
    def test_nothing_of_the_later_part_is_lost(self, a: Any, b: Any) -> None:
        once = merge_layers(LocatedValues(a, {}, "a"), LocatedValues(b, {}, "b"))
        assert merge_layers(once, LocatedValues(b, {}, "b")).values == once.values
        assert {
            path: value for path, value in paths(b).items() if not isinstance(value, dict)
        }.items() <= paths(once.values).items()

    @given(MAPPINGS, MAPPINGS)
    def test_every_leaf_comes_from_where_its_origin_says(self, a: Any, b: Any) -> None:
        parts = {
            name: LocatedValues(values, dict.fromkeys(paths(values), name), name)
            for values, name in ((a, "a"), (b, "b"))
        }
        merged = merge_layers(*parts.values())
        for path, value in paths(merged.values).items():
            if not isinstance(value, dict):
                assert paths(parts[merged.origin(path)].values)[path] == value
        assert merged.origins.keys() == paths(merged.values).keys()


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    found: dict[tuple[str | int, ...], Any] = {}
    for key, value in values.items():
        found[*above, key] = value
        if isinstance(value, dict):
            found |= paths(value, (*above, key))
    return found


class TestValidate:
    def test_reports_every_fault_with_its_line(self) -> None:
        part = parse_yaml("lrr: 1\nlr: abc\nepochs: 1e2\ninner:\n  rat: 1\n", "suites/x.yaml")
        assert failure(Outer, part, "training").splitlines() == [
            "suites/x.yaml: name: required key is missing",
            "suites/x.yaml:2: lr: must be a number, not 'abc'",
            "suites/x.yaml:3: epochs: must be a whole number, not 100.0",
            "suites/x.yaml:5: inner.rat: unknown key of training; did you mean 'rate'? known: rate, rates",
            "suites/x.yaml:1: lrr: unknown key of training; did you mean 'lr'? "
            "known: epochs, inner, lr, min_lr, name",
        ]

    def test_the_prefix_is_part_of_the_key(self) -> None:
        part = parse_yaml("train:\n  name: x\n  lr: -1\n", "x.yaml").at("train")
        assert failure(Outer, part) == "x.yaml:3: train.lr: must be greater than 0, not -1"

    def test_an_override_is_named_once(self) -> None:
        part = merge_layers(parse_yaml("train:\n  name: x\n", "x.yaml"), parse_override("train.lr=abc")).at(
            "train"
        )
        assert failure(Outer, part) == "--set train.lr: must be a number, not 'abc'"

    def test_a_rule_between_fields_names_both_places(self) -> None:
        part = merge_layers(parse_yaml("name: x\nlr: 1e-3\n", "x.yaml"), parse_override("min_lr=1"))
        assert failure(Outer, part) == "x.yaml:2 and --set min_lr: min_lr 1.0 is above lr 0.001"

    def test_a_list_item_has_its_own_line(self) -> None:
        part = parse_yaml("rates:\n  - 1\n  - .nan\n", "x.yaml")
        assert failure(Inner, part) == "x.yaml:3: rates.1: must be a finite number, not nan"

    @pytest.mark.parametrize(("text", "what"), [("3", "3"), ("[1]", "a list"), ("'x'", "'x'")])
    def test_no_mapping(self, text: str, what: str) -> None:
        assert failure(Inner, parse_yaml(text, "x.yaml")) == f"x.yaml: must be a mapping, not {what}"

    def test_nothing_is_all_defaults(self) -> None:
        assert validate(Inner, parse_yaml("", "x.yaml")) == Inner()

    @pytest.mark.parametrize("text", ["no", "off", "2024-01-02", "1:30"])
    def test_text_fields_take_ambiguous_text_as_typed(self, text: str) -> None:
        assert validate(Outer, parse_yaml(f"name: {text}", "x")).name == text

    @pytest.mark.parametrize("text", ["1.10", "010", "null", "true"])
    def test_text_fields_ask_for_quotes_where_the_text_is_something_else(self, text: str) -> None:
        assert "x:1: name: must be text (in quotes), not " in failure(Outer, parse_yaml(f"name: {text}", "x"))
        assert validate(Outer, parse_yaml(f"name: '{text}'", "x")).name == text


class TestGather:
    def test_gives_all_results_in_order(self) -> None:
        assert run_checks(lambda: 1, lambda: 2) == [1, 2]

    def test_joins_errors_once_each(self) -> None:
        def fail(text: str) -> int:
            raise ConfigError(text)

        with pytest.raises(ConfigError) as caught:
            run_checks(lambda: fail("a\nb"), lambda: 1, lambda: fail("b"), lambda: fail("c"))
        assert str(caught.value) == "a\nb\nc"

    def test_keeps_the_type_of_a_single_error(self) -> None:
        def fail() -> int:
            raise UnknownName("model", "x", ["y"])

        with pytest.raises(UnknownName):
            run_checks(fail, fail)


def test_a_file_is_searched_once_however_many_parts_are_asked_for() -> None:
    class Counted(dict[Any, str]):
        searches = 0

        def items(self) -> Any:
            self.searches += 1
            return super().items()

    names = [f"task-{number}" for number in range(100)]
    origins = Counted({("tasks", name, "lr"): f"file:{line}" for line, name in enumerate(names)})
    part = LocatedValues({"tasks": {name: {"lr": 1} for name in names}}, origins, "file")
    for line, name in enumerate(names):
        assert part.at("tasks", name).origin(("lr",)) == f"file:{line}"
    assert origins.searches == 1
