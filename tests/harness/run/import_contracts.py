"""A contract for import-linter that it does not have: no circles of modules, in whatever folders these are."""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class NoCircles(Contract):
    """No module of these packages imports, by way of others of them, itself. Imports for types alone count."""

    type_name = "no_circles"
    packages = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        modules: set[str] = set()
        for package in self.packages:  # type: ignore[attr-defined]
            modules |= {package.name} | graph.find_descendants(package.name)
        imported = {module: sorted(graph.find_modules_directly_imported_by(module) & modules) for module in modules}
        circles = [circle for circle in strongly_connected(imported) if len(circle) > 1]
        return ContractCheck(kept=not circles, metadata={"circles": circles})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for circle in check.metadata["circles"]:
            output.print_error(f"{len(circle)} modules import each other:", bold=True)
            for module in circle:
                output.print_error(f"    {module}")


def folders_in_circles(graph: ImportGraph, package: str) -> list[str]:
    """The children of a package, folders and modules, that import themselves by way of others of them."""
    children = sorted(graph.find_children(package))
    imported: dict[str, list[str]] = {}
    for child in children:
        inside = {child} | graph.find_descendants(child)
        others = {other for each in inside for other in graph.find_modules_directly_imported_by(each)}
        found = {".".join(other.split(".")[: child.count(".") + 1]) for other in others}
        imported[child] = sorted(found & set(children) - {child})
    return sorted(folder for circle in strongly_connected(imported) if len(circle) > 1 for folder in circle)


def strongly_connected(graph: dict[str, list[str]]) -> Iterator[list[str]]:
    """The strongly connected components of a graph (Tarjan's algorithm, without recursion), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for root in sorted(graph):
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(graph[root]))]
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            for other in rest:
                if other not in index:
                    work.append((other, iter(graph[other])))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = path[path.index(node) :]
                    del path[path.index(node) :]
                    on_path -= set(component)
                    yield sorted(component)
