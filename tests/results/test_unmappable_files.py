"""A file system that cannot map files, as some network mounts: all is read instead, and nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from msbench.results import store

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int has_end(const char *path, const char *end) {
    size_t length = strlen(path), of = strlen(end);
    return length > of && !strcmp(path + length - of, end);
}

static int refused(int file) {
    char link[64], path[4096];
    if (file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return has_end(path, ".safetensors") || has_end(path, ".npy") || has_end(path, ".parquet");
}

void *mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (refused(file)) { errno = ENODEV; return MAP_FAILED; }
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    return real(at, size, access, flags, file, offset);
}

void *mmap64(void *at, size_t size, int access, int flags, int file, off_t offset) {
    return mmap(at, size, access, flags, file, offset);
}
"""
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="preloads a library into the command"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that lets no file of data, weights or predictions be mapped."""
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    words = [str(COMPILER), "-shared", "-fPIC", "shim.c", "-o", "shim.so", "-ldl"]
    subprocess.run(words, cwd=folder, check=True)
    return folder / "shim.so"


COMMANDS = """\
import json, sys
from typer.testing import CliRunner
from msbench.cli import app
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words)
    print(json.dumps([done.exit_code, done.output]))
"""


def run_commands(shim: Path, *commands: Sequence[str | Path]) -> list[str]:
    """Run commands of msbench in one process where files cannot be mapped; return what each has printed."""
    words = [sys.executable, "-c", COMMANDS, json.dumps([list(map(str, each)) for each in commands])]
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _ in found] == [0] * len(commands), found
    return [output for _, output in found]


def test_the_shim_refuses(shim: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"x")
    code = "import mmap, sys; x = open(sys.argv[1], 'rb'); mmap.mmap(x.fileno(), 0, prot=mmap.PROT_READ)"
    words = [sys.executable, "-c", code, str(tmp_path / "x.npy")]
    done = subprocess.run(
        words, env={**os.environ, "LD_PRELOAD": str(shim)}, capture_output=True, check=False
    )
    assert b"No such device" in done.stderr


def test_a_run_ends_resumes_and_is_read(shim: Path, tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ("run", tiny_file, "--model", "mamba", "--quiet", "--results", results)
    run_commands(shim, words)
    ((record,), warnings) = store.read_records(results)
    assert (record.status, warnings) == ("finished", [])
    (path,) = results.rglob("run.json")
    path.unlink()
    read = ("--results", results, "--out", tmp_path / "out")
    found = run_commands(
        shim,
        words,
        ("mixing", tiny_file, "--model", "mamba", "--examples", "2", *read),
        ("report", tiny_file, "--versus", "mamba", *read),
    )
    assert not any("No such device" in output for output in found)
    ((resumed,), _) = store.read_records(results)
    assert (resumed.metrics, resumed.resumed) == (record.metrics, 1)
