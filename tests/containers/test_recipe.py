"""The image recipes: what is pinned and by what, who runs, what a build is given. Needs no engine."""

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest

from msbench.runs.launchers import container

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINERS = REPOSITORY / "containers"
README = (CONTAINERS / "README.md").read_text(encoding="utf-8")
TEXT = (CONTAINERS / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", TEXT)).splitlines()
    if line.strip()
]
STAGES = [value for name, value in INSTRUCTIONS if name == "FROM"]
NAMES = [stage.split(" AS ")[1] for stage in STAGES]
TARGETS = ("cpu", "cuda", "cuda-mamba")


def values(name: str) -> list[str]:
    return [value for each, value in INSTRUCTIONS if each == name]


def stage(name: str) -> list[list[str]]:
    """The instructions of one stage."""
    starts = [index for index, (each, _) in enumerate(INSTRUCTIONS) if each == "FROM"]
    bounds = dict(zip(NAMES, zip(starts, [*starts[1:], None], strict=True), strict=True))
    return INSTRUCTIONS[slice(*bounds[name])]


def test_every_image_from_outside_is_pinned_by_digest_and_its_source_is_named() -> None:
    defaults = dict(value.split("=", 1) for value in values("ARG") if "=" in value)
    outside = {re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], each.split()[0]) for each in STAGES}
    outside -= set(NAMES)
    assert len(outside) == 1
    for reference in outside:
        assert re.fullmatch(r"docker\.io/library/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", reference)
        assert reference.partition("@")[2] in README
    assert "docker-library/repo-info" in README


def test_no_image_is_copied_from_but_stages() -> None:
    taken = re.findall(r"(?:--from=|from=)([^\s,]+)", TEXT)
    assert taken
    assert set(taken) <= set(NAMES)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_in_particular(target: str) -> None:
    assert dict(value.split(" AS ")[::-1] for value in STAGES)[target] == "runtime"
    users = [value for name, value in stage("runtime") + stage(target) if name == "USER"]
    assert users == ["10001:10001"]
    assert not any(name == "RUN" for name, _ in stage(target))


def test_nothing_at_run_time_needs_a_home_or_another_place_to_write() -> None:
    (text,) = (value for name, value in stage("runtime") if name == "ENV")
    found = dict(word.split("=", 1) for word in text.split())
    assert found["MSBENCH_DATA"] == container.DATA
    assert {found[name].split("/")[1] for name in ("XDG_CACHE_HOME", "TRITON_HOME")} == {"tmp"}
    for name in ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"):  # made on import, /tmp or not
        assert found[name].startswith("/dev/shm/")
    assert [value for name, value in stage("runtime") if name == "WORKDIR"] == [container.HOME]
    assert values("ENTRYPOINT") == ['["msbench"]']


def test_no_compiler_is_in_an_image() -> None:
    assert [name for name in NAMES if any("apt-get" in value for _, value in stage(name))] == ["compiler"]
    assert not any("compiler" in value for name in ("runtime", *TARGETS) for _, value in stage(name))


def test_every_package_is_installed_by_its_hash() -> None:
    runs = [
        each for value in values("RUN") for each in value.split("&&") if " install " in each and "pip" in each
    ]
    assert len(runs) == 6
    for each in runs:
        locked = "--require-hashes" in each and re.search(r"-r containers/requirements-\w+\.txt", each)
        assert "--no-deps" in each
        assert locked or "--no-index" in each


def test_images_have_labels_and_say_their_revision() -> None:
    labels = " ".join(value for name, value in stage("runtime") if name == "LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels
    licence = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
    assert f'image.licenses="{licence}"' in labels
    assert "MSBENCH_IMAGE_REVISION=${REVISION}" in TEXT


def patterns() -> list[str]:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def sent(path: str) -> bool:
    """Whether a file goes into a build: the last pattern that speaks of it, or of a folder above, decides."""
    verdict = True
    parents = ["/".join(path.split("/")[: length + 1]) for length in range(path.count("/") + 1)]
    for line in patterns():
        pattern = line.removeprefix("!")
        globs = {pattern, pattern.removeprefix("**/")}
        names = {part for parent in parents for part in (parent, parent.rpartition("/")[2])}
        subjects = names if pattern.startswith("**/") else parents
        if any(fnmatch.fnmatchcase(subject, glob) for subject in subjects for glob in globs):
            verdict = line.startswith("!")
    return verdict


def test_a_build_is_given_what_it_copies_and_nothing_else() -> None:
    assert patterns()[0] == "*"
    copied = [word for value in values("COPY") if "--from" not in value for word in value.split()[:-1]]
    for source in copied:
        assert (REPOSITORY / source).exists(), source
        assert sent(source), source
    assert sent("msbench/ops/native/scan.cpp")
    for path in (
        ".git/config",
        "results/quick/run.json",
        "tests/conftest.py",
        "containers/prove.sh",
        "docs/ci.md",
    ):
        assert not sent(path), path
    for path in ("msbench/ops/_native.cpython-311-x86_64-linux-gnu.so", "msbench/__pycache__/cli.pyc"):
        assert not sent(path), path


def test_all_that_the_package_is_built_from_is_copied() -> None:
    copied = [word for value in values("COPY") for word in value.split()[:-1]]
    links = [path for path in (REPOSITORY / "msbench" / "share").iterdir() if path.is_symlink()]
    assert len(links) == 3
    assert all(path.resolve().relative_to(REPOSITORY).as_posix() in copied for path in links)


FILES = sorted(path for path in CONTAINERS.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lines_end_as_linux_has_them(path: Path) -> None:
    assert b"\r" not in path.read_bytes()
    assert "* text=auto eol=lf" in (REPOSITORY / ".gitattributes").read_text(encoding="utf-8")


def test_apptainer_takes_the_image_and_has_no_recipe_of_its_own() -> None:
    lines = (CONTAINERS / "apptainer.def").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(": ") for line in lines if ": " in line)
    (flavour,) = (line.split("=")[1] for line in lines if line.strip().startswith("FLAVOUR="))
    image = fields["From"].replace("{{ FLAVOUR }}", flavour)
    assert image == container.name_default_image("docker", gpu=False)
    assert image.partition(":")[2] in TARGETS
    assert not any(line.startswith(("%post", "%files", "%environment", "%runscript")) for line in lines)


def test_shown_images_are_those_of_the_command() -> None:
    text = (REPOSITORY / "docs" / "containers.md").read_text(encoding="utf-8")
    for gpu in (False, True):
        assert container.name_default_image("docker", gpu=gpu) in text
        assert container.name_default_image("apptainer", gpu=gpu) in text
    assert set(re.findall(r"--target (\S+)", text)) == set(TARGETS)
