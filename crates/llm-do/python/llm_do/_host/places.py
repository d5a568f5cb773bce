"""Where modules are found besides those of Python and of the project, and whose compiled files count.

The interpreter starts isolated: neither the variables of Python nor the user's site directory count by themselves.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def add_places() -> None:
    """What the manifest passes on as PYTHONPATH, and what the user installed, unless others can write there."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0:0] = [os.path.abspath(path) for path in named if path]
    if sys.prefix != sys.base_prefix or "site" not in sys.modules:
        return
    import site

    place = site.getusersitepackages()
    if not os.path.isdir(place):
        return
    if is_own(place):
        site.addsitedir(place)
    else:
        sys.stderr.write(f"{place} is left out, because others can write to it\n")


def is_own(place: str) -> bool:
    """Whether nobody but this user and root can change what is in a directory, or put another one in its place."""
    place = os.path.realpath(place)
    while True:
        found = os.stat(place)
        if found.st_uid not in (0, os.getuid()) or (found.st_mode & 0o022 and not is_shared_well(found)):
            return False
        above = os.path.dirname(place)
        if above == place:
            return True
        place = above


def is_shared_well(found: os.stat_result) -> bool:
    """Others may write into it, but not change what is there; or they are nobody."""
    if found.st_mode & 0o1000:
        return True
    return not found.st_mode & 0o002 and is_own_group(found.st_gid)


def is_own_group(group: int) -> bool:
    """Many systems give each user a group of the same name, which has nobody else in it."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def is_beneath(path: str, directory: str) -> bool:
    return path == directory or path.startswith(os.path.join(directory, ""))


class ProjectFiles:
    """What belongs to a project, and not to an installation of Python that lies in it."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        prefixes = {os.path.realpath(place) for place in (sys.prefix, sys.exec_prefix, sys.base_prefix)}
        self._installed = [place for place in prefixes if place != self.root and is_beneath(place, self.root)]
        self._known: dict[str, bool] = {}

    def hold(self, directory: str) -> bool:
        known = self._known.get(directory)
        if known is None:
            real = os.path.realpath(directory)
            is_installed = any(is_beneath(real, place) for place in self._installed)
            known = self._known[directory] = is_beneath(real, self.root) and not is_installed
        return known

    def compile_always(self) -> None:
        """From now on no compiled file of the project is read or written, whoever imports: who put it there is not known, and
        nobody looked at it."""
        import importlib._bootstrap_external as external

        beside = external.cache_from_source

        def cache_from_source(path: Any, *arguments: Any, **options: Any) -> Any:
            if self.hold(os.path.dirname(os.fspath(path))):
                # This is how a system says that it keeps none.
                raise NotImplementedError
            return beside(path, *arguments, **options)

        external.cache_from_source = cache_from_source
