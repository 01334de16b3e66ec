"""Compile the one C module that Triton would compile on its first launch: the image then needs no compiler.

``python triton_module.py FOLDER`` leaves ``cuda_utils.so`` there and ``triton-cc``, which Triton is given as
its C compiler and which hands that module out. Needs a C compiler and Python's headers, but no GPU.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILER = """\
#!/bin/sh
# Stands in for a C compiler: {module} is all that Triton ever asks one for, and was compiled with the image.
while [ "$#" -gt 1 ]; do
    case "$1 $2" in "-o "*/{module}.*) exec cp {made} "$2" ;; esac
    shift
done
echo "this image has no C compiler, only Triton's {module}" >&2
exit 1
"""


def compiled(module: str, scratch: Path) -> str:
    """The shared object, as Triton itself compiles it."""
    from triton.backends.nvidia import driver

    source = Path(driver.__file__).with_name("driver.c")
    # The driver's library comes with the host: one of its name and functions makes the linker note it.
    names = set(re.findall(r"\bcu[A-Z]\w+", source.read_text(encoding="utf-8")))
    stub = scratch / "stub.c"
    stub.write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)), encoding="utf-8")
    library = str(scratch / "libcuda.so.1")
    subprocess.run(["gcc", "-shared", "-w", str(stub), "-Wl,-soname,libcuda.so.1", "-o", library], check=True)
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "cache")
    os.environ["TRITON_LIBCUDA_PATH"] = str(scratch)
    from triton.runtime.build import compile_so_from_file

    return compile_so_from_file(
        str(source), module, driver.library_dirs(), driver.include_dirs, driver.libraries
    )


def main(folder: Path, module: str = "cuda_utils") -> None:
    """Leave the module and its stand-in for a compiler in `folder`."""
    made = folder / f"{module}.so"
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copyfile(compiled(module, Path(scratch)), made)
    script = folder / "triton-cc"
    script.write_text(COMPILER.format(module=module, made=shlex.quote(str(made))), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
