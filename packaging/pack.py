"""Makes packages of programs that are built: wheels, npm packages, archives and the extension for VS Code.

    pack.py DIST TARGET=PROGRAM...

Each TARGET is one of Rust's. One of the programs has to run here: it writes the completions and the schemas. Needs nothing but
Python. The same programs give the same bytes: nothing of the day or the machine goes in."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "crates/llm-do/python"))
sys.dont_write_bytecode = True
import build_wheel  # noqa: E402

VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
Files = dict[str, tuple[bytes, int]]
PLAIN, PROGRAM = 0o644, 0o755


@dataclass
class Platform:
    """A target of Rust in the words of others."""

    wheel: list[str]
    npm: tuple[str, str]  # its `os` and `cpu`


PLATFORMS = {
    "x86_64-unknown-linux-musl": Platform(["manylinux_2_17_x86_64", "musllinux_1_1_x86_64"], ("linux", "x64")),
    "aarch64-unknown-linux-musl": Platform(["manylinux_2_17_aarch64", "musllinux_1_1_aarch64"], ("linux", "arm64")),
    "x86_64-apple-darwin": Platform(["macosx_10_12_x86_64"], ("darwin", "x64")),
    "aarch64-apple-darwin": Platform(["macosx_11_0_arm64"], ("darwin", "arm64")),
}


def text(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def licences(dist: Path) -> Files:
    """Ours, and the list of those of what is linked, if it was made."""
    files = {name: (text(name), PLAIN) for name in ["LICENSE-APACHE", "LICENSE-MIT"]}
    if (dist / "LICENCES.txt").exists():
        files["LICENCES.txt"] = ((dist / "LICENCES.txt").read_bytes(), PLAIN)
    return files


def shared(program: Path) -> Files:
    """What is the same on every platform, by its place beneath a prefix such as `/usr/local`."""

    def said(*arguments: str) -> bytes:
        return subprocess.run([program, *arguments], check=True, capture_output=True, env={"HOME": "/nowhere"}).stdout

    files: Files = {
        "share/bash-completion/completions/llm-do": (said("completions", "bash"), PLAIN),
        "share/fish/vendor_completions.d/llm-do.fish": (said("completions", "fish"), PLAIN),
        "share/zsh/site-functions/_llm-do": (said("completions", "zsh"), PLAIN),
    }
    for page in sorted((ROOT / "docs/man").iterdir()):
        files[f"share/man/man1/{page.name}"] = (page.read_bytes(), PLAIN)
    for name in ["project", "worker", "config", "test", "events"]:
        files[f"share/llm-do/schemas/{name}.json"] = (said("schema", name), PLAIN)
    for path in sorted((ROOT / "packaging/editors/vim").rglob("*.vim")):
        place = path.relative_to(ROOT / "packaging/editors/vim")
        files[f"share/vim/vimfiles/{place}"] = (path.read_bytes(), PLAIN)
    return files


def zipped(path: Path, files: Files) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100000 | mode) << 16
            archive.writestr(info, data)


def tarred(path: Path, directory: str, files: Files) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(f"{directory}/{name}")
            info.size, info.mode = len(data), mode
            archive.addfile(info, io.BytesIO(data))
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as outer:
        outer.write(inner.getvalue())


def wheel(dist: Path, platform: Platform, program: bytes, shared: Files) -> Path:
    stem = f"llm_do-{VERSION}"
    about = f"{stem}.dist-info"
    files: Files = {}
    for path in build_wheel.sources():
        files[path.relative_to(build_wheel.HERE).as_posix()] = (path.read_bytes(), PLAIN)
    files[f"{stem}.data/scripts/llm-do"] = (program, PROGRAM)
    for name, content in shared.items():
        files[f"{stem}.data/data/{name}"] = content
    for name, content in licences(dist).items():
        files[f"{about}/licenses/{name}"] = content
    tags = "".join(f"Tag: py3-none-{tag}\n" for tag in platform.wheel)
    says = f"Wheel-Version: 1.0\nGenerator: llm-do\nRoot-Is-Purelib: false\n{tags}"
    readme = text("README.md").decode()
    metadata = f"{build_wheel.METADATA}Description-Content-Type: text/markdown\n\n{readme}"
    files[f"{about}/METADATA"] = (metadata.encode(), PLAIN)
    files[f"{about}/WHEEL"] = (says.encode(), PLAIN)
    record = ""
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{about}/RECORD"] = (f"{record}{about}/RECORD,,\n".encode(), PLAIN)
    path = dist / f"{stem}-py3-none-{'.'.join(platform.wheel)}.whl"
    zipped(path, files)
    return path


def npm_name(platform: Platform) -> str:
    return f"llm-do-{platform.npm[0]}-{platform.npm[1]}"


def npm_platform(dist: Path, platform: Platform, program: bytes) -> Path:
    manifest = {
        "name": npm_name(platform),
        "version": VERSION,
        "description": f"The program llm-do for {platform.npm[0]} on {platform.npm[1]}",
        "license": "MIT OR Apache-2.0",
        "os": [platform.npm[0]],
        "cpu": [platform.npm[1]],
        "files": ["bin", "LICENSE-APACHE", "LICENSE-MIT", "LICENCES.txt"],
    }
    files: Files = {"package.json": (json.dumps(manifest, indent=2).encode() + b"\n", PLAIN)}
    files.update(licences(dist))
    files["bin/llm-do"] = (program, PROGRAM)
    path = dist / f"{npm_name(platform)}-{VERSION}.tgz"
    tarred(path, "package", files)
    return path


def npm_main(dist: Path, platforms: list[Platform], shared: Files) -> Path:
    """The package that people name. npm takes the binary package of their platform, and leaves the others out."""
    manifest = {
        "name": "llm-do",
        "version": VERSION,
        "description": "Prompts as executables: agents are text files, code and agents call each other by name",
        "license": "MIT OR Apache-2.0",
        "bin": {"llm-do": "bin/llm-do.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {npm_name(platform): VERSION for platform in platforms},
    }
    files: Files = {
        "package.json": (json.dumps(manifest, indent=2).encode() + b"\n", PLAIN),
        "bin/llm-do.js": (text("packaging/npm/llm-do.js"), PROGRAM),
        "README.md": (text("README.md"), PLAIN),
    }
    files.update(licences(dist))
    files.update({name: content for name, content in shared.items() if name.startswith("share/llm-do/")})
    path = dist / f"llm-do-{VERSION}.tgz"
    tarred(path, "package", files)
    return path


def archive(dist: Path, target: str, program: bytes, shared: Files) -> Path:
    files: Files = {"bin/llm-do": (program, PROGRAM)}
    files.update(shared)
    files["share/apparmor/llm-do"] = (text("packaging/share/apparmor/llm-do"), PLAIN)
    for name in ["README.md", "CHANGELOG.md"]:
        files[name] = (text(name), PLAIN)
    files.update(licences(dist))
    bill = dist / f"llm-do-{VERSION}-{target}.cdx.json"
    if bill.exists():
        files["llm-do.cdx.json"] = (bill.read_bytes(), PLAIN)
    directory = f"llm-do-{VERSION}-{target}"
    path = dist / f"{directory}.tar.gz"
    tarred(path, directory, files)
    return path


def extension(dist: Path, shared: Files) -> Path:
    """For VS Code, in the form that it installs from a file: a language id and the schemas, and no code."""
    source = ROOT / "packaging/editors/vscode"
    manifest = json.loads((source / "package.json").read_text())
    manifest["version"] = VERSION
    files: Files = {"extension/package.json": (json.dumps(manifest, indent=2).encode() + b"\n", PLAIN)}
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in ("package.json", "extension.vsixmanifest", "content-types.xml"):
            files[f"extension/{path.name}"] = (path.read_bytes(), PLAIN)
    for name in ["project", "worker", "config", "test"]:
        files[f"extension/schemas/{name}.json"] = shared[f"share/llm-do/schemas/{name}.json"]
    files["extension/LICENSE.txt"] = (text("LICENSE-MIT"), PLAIN)
    about = (source / "extension.vsixmanifest").read_text().replace("@VERSION@", VERSION)
    files["extension.vsixmanifest"] = (about.encode(), PLAIN)
    files["[Content_Types].xml"] = ((source / "content-types.xml").read_bytes(), PLAIN)
    path = dist / f"llm-do-{VERSION}.vsix"
    zipped(path, files)
    return path


def main(dist: Path, programs: dict[str, Path]) -> None:
    found = None
    for program in programs.values():
        try:
            found = shared(program.resolve())
            break
        except OSError:
            continue
    if found is None:
        sys.exit("none of the programs runs here, so that there are no completions and no schemas")
    made = [npm_main(dist, [PLATFORMS[target] for target in programs], found), extension(dist, found)]
    for target, path in programs.items():
        program, platform = path.read_bytes(), PLATFORMS[target]
        made.append(wheel(dist, platform, program, found))
        made.append(npm_platform(dist, platform, program))
        made.append(archive(dist, target, program, found))
    for path in made:
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), {target: Path(program) for target, program in (word.split("=", 1) for word in sys.argv[2:])})
