"""Builds the package with nothing but the standard library: it has no extension modules and no dependencies."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SETTINGS = (HERE / "pyproject.toml").read_text()


def setting(key: str) -> str:
    """A text of `[project]`; `tomllib` is newer than the oldest Python that this is for."""
    found = re.search(rf'^{key} = "(.*)"$', SETTINGS, re.MULTILINE)
    if found is None:
        raise KeyError(key)
    return found[1]


VERSION = setting("version")
STEM = f"llm_do-{VERSION}"
METADATA = f"""\
Metadata-Version: 2.1
Name: {setting("name")}
Version: {VERSION}
Summary: {setting("description")}
License: {setting("license")}
Requires-Python: {setting("requires-python")}
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: llm-do\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def sources() -> Iterator[Path]:
    for path in sorted((HERE / "llm_do").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    files = [(path.relative_to(HERE).as_posix(), path.read_bytes()) for path in sources()]
    return written(wheel_directory, files)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    return written(wheel_directory, [("llm_do.pth", f"{HERE}\n".encode())])


def written(directory: str, files: list[tuple[str, bytes]]) -> str:
    name = f"{STEM}-py3-none-any.whl"
    about = f"{STEM}.dist-info"
    files = [*files, (f"{about}/METADATA", METADATA.encode()), (f"{about}/WHEEL", WHEEL.encode())]
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files) + f"{about}/RECORD,,\n"
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in [*files, (f"{about}/RECORD", record.encode())]:
            wheel.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data)
    return name


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    name = f"{STEM}.tar.gz"
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path in [HERE / "pyproject.toml", HERE / "build_wheel.py", *sources()]:
            archive.add(path, f"{STEM}/{path.relative_to(HERE).as_posix()}")
        info = tarfile.TarInfo(f"{STEM}/PKG-INFO")
        info.size = len(METADATA.encode())
        archive.addfile(info, io.BytesIO(METADATA.encode()))
    return name
