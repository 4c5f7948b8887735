"""The accelerator's shared constants, and flags that harden it, as far as this compiler and linker take them. All else is in pyproject.toml."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CONSTANTS = runpy.run_path(str(ROOT / "decoder" / "native" / "constants.py"))
PROGRAM = "#include <string.h>\nint fill(char *to, const char *from, unsigned size) { memcpy(to, from, size); return to[0]; }\n"
COMPILING = (
    ("-fstack-protector-strong",),
    ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"),
    ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    ("-fstack-clash-protection",),
)
LINKING = (("-Wl,-z,relro", "-Wl,-z,now"), ("-Wl,-z,noexecstack",))


class Hardened(build_ext):
    """Tries each set of flags on a program of one line; of those that say the same, the first that is taken."""

    def build_extensions(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "try.c")
            source.write_text(PROGRAM)
            taken: list[str] = []
            for flags in COMPILING:
                if flags[0] not in taken and self._compiles(source, flags):
                    taken += flags
            linked = [flag for flags in LINKING if self._links(source, flags) for flag in flags]
        for extension in self.extensions:
            folder = extension.name.split(".")[1]
            extension.include_dirs += [str(ROOT), str(CONSTANTS["write"](folder, ROOT, Path(self.build_temp)))]
            extension.extra_compile_args += taken
            extension.extra_link_args += linked
        super().build_extensions()

    def _compiles(self, source: Path, flags: tuple[str, ...]) -> bool:
        try:
            self.compiler.compile([str(source)], output_dir=str(source.parent), extra_postargs=["-O2", "-Werror", *flags])
        except Exception:  # whatever a compiler of any kind says: it is done without
            return False
        return True

    def _links(self, source: Path, flags: tuple[str, ...]) -> bool:
        try:
            objects = self.compiler.compile([str(source)], output_dir=str(source.parent))
            library = str(source.with_suffix(".so"))
            self.compiler.link_shared_object(objects, library, extra_postargs=["-Wl,--fatal-warnings", *flags])
        except Exception:  # as above
            return False
        return True


class Modules(build_py):
    """The repository's root is the package, and this file is no part of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [each for each in super().find_package_modules(package, package_dir) if each[:2] != ("barnabas", "setup")]


setup(cmdclass={"build_ext": Hardened, "build_py": Modules})
