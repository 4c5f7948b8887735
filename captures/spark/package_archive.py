"""The package as a zip or a wheel, so that the executors of a cluster need not have it installed."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from . import PipelineError

DRIVER_FOLDER = "wheel"
_ROOT = Path(__file__).resolve().parents[2]
_PARTS = ("captures", "decoder")
_NOT_OF_TASKS = ("__main__.py", "setup.py", "testing.py")
_SUFFIXES = (".py", ".txt", ".kafka")


def package(target: Path) -> Path:
    """Write what tasks need of this package as a zip with its own name: the decoder and the captures, in pure Python.

    The accelerator does not go along: a zip cannot hold it. `unpacked` is for that.
    """
    name = __name__.split(".")[0]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(_ROOT.glob("*.py")):
            if module.name not in _NOT_OF_TASKS:
                archive.write(module, f"{name}/{module.name}")
        for part in _PARTS:
            for file in sorted((_ROOT / part).rglob("*")):
                inside = file.relative_to(_ROOT)
                if file.suffix in _SUFFIXES:
                    archive.write(file, f"{name}/{inside}")
    return target


def unpacked(wheel: Path, folder: Path) -> dict[str, str]:
    """Spark's settings to have executors unpack a wheel of this package and take it from there, with what was compiled: it has
    to be for their Python. Raises `PipelineError`. `folder` gets a copy, whose suffix makes Spark unpack it, and `DRIVER_FOLDER`
    in it the contents, for the Python with which Spark plans on this machine: it may lack the package, too."""
    name = __name__.split(".")[0]
    try:
        with zipfile.ZipFile(wheel) as archive:
            if f"{name}/captures/spark/package_archive.py" not in archive.namelist():
                raise PipelineError(f"{wheel} is not a wheel of {name}: make one with pip wheel --no-deps")
            archive.extractall(folder / DRIVER_FOLDER)
        shutil.copy(wheel, folder / f"{name}.zip")
    except (OSError, zipfile.BadZipFile) as error:
        raise PipelineError(f"{wheel} is not a readable wheel: {getattr(error, 'strerror', None) or error}") from error
    return {"spark.archives": f"{folder / name}.zip#{name}-wheel", "spark.executorEnv.PYTHONPATH": f"{name}-wheel"}
