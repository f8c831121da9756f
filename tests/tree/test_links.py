#!/usr/bin/env python3
"""The use of symbols between objects, as the linker sees it: no circle of more than three objects of the library, and
none between folders. Includes alone do not show it (test_layers.py): a lower header can declare what an upper file
defines. usage: test_links.py LIST_OF_OBJECTS NM LIST_OF_OBJECTS: a file with a path a line. 77: nm sees no symbols"""
import collections
import pathlib
import re
import subprocess
import sys

# The registry: tables that name what is built upon them, and are looked up from everywhere: a kernel asks for a format, a
# format has kernel sets. This is the one circle that is meant, and it is cut here: what these objects use does not count.
REGISTRY = {
    "core/table/formats.c": "all formats, each with its kernel sets",
    "core/ops/objects.c": "all operations, each with its reference kernel and those that serve every format",
    "core/table/device_kinds.c": "the backends of devices that are opened by name",
}
LARGEST = 3  # objects that may use each other in a circle


def name_of(path):
    return re.sub(r".*/src/|\.(o|obj)$", "", path)


def folder_of(name):
    return "the registry" if name in REGISTRY else str(pathlib.PurePosixPath(name).parent)


def symbols(nm, objects):
    """{object: {symbol it uses}}, {symbol: object that defines it}"""
    uses, defines = collections.defaultdict(set), {}
    listing = subprocess.run([nm, "-A", "-P", "-g", *objects], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, rest = line.partition(": ")
        fields = rest.split()
        if len(fields) < 2:
            continue
        if fields[1] in "Uw":
            uses[name_of(path)].add(fields[0])
        else:
            defines[fields[0]] = name_of(path)
    return uses, defines


def circles(graph):
    """The sets of more than one node that all reach each other, the largest first (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def shortest(graph, members):
    """A shortest circle within the set."""
    best = None
    for start in sorted(members):
        ways = collections.deque([[start]])
        seen = set()
        while ways and (best is None or len(ways[0]) < len(best) - 1):
            way = ways.popleft()
            for other in sorted(graph[way[-1]]):
                if other == start:
                    best = min(best or [*way, start], [*way, start], key=len)
                elif other in members and other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
    return best


def tell(kind, graph, members):
    """Names the members, a shortest circle, and then other short ones until no edge is left that closes one."""
    lines = [f"{len(members)} {kind} use each other in a circle: {', '.join(sorted(members))}"]
    rest = {a: {b: e for b, e in graph[a].items() if b in members} for a in members}
    for _ in range(5):
        left = circles(rest)
        if not left:
            return lines
        way = shortest(rest, set(left[0]))
        for a, b in zip(way, way[1:]):
            user, symbol, definer = rest[a][b]
            lines.append(f"    {user} uses {symbol} of {definer}")
        lines.append("")
        del rest[way[-2]][way[-1]]
    return lines[:-1] + ["    and so on"]


def main(list_of_objects, nm):
    sys.setrecursionlimit(10000)
    objects = [path for path in pathlib.Path(list_of_objects).read_text().split("\n") if "/src/" in path]
    for program in (nm, "gcc-nm", "llvm-nm"):
        try:
            uses, defines = symbols(program, objects)
        except (OSError, subprocess.CalledProcessError):
            continue
        if len(set(defines.values())) > len(objects) / 2:
            break
    else:
        print(f"{nm}, gcc-nm and llvm-nm see no symbols in these objects")
        return 77
    failures = []
    graph = {name_of(path): {} for path in objects}
    folders = collections.defaultdict(dict)
    for name in REGISTRY:
        if name not in graph:
            failures.append(f"{name} is no object of the library: take it out of REGISTRY")
    for user in sorted(graph):
        for symbol in sorted(uses[user]):
            definer = defines.get(symbol, user)
            if definer == user or user in REGISTRY:
                continue
            edge = (user, symbol, definer)
            graph[user].setdefault(definer, edge)
            if folder_of(user) != folder_of(definer):
                folders[folder_of(user)].setdefault(folder_of(definer), edge)
    for members in circles(graph):
        if len(members) > LARGEST:
            failures += tell("objects", graph, members)
    for members in circles(folders):
        failures += tell("folders", folders, members)
    edges = sum(len(graph[a]) for a in graph)
    print("\n".join(failures) if failures else f"{len(graph)} objects, {edges} pairs that use each other's symbols: no circle"
          f" of more than {LARGEST}, none between {len({folder_of(name) for name in graph})} folders")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
