"""Begins the host: takes the package from llm-do, which sends it on the channel. No file that others could write is imported."""

import sys

if sys.version_info < (3, 10):
    sys.stderr.write("llm-do: too old: %d.%d" % sys.version_info[:2])
    sys.exit(1)
import marshal
import os
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER


def take(size):
    taken = bytearray()
    while len(taken) < size:
        piece = os.read(0, size - len(taken))
        if not piece:
            sys.exit(1)
        taken += piece
    return bytes(taken)


def give(data):
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(0, rest) :]


class Package:
    """Finds the modules of `llm_do`, before anybody else does."""

    def __init__(self):
        self.files = {}

    def add(self, path, source, code):
        name, is_package = path[:-3].replace("/", "."), path.endswith("/__init__.py")
        self.files[name[:-9] if is_package else name] = ["<llm-do>/" + path, is_package, source, code]

    def compile(self):
        for file in self.files.values():
            file[3] = marshal.dumps(compile(file[2], file[0], "exec", dont_inherit=True))
        codes = [file[3] for file in self.files.values()]
        sizes = " ".join(str(len(code)) for code in codes).encode() + b"\n"
        whole = sizes + b"".join(codes)
        give(b"%016d" % len(whole) + whole)

    def find_spec(self, name, path=None, target=None):
        if name not in self.files:
            return None
        file, is_package = self.files[name][:2]
        spec = ModuleSpec(name, self, origin=file, is_package=is_package)
        spec.has_location = True
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name):
        file, _, source, code = self.files[name]
        return marshal.loads(code) if code else compile(source, file, "exec", dont_inherit=True)

    def get_source(self, name):
        return self.files[name][2].decode()

    def is_package(self, name):
        return self.files[name][1]


def receive():
    give(MAGIC_NUMBER.hex().encode())
    package = Package()
    first, *lines = take(int(take(16))).decode().splitlines()
    files = [(path, int(source), int(code)) for path, source, code in map(str.split, lines)]
    for path, source, code in files:
        package.add(path, take(source), take(code))
    if first == "compile":
        package.compile()
    sys.meta_path.insert(0, package)


receive()
sys.argv = ["llm-do"]
from llm_do._host.main import main

main()
