"""A reader and a writer of safetensors files from the description of the format alone, for tests: struct and json."""
import json
import struct
import zlib

TYPES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
         "F32": 4, "I64": 8, "U64": 8, "F64": 8}
CODES = {"U8": "B", "I16": "h", "F16": "e", "I32": "i", "F32": "f", "I64": "q", "F64": "d"}


def count_of(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def read_bytes(data):
    """(tensors {name: (type, shape, bytes)}, notes {key: value}); raises ValueError if the format is broken."""
    if len(data) < 8:
        raise ValueError("shorter than its length")
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise ValueError("the header does not fit")

    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)
    header = json.loads(data[8:8 + length].decode("utf-8"), object_pairs_hook=once)
    rest = data[8 + length:]
    notes = header.pop("__metadata__", {})
    if not all(isinstance(v, str) for v in notes.values()):
        raise ValueError("a note that is no string")
    tensors, at = {}, 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        if begin != at or end - begin != TYPES[t["dtype"]] * count_of(t["shape"]):
            raise ValueError(f"{name} lies at {begin} to {end}")
        tensors[name], at = (t["dtype"], t["shape"], rest[begin:end]), end
    if at != len(rest):
        raise ValueError(f"{len(rest) - at} bytes too many")
    return tensors, notes


def read(path):
    with open(path, "rb") as file:
        return read_bytes(file.read())


def values(tensor):
    """The elements as numbers of Python."""
    kind, _, data = tensor
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // TYPES[kind]}{CODES[kind]}", data))


def checksum(path):
    """The value of flexlab.crc32, computed again."""
    with open(path, "rb") as file:
        data = file.read()
    _, notes = read_bytes(data)
    total = zlib.crc32(data[8 + struct.unpack("<Q", data[:8])[0]:])
    for key in sorted(notes, key=lambda k: k.encode()):
        if key != "flexlab.crc32":
            total = zlib.crc32(key.encode() + b"\0" + notes[key].encode() + b"\0", total)
    return f"{total:08x}"


def write_bytes(tensors, notes=None, ascii_only=False, indent=None, padding=0):
    """tensors: a list of (name, type, shape, bytes), in the order of the file."""
    header, at = {}, 0
    if notes is not None:
        header["__metadata__"] = notes
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=ascii_only, indent=indent).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)
