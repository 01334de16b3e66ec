"""Archives and folders of files, read strictly: all of what is wanted arrives whole, or there is an error.

A source is a folder, a zip or a tar; a tar may be compressed with gzip, xz or bzip2. Which it is, its first
bytes say. The rules:

- Names have ``/`` between parts and no ``./`` before them. An absolute name, one with ``..`` or a backslash,
  or one that is not UTF-8 is refused.
- Directories are passed over. A link, a device or a sparse file is refused where it is wanted. In a folder,
  links are followed: they are the user's own.
- The same name with the same bytes again is passed over, with other bytes refused; so are two names that
  differ in case only, as they are one file on some disks.
- A zip has a CRC for each file; gzip, xz and bzip2 have theirs; a tar has a checksum for each header, and
  none for the bytes of a file: a byte that changed in an uncompressed tar only the digest of the whole tells.
- A cut is an error wherever it is, as is anything after the end.
"""

from msbench.datasets.archives.entries import UNPACKED
from msbench.datasets.archives.member_files import content, members
from msbench.datasets.archives.tree import FileTree, open_tree
from msbench.datasets.archives.unpacking import opened, unpack

__all__ = ["UNPACKED", "FileTree", "content", "members", "open_tree", "opened", "unpack"]
