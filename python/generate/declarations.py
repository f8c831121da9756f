"""Reads the public headers of flexlab: functions, structs, enumerations and callbacks, each with its comment.

The headers have one style (clang-format, C17 without tricks), so that this is a list of patterns and no parser of C.
A declaration that no pattern matches is an error: nothing is left out silently."""
import pathlib
import re

HEADINGS = re.compile(r"/\* -{3,}.*?-{3,} \*/\n", re.S)  # lines that divide a header in sections
PIECES = re.compile(
    r"(?P<comment>/\*.*?\*/)"
    r"|(?P<directive>^[ \t]*#(?:[^\n\\]|\\\n|\\.)*)"
    r"|(?P<cplusplus>extern \"C(?:\+\+)?\" \{|^\}$)"
    r"|(?P<function>FLEXLAB_API\s[^;]+;)"
    r"|typedef\s+enum\s+\w+\s*\{(?P<typed_values>[^}]*)\}\s*(?P<enum>\w+);"
    r"|enum\s*\w*\s*\{(?P<values>[^}]*)\};"
    r"|(?:typedef\s+)?struct\s+(?P<struct>\w+)\s*\{(?P<members>[^}]*)\}[^;]*;"
    r"|typedef\s+struct\s+\w+\s+(?P<opaque>\w+);"
    r"|typedef\s+(?P<result>[\w ]+?[ *]+)\(\*(?P<callback>\w+)\)\((?P<taken>[^;]*)\);"
    r"|typedef\s+(?P<plain_result>[\w ]+?)\s+(?P<plain_callback>\w+)\((?P<plain_taken>[^;]*)\);"
    r"|typedef\s+(?P<aliased>[\w ]+?)\s+(?P<alias>\w+);"
    r"|(?P<space>\s+)"
    r"|(?P<rest>.)",
    re.S | re.M)
MAPS = {  # the rows of ops.def that declare a function by themselves, and what it takes
    "MAP1": "const tensor *x", "MAP1_SCALAR": "const tensor *x, float alpha",
    "MAP1_SCALARS": "const tensor *x, float alpha, float beta",
    "MAP2": "const tensor *a, const tensor *b", "MAP2_SCALAR": "const tensor *a, const tensor *b, float alpha",
    "MAP2_SCALARS": "const tensor *a, const tensor *b, float alpha, float beta",
    "MAP3": "const tensor *a, const tensor *b, const tensor *c",
}
MAPS |= {"MAP2_BLOCK": MAPS["MAP2"], "MAP3_BLOCK": MAPS["MAP3"]}
MAPS |= {name.replace("MAP", "REAL"): taken for name, taken in MAPS.items() if name[3] in "12" and "BLOCK" not in name}


def plain(comment):
    """The text of a comment, its paragraphs apart, lists kept."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment.strip()[2:-2].strip().split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def split_type(text):
    """'const tensor *x' -> ('const tensor *', 'x', ''); 'int64_t dim[8]' -> ('int64_t', 'dim', '8')."""
    match = re.fullmatch(r"\s*(?P<type>[\w\s]*?[\w]+[\s*]*?)\s*(?P<name>\b\w+)?\s*(?:\[(?P<size>\w*)\])?\s*", text)
    if not match or not match["type"]:
        raise SystemExit(f"cannot read the declaration '{text.strip()}'")
    kind, name, size = match["type"], match["name"] or "", match["size"]
    kind = re.sub(r"\s+", " ", kind).strip()
    return kind.replace(" *", "*").replace("*", " *").replace("* *", "**"), name, size


def parameters(text):
    text = without_comments(text).strip()
    if text in ("void", ""):
        return []
    result = []
    for part in text.split(","):
        pointers = part.count("*")
        kind, name, size = split_type(part.replace("*", " "))
        result.append((kind + (" " + "*" * (pointers + (size is not None)) if pointers or size is not None else ""), name))
    return result


def members(text):
    """The members of a struct: (type, name, length or '', comment), or a callback's (result, name, 'function', ...)."""
    result, comment = [], ""
    for piece in re.finditer(r"(?P<comment>/\*.*?\*/)|(?P<member>[^;/]+);", text, re.S):
        if piece["comment"]:
            before = text[:piece.start()].rstrip(" ")
            if result and not before.endswith("\n"):  # behind a member, on its line
                result[-1] = result[-1][:3] + ((result[-1][3] + " " + plain(piece["comment"])).strip(),)
            else:
                comment = plain(piece["comment"])
            continue
        member = piece["member"].strip()
        function = re.fullmatch(r"([\w ]+?[ *]+)\(\*(\w+)\)\((.*)\)", member, re.S)
        if function:
            result.append((function[1].strip(), function[2], parameters(function[3]), comment))
        else:
            kind = None
            for part in member.split(","):
                pointers = part.count("*")
                one, name, size = split_type((f"{kind} " if kind else "") + part.replace("*", " "))
                kind = one
                result.append((one + (" " + "*" * pointers if pointers else ""), name, size or "", comment))
        comment = ""
    return result


