"""Strict reading of archives and folders of files: everything wanted is read whole, or an error is raised.

A source is a folder, a zip or a tar; a tar may be compressed with gzip, xz or bzip2. The kind is recognised
by the first bytes. The rules:

- Names have ``/`` between parts and no ``./`` before them. An absolute name, one with ``..`` or a backslash,
  or one that is not UTF-8 is refused.
- Directories are skipped. A link, a device or a sparse file is refused where it is wanted. In a folder,
  links are followed: they are the user's own.
- The same name again is skipped if its bytes are the same, and refused if they differ; two names that
  differ in case only are refused, as they are one file on some disks.
- A zip has a CRC for each file; gzip, xz and bzip2 have theirs; a tar has a checksum for each header, but
  none for the bytes of a file: only the digest of a whole uncompressed tar reveals a changed byte in a file.
- Truncation is an error wherever it occurs, as is anything after the end.
"""

from msbench.datasets.archives.entries import UNPACKED
from msbench.datasets.archives.member_files import content, members
from msbench.datasets.archives.tree import FileTree, open_tree
from msbench.datasets.archives.unpacking import opened, unpack

__all__ = ["UNPACKED", "FileTree", "content", "members", "open_tree", "opened", "unpack"]
