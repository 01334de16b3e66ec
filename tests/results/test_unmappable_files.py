"""A file system that cannot map files, as some network mounts: all is read instead, and nothing is lost."""

import os
import shutil
import subprocess
import sys
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


def msbench(shim: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "msbench", *map(str, words)]
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


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
    done = msbench(shim, *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    ((record,), warnings) = store.read_records(results)
    assert (record.status, warnings) == ("finished", [])
    (path,) = results.rglob("run.json")
    path.unlink()
    again = msbench(shim, *words)
    assert again.returncode == 0, (again.stdout, again.stderr)
    ((resumed,), _) = store.read_records(results)
    assert (resumed.metrics, resumed.resumed) == (record.metrics, 1)
    for verb, *more in (("mixing", "--model", "mamba", "--examples", "2"), ("report", "--versus", "mamba")):
        read = msbench(shim, verb, tiny_file, "--results", results, *more, "--out", tmp_path / "out")
        assert read.returncode == 0, (read.stdout, read.stderr)
        assert "No such device" not in read.stdout + read.stderr
        assert "Traceback" not in read.stderr