def values(text, known):
    result, following = {}, 0
    for part in without_comments(text).split(","):
        if not part.strip():
            continue
        name, _, value = (word.strip() for word in part.partition("="))
        following = eval(value, {}, known | result) if value else following  # a constant expression of integers
        result[name], following = following, following + 1
    return result


def read(folders):
    """Everything that the headers in these folders declare."""
    found = {"functions": {}, "structs": {}, "opaque": [], "enums": {}, "constants": {}, "callbacks": {}, "aliases": {}}
    headers = sorted(path for folder in folders for path in pathlib.Path(folder).glob("flexlab/*.h"))
    first = ("status.h", "formats.h", "tensor_life.h", "nn_network.h")  # whose constants others use
    for path in sorted(headers, key=lambda path: (path.name not in first, path.name)):
        if path.name in ("symbols.h", "api.h", "nn_group_mpi.h"):  # the last one is read with mpi.h alone
            continue
        read_header(found, path)
    definitions = next(pathlib.Path(folder) / "flexlab/ops.def" for folder in folders
                       if (pathlib.Path(folder) / "flexlab/ops.def").exists())
    read_rows(found, definitions.read_text())
    return found


def read_header(found, path):
    text = HEADINGS.sub("\n", path.read_text())
    text = re.sub(r"^#ifndef __cplusplus\n(.*?)#else\n.*?#endif\n", r"\1", text, flags=re.S | re.M)
    comment, fresh = "", False
    for piece in PIECES.finditer(text):
        kind = piece.lastgroup
        if piece["rest"]:
            raise SystemExit(f"{path.name}: cannot read '{text[piece.start():piece.start() + 60]}'")
        if piece["comment"]:
            comment, fresh = plain(piece["comment"]), True
        elif piece["function"]:
            declaration = without_comments(piece["function"])[len("FLEXLAB_API"):].strip(" ;\n")
            match = re.fullmatch(r"(?P<result>[\w\s]+?[\s*]+)(?P<name>\w+)\((?P<taken>.*)\)", declaration, re.S)
            pointers = match["result"].count("*")
            result = re.sub(r"\s+", " ", match["result"].replace("*", " ")).strip() + (" " + "*" * pointers if pointers else "")
            found["functions"][match["name"]] = (result, parameters(match["taken"]), comment, path.name)
        elif piece["values"] is not None or piece["enum"]:
            made = values(piece["values"] or piece["typed_values"], found["constants"])
            found["constants"].update(made)
            if piece["enum"]:
                found["enums"][piece["enum"]] = list(made)
        elif piece["struct"]:
            found["structs"][piece["struct"]] = (members(piece["members"]), comment)
        elif piece["opaque"]:
            found["opaque"].append(piece["opaque"])
        elif piece["callback"] or piece["plain_callback"]:
            name, result, taken = (("callback", "result", "taken") if piece["callback"] else
                                   ("plain_callback", "plain_result", "plain_taken"))
            found["callbacks"][piece[name]] = (piece[result].strip(), parameters(piece[taken]), comment)
        elif piece["alias"]:
            found["aliases"][piece["alias"]] = piece["aliased"]
        if kind not in ("space", "comment", "directive") and not piece["comment"]:
            fresh = False


def read_rows(found, text):
    """Elementwise operations, which headers declare through ops.def; the definition serves as the comment."""
    row = re.compile(r"^FL_(\w+)\((\d+), \w+, (\w+), (.*)\)$", re.M)
    for kind, _, name, definition in row.findall(text):
        if kind in MAPS:
            definition = re.sub(r"FL_FUNCTION\((\w+)\)", r"\1", definition)
            definition = re.sub(r"FL_SUM\((\w+), (-?)(.*?)\)(?=$| )", lambda m: f"{m[1]} {'-' if m[2] else '+'} {m[3]}", definition)
            header = "blocks_elementwise.h" if "BLOCK" in kind or kind.startswith("REAL2") else "tensor_elementwise.h"
            found["functions"][f"tensor_{name}"] = (
                "tensor_status", parameters("tensor *y, " + MAPS[kind]),
                f"y = {definition}, element by element, rounded once.", header)
