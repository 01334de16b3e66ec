import gc
import hashlib
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from msbench.config.data import AanConfig, ImdbConfig, TextConfig
from msbench.datasets import texts
from msbench.datasets.archive_dataset import DatasetBuild
from msbench.datasets.dataset import ignore_progress
from msbench.errors import DataError

ACCENTS = "naïve café – 3€"


def config(**values: object) -> TextConfig:
    return AanConfig(**values)  # type: ignore[arg-type]


def encoded(text: str, vocabulary: str, chosen: TextConfig) -> list[int]:
    kept = texts.truncate_text(text.encode(), chosen)
    ids: list[int] = texts.TokenEncoder(chosen, vocabulary)(kept).tolist()
    assert texts.count_tokens(kept, chosen) == len(ids) <= chosen.max_length
    assert max(ids, default=0) < texts.count_token_ids(chosen, vocabulary)
    assert all(ids)  # 0 is padding
    return ids


def vocabulary(kept: list[str], chosen: TextConfig) -> str:
    counts = texts.CharacterCounts(chosen)
    for text in kept:
        counts.add(text.encode())
    return counts.vocabulary()


def test_bytes_are_those_of_utf8() -> None:
    data = ACCENTS.encode()
    assert len(data) == 21
    assert encoded(ACCENTS, "", config(tokens="bytes", eos=False)) == [byte + 1 for byte in data]
    assert encoded(ACCENTS, "", config(tokens="bytes")) == [*(byte + 1 for byte in data), 255]


@pytest.mark.parametrize("max_length", range(2, 21))
def test_a_cut_may_fall_within_a_character(max_length: int) -> None:
    data = ACCENTS.encode()
    ids = encoded(ACCENTS, "", config(tokens="bytes", eos=False, max_length=max_length))
    assert ids == [byte + 1 for byte in data[:max_length]]
    long = "€" * 5000
    assert len(encoded(long, "", config(tokens="bytes"))) == 4000
    assert encoded(long, "€", config(max_length=max_length)) == [3] * (max_length - 1) + [2]


def test_characters_are_numbered_by_frequency_then_code_point() -> None:
    known = vocabulary(["banana é", "xé"], config())
    assert known == "ané bx"
    assert encoded("nab?", known, config()) == [4, 3, 7, 1, 2]
    assert encoded("NAB", known, config(eos=False)) == [1, 1, 1]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.integers(1, 3))
def test_characters_agree_with_counting_them_one_by_one(written: list[str], least: int) -> None:
    chosen = config(min_frequency=least)
    written = [text.encode(errors="replace").decode() for text in written]
    counted = Counter("".join(written))
    order = sorted((-count, character) for character, count in counted.items() if count >= least)
    known = vocabulary(written, chosen)
    assert known == "".join(character for _, character in order)
    ids = {character: 3 + place for place, (_, character) in enumerate(order)}
    for text in written:
        assert encoded(text, known, chosen) == [*(ids.get(character, 1) for character in text), 2]


def test_more_characters_than_ids_are_refused() -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 253)))
    assert len(vocabulary([letters], config())) == 253
    with pytest.raises(DataError, match=r"254 different characters.*253: raise data\.min_frequency, now 1"):
        vocabulary([letters + "a"], config())
    assert vocabulary([letters + "aa"], config(min_frequency=2)) == "a"
    assert vocabulary([letters + "a"], config(tokens="bytes")) == ""
    with pytest.raises(ValidationError, match="min_frequency counts characters"):
        config(tokens="bytes", min_frequency=2)
    assert ImdbConfig(tokens="bytes", min_frequency=15).min_frequency == 15


def test_what_is_no_text_is_refused_though_it_is_cut_off() -> None:
    for tokens in ("bytes", "characters"):
        with pytest.raises(ValueError, match="utf-8"):
            texts.truncate_text(b"abc\xff", config(tokens=tokens, max_length=3))


def test_there_is_room_for_more_than_the_end() -> None:
    with pytest.raises(ValidationError, match="has room for <eos> alone"):
        config(max_length=1)
    assert config(max_length=1, eos=False).max_length == 1


def test_defaults_are_those_of_the_published_set_ups() -> None:
    text, retrieval = ImdbConfig(), AanConfig()
    assert (text.tokens, text.max_length, text.eos, text.min_frequency) == ("characters", 4096, True, 15)
    assert (retrieval.tokens, retrieval.max_length, retrieval.min_frequency) == ("characters", 4000, 1)


def test_a_spool_gives_back_what_it_took_and_leaves_nothing(tmp_path: Path) -> None:
    kept, said = [b"one", b"", ACCENTS.encode()], list[tuple[str, int, int]]()
    chosen = config()
    with texts.Spool(tmp_path, chosen) as spool:
        for text in kept:
            spool.add(text)
        assert list(spool) == kept
        assert list(spool) == kept
        assert spool.lengths.tolist() == [4, 1, 16]
        build = DatasetBuild(tmp_path, (), None, lambda *step: said.append(step), "none")
        encoder, labels = texts.TokenEncoder(chosen, "one"), np.zeros(3, np.uint8)
        entry = texts.save_texts(build, "train", spool, spool.lengths, encoder, labels, b"names")
    assert (entry["examples"], entry["ids"]) == (3, hashlib.sha256(b"names").hexdigest())
    assert said == [("encoding train", 0, 3), ("encoding train", 3, 3)]
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    assert np.load(tmp_path / "train" / "offsets.npy").tolist() == [0, 4, 5, 21]
    assert np.load(tmp_path / "train" / "tokens.npy")[:6].tolist() == [3, 4, 5, 2, 2, 4]


def test_a_disk_without_room_is_reported_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=4))
    build, encoder = (
        DatasetBuild(tmp_path, (), None, ignore_progress, "none"),
        texts.TokenEncoder(config(), "a"),
    )
    label = np.zeros(1, np.uint8)
    texts.save_texts(build, "test", [b"aaa"], np.array([4]), encoder, label, b"")
    with pytest.raises(DataError, match=r"train in token ids: 5 bytes are needed and .* has 4 free"):
        texts.save_texts(build, "train", [b"aaaa"], np.array([5]), encoder, label, b"")
    assert not (tmp_path / "train" / "tokens.npy").exists()
