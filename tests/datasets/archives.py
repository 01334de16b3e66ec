"""Small archives of every kind, and ways to spoil them."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

Files = Mapping[str, bytes]

FILES: Files = {
    f"top/part{index % 2}/file{index}.bin": random.Random(index).randbytes(size)
    for index, size in enumerate((700, 0, 512, 1, 3000, 1536))
}


def tar_bytes(files: Files, prefix: str = "./") -> bytes:
    """An uncompressed tar that begins with a directory, its names with ``./`` as `tar` writes them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        folder = tarfile.TarInfo(f"{prefix}top")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def special_tar(name: str, kind: bytes, files: Files) -> bytes:
    """A tar with one member of another kind, such as a link, before some files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return stream.getvalue()[: tarfile.BLOCKSIZE] + tar_bytes(files)


def zip_bytes(files: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("top")
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


FORMATS: dict[str, Callable[[Files], bytes]] = {
    "tar": tar_bytes,
    "tar.gz": lambda files: gzip.compress(tar_bytes(files), mtime=0),
    "tar.xz": lambda files: lzma.compress(tar_bytes(files)),
    "tar.bz2": lambda files: bz2.compress(tar_bytes(files)),
    "zip": zip_bytes,
}


def write_folder(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
