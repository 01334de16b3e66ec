#!/usr/bin/env bash
# Proves an image on a machine without Docker: builds it, then holds it to what docs/containers.md promises.
#
#   containers/prove.sh cpu|cuda|cuda-mamba [option of `buildah build`]...
#
# Needs root and Debian's buildah, podman, crun and debootstrap. The base is a fresh Debian bookworm with its own
# Python 3.11, as a registry of images may be out of reach; BASE=REFERENCE takes another one. What pip needs to reach
# packages is given as PIP_CONF=FILE; DRIVER=vfs is for where no overlay can be mounted (slow: whole copies). Images are
# kept in STORE where KEEP=1, else all is removed; BUILT=1 proves the one that is kept there.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
shift
store=${STORE:-/var/tmp/msbench-proof}

# Mounts of its own: what is unmounted here is so for no one else.
if [ "${OWN_MOUNTS:-}" != yes ]; then
    OWN_MOUNTS=yes exec unshare --mount "$0" "$target" "$@"
fi
scratch=$(mktemp -d)
cleanup() {
    rm -rf "$scratch"
    [ -n "${KEEP:-}" ] || rm -rf "$store"
}
trap cleanup EXIT

# The machine's own images and settings are neither read nor changed. Inside another container, limits may not be
# raised, nor control groups made; crun refuses to start where both versions of those are mounted.
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
export CONTAINERS_CONF=$scratch/containers.conf CONTAINERS_STORAGE_CONF=$scratch/storage.conf
cat > "$CONTAINERS_CONF" << END
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
END
cat > "$CONTAINERS_STORAGE_CONF" << END
[storage]
driver = "${DRIVER:-overlay}"
graphroot = "$store"
runroot = "$scratch/run"
END

say() { printf '\n== %s\n' "$*"; }

make_base() {
    say "base: Debian bookworm and its Python"
    debootstrap --variant=minbase --include=ca-certificates,python3-pip,python3-venv,python3.11-dev bookworm \
        "$scratch/bookworm" > "$scratch/log"
    rm -rf "$scratch"/bookworm/var/cache/apt/archives/*.deb
    local made
    made=$(buildah from scratch)
    buildah add --quiet "$made" "$scratch/bookworm" / > /dev/null
    buildah commit --quiet --rm "$made" localhost/bookworm > /dev/null
    rm -rf "$scratch/bookworm"
}

build() {
    say "build: msbench:$target"
    local options=(--isolation chroot --format docker --file containers/Dockerfile --target "$target")
    options+=(--build-arg "BASE=$base" --build-arg "REVISION=$(git describe --always --dirty --abbrev=40)")
    if [ -n "${PIP_CONF:-}" ]; then options+=(--secret "id=pip,src=$PIP_CONF"); fi
    time buildah build --quiet "${options[@]}" "$@" --tag "msbench:$target" .
    buildah images "msbench:$target"
}

# One that nobody is, a root that cannot be written (nor /tmp, nor a home), no network, little shared memory.
inside() {
    podman run --rm --user 12345:12345 --read-only --read-only-tmpfs=false --network none --shm-size 64k \
        --cap-drop all --security-opt no-new-privileges "${mounts[@]}" "$@"
}

walls() {
    say "walls: user, root, network"
    inside --entrypoint sh "msbench:$target" -c '
        id; echo "HOME=$HOME"; ls /sys/class/net
        for place in / /tmp /opt/venv /work /etc; do touch "$place/x" 2>&1 && exit 1; done
        for place in /data /work/results; do touch "$place/x" && rm "$place/x" && echo "$place can be written"; done
        for program in cc gcc g++ clang; do command -v "$program" && exit 1; done; echo "no compiler"'
}

packages() {
    say "packages: those of the lock, and msbench"
    inside --entrypoint python3 "msbench:$target" -c '
import importlib.metadata, re
for each in importlib.metadata.distributions():
    name = re.sub("[-_.]+", "-", each.name).lower()
    print(f"{name}=={each.version}")' | grep -v '^msbench==' | LC_ALL=C sort > "$scratch/found"
    local lock=containers/requirements-${target#cuda-}.txt
    grep -o '^[a-z0-9.-]*==[^ ]*' "$lock" | LC_ALL=C sort | diff - "$scratch/found"
    echo "$(wc -l < "$scratch/found") packages, all of them as in $lock"
}

smoke() {
    say "smoke: what is asked of a GPU that is not there, and the kernels"
    local code=0
    inside "msbench:$target" run quick --device cuda --results /work/results/none || code=$?
    [ "$code" = 2 ]
    inside "msbench:$target" doctor
    if [ "$target" != cpu ]; then
        inside --entrypoint python3 "msbench:$target" -c '
import os, tempfile, torch, triton, msbench.ops.scan.triton_engine
from triton.backends.nvidia import driver
from triton.runtime.build import compile_so_from_file
tempfile.tempdir = "/data"  # where GPUs are used, Triton needs a /tmp, which there is none of here
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
source = os.path.join(os.path.dirname(driver.__file__), "driver.c")
made = compile_so_from_file(source, "cuda_utils", driver.library_dirs(), driver.include_dirs, driver.libraries)
print("torch", torch.__version__, "CUDA", torch.version.cuda, "triton", triton.__version__, "without a compiler:", made)'
    fi
}

demo() {
    say "demo: the quick suite and its report"
    time inside "msbench:$target" run quick --quiet
    inside "msbench:$target" report quick --csv --latex --html --out /work/results/reports
    stat --format '%U %u %n' "$scratch"/results/quick/*/*/*/run.json "$scratch"/results/reports/*
    inside --entrypoint python3 "msbench:$target" -c '
import json, pathlib
for path in sorted(pathlib.Path("/work/results").rglob("run.json")):
    record = json.loads(path.read_text())
    print(record["model"], record["status"], record["environment"]["container"])'
}

base=${BASE:-localhost/bookworm}
if [ -z "${BUILT:-}${BASE:-}" ] && ! buildah inspect --type image "$base" > /dev/null 2>&1; then make_base; fi
if [ -z "${BUILT:-}" ]; then build "$@"; fi
mkdir "$scratch/data" "$scratch/results"
chmod 755 "$scratch"
chown 12345:12345 "$scratch/data" "$scratch/results"
mounts=(--volume "$scratch/data:/data" --volume "$scratch/results:/work/results")
walls
packages
smoke
if [ "$target" = cpu ]; then demo; fi
say "msbench:$target holds"
