"""The house rules that a machine can check: packaging, and what must not stand in any file. Layers: `make lint`."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import grimp
import pytest
from barnabas.decoder.native import accelerator
from harness.run.import_contracts import folders_in_circles, strongly_connected
from harness.waiting import PATIENCE

NOT_PACKED = {"tests", "bench", "docs", "examples"}
"""Folders of the root."""
PACKED = {".py", ".pyi", ".typed", ".kafka", ".txt", ".tcss", ".html", ".css", ".js"}
# In two halves, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("crates", "io"),
    ("golang", "org"), ("maven", "org"), ("maven", r"apache\.org/maven2"), ("debian", "org"), ("docker", "io"),
]  # fmt: skip
REGISTRY = re.compile("|".join(rf"\b{name}\.{end}\b" for name, end in REGISTRY_HOSTS))
HOME = re.compile("|".join(["/" + "home/[a-z]", "/" + "Users/[A-Za-z]", "/" + r"root/\S", r"[A-Z]:\\" + "Users"]))
MOST_CHILDREN = 12
"""Modules, folders and other files in a folder: a stranger sees at one glance what there is. `conftest.py`, `__init__.py` and stubs do not count."""
LARGER = {
    "bench": (13, "a folder for each thing that is measured"),
    "captures": (13, "a folder for each thing that is done with recordings"),
    "decoder": (14, "its folders, the errors that all of them raise, and how messages are shown"),
    "decoder/schema/definitions": (110, "a file for each API, as in Kafka"),
    "docs": (45, "a page for each subject, and pictures"),
    "proxy": (14, "its folders, and the events that all of them send"),
    "tests": (14, "the folders of the product, its root modules, and what tests share"),
    "tests/decoder/findings/captures": (150, "a recording for each thing to be found"),
    "tests/decoder/findings/reports/stories": (13, "an area each, and how stories are told"),
    "ui/web/pages": (13, "a module for each page"),
    "tests/matrix/programs": (13, "a program for each client library"),
    "tests/real/clients/java": (13, "a program for each thing that Java clients do"),
}
"""Folders that may have more: how many, and why."""
LONGEST_LINE = 120
LONGER_LINES = {
    "": 18, "bench": 131, "captures": 831, "decoder": 1204, "plugins": 128, "proxy": 705, "tests": 1707, "ui": 638,
}  # fmt: skip
"""How many lines of Python and C are still longer, by top folder. The numbers only go down."""
LOCK_FILE = re.compile(r"(\.lock|[-.]lock\.(json|yaml|yml|toml|txt))$")


@pytest.fixture(scope="module")
def tree(repository: Path) -> list[Path]:
    """Every file of the tree that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    paths = [repository / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.fixture(scope="module")
def texts(tree: list[Path]) -> dict[Path, str]:
    found = {}
    for path in tree:
        try:
            found[path] = path.read_text("utf-8")
        except UnicodeDecodeError:  # a binary file
            continue
    return found


def packages_of(tree: list[Path], repository: Path) -> set[str]:
    inside = {path.parent.relative_to(repository) for path in tree if path.name == "__init__.py"}
    return {".".join(("barnabas", *folder.parts)) for folder in inside if not NOT_PACKED & set(folder.parts[:1])}


def test_every_package_of_the_tree_is_packed(tree, repository):
    assert set(runpy.run_path(str(repository / "setup.py"))["packages"]()) == packages_of(tree, repository)


def test_every_module_is_in_a_package(tree, repository):
    folders = {path.parent for path in tree if path.suffix == ".py"}
    loose = {
        str(folder.relative_to(repository))
        for folder in folders
        if not NOT_PACKED & set(folder.relative_to(repository).parts[:1]) and not (folder / "__init__.py").exists()
    }
    assert loose == set()


def test_no_file_names_a_machine(texts, repository):
    own = re.escape(str(repository)) + r"(?![\w-])"
    anywhere = re.compile(f"{HOME.pattern}|{own}") if len(repository.parts) > 2 else HOME
    assert [f"{path}: {found[0]}" for path, text in texts.items() if (found := anywhere.search(text))] == []


def test_no_file_names_a_registry(texts):
    assert [f"{path}: {found[0]}" for path, text in texts.items() if (found := REGISTRY.search(text))] == []


def test_a_folder_has_a_dozen_children_at_most(tree, repository):
    children: dict[str, set[str]] = {}
    for path in tree:
        inside = path.relative_to(repository)
        for folder, child in zip(inside.parents, (inside, *inside.parents)):
            if child.name not in ("__init__.py", "conftest.py") and child.suffix != ".pyi":
                children.setdefault(folder.as_posix(), set()).add(child.name)
    del children["."]  # what tools want to find there
    found = {folder: len(names) for folder, names in children.items() if len(names) > LARGER.get(folder, (MOST_CHILDREN, ""))[0]}
    assert found == {}


def test_no_more_lines_are_too_long(texts, repository):
    longer: dict[str, int] = {}
    for path, text in texts.items():
        if path.suffix in (".py", ".pyi", ".c", ".h"):
            inside = path.relative_to(repository).parts
            top = inside[0] if len(inside) > 1 else ""
            longer[top] = longer.get(top, 0) + sum(len(line) > LONGEST_LINE for line in text.splitlines())
    assert {top: count for top, count in longer.items() if count > LONGER_LINES.get(top, 0)} == {}


def test_no_lock_file(tree):
    assert [path for path in tree if LOCK_FILE.search(path.name)] == []


def test_nothing_imports_a_folder_of_the_product_by_its_bare_name(tree, repository):
    """From the repository's root it would be found, as a second copy of the product beside `barnabas`."""
    inner = [path.relative_to(repository) for path in tree if path.name == "__init__.py"]
    product = {path.parts[0] for path in inner if len(path.parts) > 1} - NOT_PACKED
    assert "decoder" in product
    bare = re.compile(rf"^\s*(?:from|import) ({'|'.join(sorted(product))})\b", re.M)
    found = [
        f"{path}: {match[0].strip()}"
        for path in tree
        if path.suffix == ".py" and (repository / path).exists()
        for match in bare.finditer((repository / path).read_text())
    ]
    assert found == []


@pytest.mark.parametrize("package", ["barnabas", "barnabas.decoder"])
def test_the_decoder_brings_no_sockets_and_no_screen(package):
    unwanted = ["asyncio", "socket", "selectors", "subprocess", "textual", "rich", "typer", "pyspark", "pyarrow"]
    # crc32c reads its own metadata, and the standard library's way to that loads socket.
    program = (
        f"import sys, crc32c, cramjam; before = set(sys.modules); import {package}; "
        f"print(sorted(set({unwanted}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def build_wheel(tree: list[Path], repository: Path, folder: Path, *, compiler: bool) -> Path:
    """The wheel that is built from the source distribution of a copy of the tree."""
    source = folder / "source"
    for path in tree:
        target = source / path.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    settings = source / "pyproject.toml"  # what is judged is what is packed: optimizing it would take longer than all else
    optimized = settings.read_text()
    assert '"-O2"' in optimized
    settings.write_text(optimized.replace('"-O2"', '"-O0", "-g0"'))
    _build("sdist", source, folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # 3.11.3 and older have no filters; 3.12 warns where none is named
        packed.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (folder / "unpacked").iterdir()
    _build("wheel", unpacked, folder, None if compiler else {"CC": "false"})
    (built,) = folder.glob("*.whl")
    return built


def _build(kind: str, source: Path, target: Path, environment: dict[str, str] | None = None) -> None:
    program = f"from setuptools.build_meta import build_{kind} as build; build({str(target)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=source,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("compiler", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["pure", "compiled"])
def test_the_wheel_holds_every_module_and_schema_file_and_nothing_else(compiler, tree, repository, tmp_path):
    wheel = build_wheel(tree, repository, tmp_path, compiler=compiler)
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folders = {repository.joinpath(*name.split(".")[1:]) for name in packages_of(tree, repository)}
    packed = {path for path in tree if path.parent in folders and path.suffix in PACKED}
    packed -= {repository / "setup.py", repository / "constraints.txt"}
    packed |= {path for path in tree if path.suffix == ".kafka" and not NOT_PACKED & set(path.parts)}
    wanted = {f"barnabas/{path.relative_to(repository)}" for path in packed}
    assert sum(name.endswith(".kafka") for name in wanted) > 90
    compiled = {name for name in names if name.endswith((".so", ".pyd"))}
    assert names - compiled == wanted
    assert bool(compiled) == (compiler and accelerator.native is not None), "without a compiler, the wheel does without"


@pytest.mark.slow
def test_the_wheel_installs_and_every_module_imports(tree, repository, tmp_path):
    wheel = build_wheel(tree, repository, tmp_path, compiler=True)
    target = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    python = target / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, timeout=120)
    program = (
        "import importlib, pkgutil, barnabas\n"
        "found = [m.name for m in pkgutil.walk_packages(barnabas.__path__, 'barnabas.') if m.name[-8:] != '__main__']\n"
        "for name in found: importlib.import_module(name)\n"
        "print(barnabas.__file__, *found)"
    )
    # What it depends on comes from this environment's folder; the .pth file of its own editable copy is not read there.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if "site-packages" in path)}
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    file, *imported = done.stdout.split()
    assert Path(file).is_relative_to(target)
    modules = {path.with_suffix("") for path in map(Path, zipfile.ZipFile(wheel).namelist()) if path.suffix == ".py"}
    names = {".".join(path.parts).removesuffix(".__init__") for path in modules if path.name != "__main__"}
    assert set(imported) >= names - {"barnabas"}


def test_no_folders_import_each_other():
    graph = grimp.build_graph("barnabas", cache_dir=None)
    tops = ("decoder", "captures", "plugins", "proxy", "ui")
    assert {top: folders_in_circles(graph, f"barnabas.{top}") for top in tops} == {top: [] for top in tops}


def test_circles_of_folders_are_found():
    graph = grimp.ImportGraph()
    for importer, imported in (("p.a.x", "p.b.y"), ("p.b.z", "p.a.w"), ("p.c", "p.a.x"), ("p.d.e", "p.d.f")):
        for name in (importer, imported):
            graph.add_module(name)
        graph.add_import(importer=importer, imported=imported)
    for package in ("p", "p.a", "p.b", "p.d"):
        graph.add_module(package)
    assert folders_in_circles(graph, "p") == ["p.a", "p.b"]


def test_circles_of_imports_are_found():
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": ["d"], "f": ["a", "f"], "g": []}
    assert sorted(strongly_connected(graph)) == [["a", "b", "c"], ["d", "e"], ["f"], ["g"]]
