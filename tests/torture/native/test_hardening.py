"""The accelerator as it is installed: checked stacks, checked copies, and no table of functions that can be written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest
from barnabas.captures.native.accelerator import native as captures
from barnabas.decoder.native.accelerator import native as decoder
from barnabas.proxy.native.accelerator import native as proxy


@pytest.mark.parametrize("native", [decoder, captures, proxy], ids=["decoder", "captures", "proxy"])
@pytest.mark.skipif(proxy is None, reason="the accelerator is not built")
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("readelf") is None, reason="no ELF files, or nothing that reads them")
def test_how_it_was_built(native: Any) -> None:
    """Where the compiler has no such flags it is built without: gcc and clang on Linux have them."""

    def readelf(*options: str) -> str:
        return subprocess.run(["readelf", *options, str(native.__file__)], capture_output=True, text=True, check=True).stdout

    assert "NOW" in readelf("-d"), "functions are looked up late"
    assert "GNU_RELRO" in readelf("-lW")
    stack = next(line for line in readelf("-lW").splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack.replace(" ", "")
    symbols = readelf("-W", "--dyn-syms")
    assert "__stack_chk_fail" in symbols, "no stack protector"
    assert native is decoder or "_chk@" in symbols.replace("__stack_chk_fail", ""), "no copy is checked"
