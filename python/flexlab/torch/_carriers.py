"""Torch tensors that carry flexlab's values.

A torch tensor of float32 holds the values of a result; float32 has every value of formats of 16 bits and of fp32. What the
operations compute with are tensors of flexlab:

- fp32: the torch tensor's own memory, without a copy;
- other formats: tensors in slots. A slot belongs to a State, which a module owns, and has a role ("y", "dx", "weight") and a
  shape; it lasts from step to step, and so does the history from which its exponent is predicted, as in a network of the C
  library. A function without a module has a new slot each time, whose exponent is that of the largest value.

The table of carriers knows which slot holds the values of a torch tensor, so that the next operation takes the mantissas
themselves. An entry counts as long as the storage is the same object (a weak reference to it keeps its address from being
used again), its version counter stands where it stood, and nothing has been written to the slot since. Otherwise the values
are loaded from the torch tensor: they are exact there, so results are the same, and only time is lost. Writes that torch
does not count (through .data, or an array of NumPy in the same memory) are not noticed in results of operations; weights,
where such code is usual, are compared value by value each time.

Operations run one at a time (LOCK): a slot is never read while another thread writes it. Each uses flexlab's threads."""
import collections
import ctypes
import functools
import itertools
import math
import os
import threading
import weakref

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _core, _errors, _library
from .._tensor import NUMBERS, format_id

LOCK = threading.RLock()
# A child of fork() has no thread that would release it: it is taken before, when no operation runs.
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
SHAPES = 8  # of one role in a state: the oldest beyond them is dropped with its history
F32 = 12    # tensor_type
ROLES = {"weight": 1, "dweight": 4, "dbias": 4, "velocity": 5, "moment": 5, "root": 5, "dx": 3, "dy": 3, "da": 3, "db": 3,
         "dresidual": 3}
states = {}  # handle: a weak reference to its state
PARTS = 16
handles = itertools.count(PARTS, PARTS)  # those between belong to State.part


@functools.cache
def split(format):
    """(format, predictor or None) of a text such as "flex16+5", "flex16+5:ngraph" or "tensor:e4m3fn:delayed"."""
    if not isinstance(format, str):
        raise TypeError(f"a format is a text such as 'flex16+5', not {format!r}")
    end = _library.tensor_format_extent(format)
    name, predictor = format[:end], format[end + 1:]
    number = format_id(name)
    if name in NUMBERS:
        raise _errors.FormatError(f"format {name!r}: expected one that operations compute in, such as 'flex16+5' or 'fp32'")
    if predictor and not _library.tensor_format_is_shared(number):
        raise _errors.FormatError(f"format {format!r}: {name} has no shared exponent that could be predicted")
    return name, predictor or None


# --- memory ---------------------------------------------------------------------------------------------------------------
#
# What only a Held shows is needed until that is gone: an activation until its backward pass, a gradient until the operation
# before has read it. Then others have its memory, the last that became free first, as long as caches have it.

SHARED_BYTES = 1 << 16  # smaller results have memory of their own
free = {}               # bytes: weak references to blocks of that many, the last that became free at the end


class Block:
    """Memory that has one result at a time. It lives as long as tensors lie in it."""
    __slots__ = ("memory", "bytes", "taken", "listed", "__weakref__")

    def __init__(self, bytes):
        self.memory = _core.elements(_core.empty(format_id("i32"), (bytes // 4,), 0))
        self.bytes, self.taken, self.listed = bytes, False, False


class Lease:
    """A block is taken as long as this lives."""
    __slots__ = ("block",)

    def __init__(self, block):
        self.block, block.taken = block, True

    def __del__(self):
        block = self.block
        block.taken = False
        if not block.listed:
            block.listed = True
            free.setdefault(block.bytes, []).append(weakref.ref(block))


def free_block(bytes):
    blocks = free.get(bytes, ())
    while blocks:
        block = blocks.pop()()
        if block is not None:
            block.listed = False
            if not block.taken:
                return block
    return Block(bytes)


class Slot:
    """A flexlab tensor that operations write, and how often they have. made: the arguments of new_tensor, for one that is made
    before the first write."""
    __slots__ = ("tensor", "stamp", "state", "role", "box", "made", "block", "version", "bits")

    def __init__(self, tensor, state=None, role=None, made=None):
        self.tensor, self.stamp, self.state, self.role, self.made = tensor, 0, state, role, made
        self.box = self.block = None
        self.version = self.bits = None  # of the parameter that it is a copy of

    def begin(self, held=False):
        """Before a write: a torch tensor whose values are here alone takes them. held: the values will be here alone. Returns
        the lease of the tensor's memory, or None for memory of its own, which a tensor keeps once it has it."""
        box = self.box and self.box()
        if box is not None:
            box.plain()
            box.lease = None
        self.box = None
        self.stamp += 1
        block = self.block
        if block is None and self.tensor is not None:
            return None
        if block is None or block.taken or not held:
            bytes = shared_bytes(*self.made[:2]) if held else 0
            block = free_block(bytes) if bytes else None
            moved = new_tensor(*self.made, block)
            if self.tensor is not None:
                _library.tensor_copy(moved, self.tensor)  # the history
            self.tensor, self.block = moved, block
        return block and Lease(block)


def shared_bytes(format, shape):
    """Of the block of a tensor; 0: it has memory of its own."""
    bytes = 2 * math.prod(shape)
    words = _library.tensor_format_bytes(format_id(split(format)[0])) == 2
    return -(-bytes // 64) * 64 if words and bytes >= SHARED_BYTES else 0


def new_tensor(format, shape, role, exact, block=None):
    name, predictor = split(format)
    t = _core.on(format_id(name), shape, block.memory) if block else _core.empty(format_id(name), shape, 0)
    if _library.tensor_format_is_shared(t._id):
        if exact or predictor:
            t.predictor = "current" if exact else predictor
        _library.tensor_set_role(t, ROLES.get(role, 2))
    return t


class State:
    """The slots of one module: tensors that last from step to step, with the histories of their exponents. Operations name
    it by its handle, a number; it is released with its module. `exact`: exponents are those of the largest value, as in
    evaluation. A copy of a module begins with new histories.

    By the handle of `held`, -handle, results are Held (below): for modules whose results only modules of flexlab read.


    weights: the state that has copies of weights in other formats, written when a weight has changed; evaluation reads those
    of training. keys: {role: key} of the draws of products that write there."""

    def __init__(self, exact=False, of=None, weights=None, keys=None, handle=None):
        self.exact, self.is_held = exact, of is not None
        self.weights, self.keys = weights or self, keys or {}
        self.slots, self.parts, self.handle = ({}, {}, handle or next(handles)) if of is None else (of.slots, of.parts, of.handle)
        self.held = State(exact, self, weights, keys) if of is None else None
        handle = -self.handle if self.is_held else self.handle
        states[handle] = weakref.ref(self, lambda _: states.pop(handle, None))

    def part(self, i):
        """The i-th state beside this one, of the handle that is larger by i (0 < i < PARTS): for sums of gradients, each of
        which has a history of its own."""
        if i not in self.parts:
            self.parts[i] = State(self.exact, handle=abs(self.handle) + i)
        return self.parts[i].held if self.is_held else self.parts[i]

    def slot(self, role, format, shape):
        shapes = self.slots.setdefault((role, format), collections.OrderedDict())
        slot = shapes.get(shape)
        if slot is None:
            while len(shapes) >= SHAPES:
                shapes.popitem(last=False)
            slot = shapes[shape] = Slot(None, self.handle, role, (format, shape, role, self.exact))
            if role in self.keys:  # draws count the writes of one tensor
                slot.tensor = new_tensor(*slot.made)
                slot.tensor.set_rounding("nearest", self.keys[role])
        else:
            shapes.move_to_end(shape)
        return slot

    def exponents(self):
        """{(role, format, shape): exponent} of the slots of formats with a shared exponent."""
        return {(role, format, shape): slot.tensor.exponent for (role, format), shapes in self.slots.items()
                for shape, slot in shapes.items() if getattr(slot.tensor, "exponent", None) is not None}

    def __deepcopy__(self, memo):
        return State(self.exact)

    def __reduce__(self):
        return State, (self.exact,)


def beside(handle, i):
    """The handle of State.part(i); that of a function without a module stays 0, and i = 0 is the state itself."""
    return handle + i if handle > 0 else handle - i if handle else 0


def state_of(handle):
    """The state of a handle; None for 0, a function without a module."""
    if handle == 0:
        return None
    state = states.get(handle)
    state = state and state()
    if state is None and abs(handle) % PARTS:
        own = abs(handle) % PARTS
        state = states.get(handle - own if handle > 0 else handle + own)
        state = state and state()
        state = state and state.part(own)
    if state is None:
        raise ValueError(f"handle {handle}: its module is gone, expected that of a module that is alive, or 0")
    return state


def slot_of(state, role, format, shape):
    return Slot(new_tensor(format, shape, role, True)) if state is None else state.slot(role, format, tuple(shape))


# --- layouts ------------------------------------------------------------------------------------------------------------


def is_image(t):
    """Whether the memory of a tensor [N,C,H,W] is that of flexlab's [N,H,W,C] (torch's channels_last) and not row-major."""
    if isinstance(t, Held):
        return t.box.image
    return t.dim() == 4 and not t.is_contiguous() and t.is_contiguous(memory_format=torch.channels_last)


def stored(t, layout):
    """The tensor in the order of its memory: layout "image" is [N,H,W,C], "rows" row-major, "any" what it has."""
    image = layout == "image" or layout == "any" and is_image(t)
    return t.permute(0, 2, 3, 1) if image else t


def stored_shape(t, layout):
    """The shape of stored(t, layout)."""
    shape = tuple(t.shape)
    image = layout == "image" or layout == "any" and is_image(t)
    return (shape[0], shape[2], shape[3], shape[1]) if image else shape


def shown(t, image):
    """The inverse, as torch sees it."""
    return t.permute(0, 3, 1, 2) if image else t


def new_memory(shape, image, as_seen=None):
    """(a tensor, the same in the order of its memory, of that shape). The first is no view: torch forbids to write in place
    into views that a function returns."""
    if image:
        n, h, w, c = shape
        made = torch.empty((n, c, h, w), memory_format=torch.channels_last)
        return made, made.permute(0, 2, 3, 1)
    made = torch.empty(shape if as_seen is None else as_seen)
    return made, made.view(shape)


# --- values that only a slot has ----------------------------------------------------------------------------------------


class Box:
    """What the Held of one result share."""
    __slots__ = ("slot", "stamp", "shape", "image", "lease", "values", "__weakref__")

    def __init__(self, slot, shape, image, lease):
        self.slot, self.stamp, self.shape, self.image, self.lease, self.values = slot, slot.stamp, shape, image, lease, None
        slot.box = weakref.ref(self)

    def plain(self):
        """A torch tensor with the values, made when it is first wanted."""
        with LOCK:
            if self.values is None:
                self.values, memory = new_memory(self.shape, self.image)
                self.slot.tensor._store(memory.numpy(), F32)
            return self.values

    def shared(self):
        """The values, for somebody who may write them: they alone count from here on."""
        values = self.plain()
        self.slot = self.lease = None
        return values

    def tensor(self, name):
        """The flexlab tensor, if it still has the values, and in this format; else None."""
        slot = self.slot
        if slot is None or slot.stamp != self.stamp or slot.tensor.format != name:
            return None
        return slot.tensor


@functools.lru_cache(maxsize=1024)
def seen(shape, image):
    """The size and the strides that torch sees of memory of a shape."""
    strides = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    order = (0, 3, 1, 2) if image else range(len(shape))
    return tuple(shape[i] for i in order), tuple(strides[i] for i in order)


class Held(torch.Tensor):
    """A torch tensor whose values lie in a slot alone: what passes between modules of flexlab in a converted model, forward
    and backward. Whatever else touches it (a hook, a function of torch) gets a tensor with the values, which is made then; so
    does the Held itself before the slot is written again."""

    @staticmethod
    def __new__(cls, box):
        size, strides = seen(box.shape, box.image)
        t = torch.Tensor._make_wrapper_subclass(cls, size, strides=strides, dtype=torch.float32, device="cpu")
        t.box = box
        return t

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        own = RAW.get(operation)
        if own is not None:
            return own(*args, **kwargs)
        if operation in SAME or operation is torch.ops.aten.view.default and tuple(args[1]) == tuple(args[0].shape):
            return Held(args[0].box)
        plain = torch.utils._pytree.tree_map(lambda one: one.box.plain() if isinstance(one, Held) else one, (args, kwargs))
        result = operation(*plain[0], **plain[1])
        for argument, value in zip(operation._schema.arguments, args):
            if argument.alias_info is not None and isinstance(value, Held):
                value.box.shared()  # it was written, or the result is a view of it
                if result is value.box.values:
                    result = value
        return result

    def numpy(self, **how):
        return self.box.shared().numpy(**how)

    def tolist(self):
        return self.box.plain().tolist()

    def __repr__(self, **how):
        return self.box.plain().__repr__(**how)

    def __reduce_ex__(self, protocol):
        return self.box.plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return self.box.plain().clone()


RAW = {}  # the operations of flexlab, by what torch calls them: implementations
SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}


# --- the table ----------------------------------------------------------------------------------------------------------


class Entry:
    __slots__ = ("storage", "pointer", "version", "slot", "stamp", "snapshot", "turned", "exact", "found")


table = {}
count_limit, bytes_limit, new_bytes = 256, 1 << 26, 0  # when to look for entries of dead tensors; bytes of slots since then

# By PyDLL, which keeps the GIL, and by addresses: views in NumPy cost more than the comparison.
compare = ctypes.PyDLL(None).memcmp
compare.argtypes, compare.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int


class Bits:
    """A copy of the bits of float32 tensors without gaps."""
    __slots__ = ("copy", "address", "bytes")

    def __init__(self, t):
        self.bytes = 4 * t.numel()
        self.copy = ctypes.create_string_buffer(self.bytes)
        self.address = ctypes.addressof(self.copy)
        self.take(t)

    def take(self, t):
        ctypes.memmove(self.address, t.data_ptr(), self.bytes)

    def same(self, t):
        return 4 * t.numel() == self.bytes and not compare(self.address, t.data_ptr(), self.bytes)


scratch = Bits(torch.empty(0))


def same_values(found, t):
    """Whether a flexlab tensor has the values of a float32 tensor without gaps."""
    global scratch
    if scratch.bytes < 4 * t.numel():
        scratch = Bits(t)
    found._store(np.ndarray(found.shape, np.float32, scratch.copy), F32)
    return not compare(scratch.address, t.data_ptr(), 4 * t.numel())


def attach(given, slot, snapshot=None, turned=False, exact=False):
    """Notes that the memory of a torch tensor holds the values of a slot, in the order of that memory, or turned: those of
    [N,H,W,C] where the memory is [N,C,H,W]. given: the tensor as its user knows it, whose version counts (views that are made
    inside of an operation have counters of their own). snapshot: Bits to compare at each use. exact: the values of the slot are
    those of the torch tensor itself, not rounded to the format."""
    global count_limit, bytes_limit, new_bytes
    if given.is_inference():  # its writes are not counted
        return
    storage = given.untyped_storage()
    entry = table.get(storage._cdata)
    if entry is None:
        entry = table[storage._cdata] = Entry()
        entry.storage, entry.slot = StorageWeakRef(storage), None
    if entry.slot is not slot:
        entry.found = None
    entry.pointer, entry.version = given.data_ptr(), given._version
    entry.slot, entry.stamp, entry.snapshot, entry.turned, entry.exact = slot, slot.stamp, snapshot, turned, exact
    if slot.state is None:
        new_bytes += slot.tensor.nbytes  # only this entry keeps it
    if len(table) >= count_limit or new_bytes >= bytes_limit:
        purge()
        count_limit, new_bytes = 2 * len(table) + 256, 0
        bytes_limit = (1 << 26) + sum(one.slot.tensor.nbytes for one in table.values() if one.slot.state is None)


def purge():
    """Drops the entries of tensors that are gone."""
    with LOCK:
        for key in [key for key, entry in table.items() if entry.storage.expired() or entry.stamp != entry.slot.stamp]:
            del table[key]


def entry_of(given):
    """The entry of a torch tensor, if it counts."""
    entry = table.get(given.untyped_storage()._cdata)
    if entry is None or entry.version != given._version or entry.pointer != given.data_ptr() or \
            entry.stamp != entry.slot.stamp or given.is_inference():
        return None
    return entry


def lookup(entry, t, name, state=None, writes=(), turned=False):
    """The flexlab tensor with the values of a torch tensor, whose entry this is, in a format; None: not known. turned: as in
    attach. t: the tensor in the order in which it is wanted."""
    if entry is None or entry.turned != turned:
        return None
    slot, found, shape = entry.slot, entry.slot.tensor, tuple(t.shape) or (1,)
    if name != found.format and (name is not None or not entry.exact) or found.size != t.numel() or turned and found.shape != shape:
        return None
    if entry.snapshot is not None and not entry.snapshot.same(t):
        return None
    if is_written(slot, state, writes):
        found = found.copy()  # the module's own result is its input
    return found if found.shape == shape else _core.view(found, shape)


def is_written(slot, state, writes):
    """Whether an operation of a state, which writes results of these roles, may write a slot."""
    return state is not None and slot.state == state.handle and slot.role in writes


# --- in and out ---------------------------------------------------------------------------------------------------------


def check(t, name):
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is a {type(t).__name__}, expected a torch.Tensor")
    if t.device.type != "cpu":
        raise ValueError(f"{name} is on the device {t.device}, expected cpu: move it by .cpu()")
    if t.dtype != torch.float32:
        raise TypeError(f"{name} has the dtype {t.dtype}, expected torch.float32: its values are those of the format")
    if t.layout != torch.strided:
        raise TypeError(f"{name} has the layout {t.layout}, expected torch.strided")


def on(t, format="fp32"):
    """A flexlab tensor in the memory of a contiguous torch tensor, which must have the type of the format."""
    if t.requires_grad:
        t = t.detach()
    if t.data_ptr() % 64:
        t = t.clone()
    return _core.on(format_id(format), tuple(t.shape) or (1,), t.numpy())


PLAIN = (torch.Tensor, torch.nn.Parameter)


def bring(t, name, format, state, role, layout="any", writes=(), snapshot=False):
    """The flexlab tensor of an operand. layout "matrix": all dimensions but the last as one."""
    short = split(format)[0]
    if layout == "matrix" and isinstance(t, torch.Tensor) and t.dim() == 2:
        layout = "rows"
    if type(t) is Held:
        box = t.box
        slot = box.slot
        if slot is not None and slot.stamp == box.stamp and \
                (layout == "any" or layout != "matrix" and (layout == "image") == box.image):
            if slot.tensor.format == short:
                return slot.tensor.copy() if is_written(slot, state, writes) else slot.tensor
            if short != "fp32":
                return rewritten(slot.tensor, format, state, role)
        t = t.box.plain()
    elif type(t) not in PLAIN or not t.is_cpu or t.dtype is not torch.float32 or t.layout is not torch.strided:
        check(t, name)
    entry = None
    if short != "fp32":
        entry = entry_of(t)
        if entry is not None and entry.found is not None:
            how, tensor = entry.found
            if how == (layout, short, t.data_ptr(), t.shape, t.stride()) and not is_written(entry.slot, state, writes) and \
                    (entry.snapshot is None or entry.snapshot.same(t)):
                return tensor
    given, t = t, t.reshape(-1, t.shape[-1]) if layout == "matrix" else stored(t, layout)
    if not t.numel():
        raise _errors.ShapeError(f"{name} has the shape {tuple(given.shape)}, expected at least one element")
    turned = not t.is_contiguous()
    known = not turned or layout == "image" and given.is_contiguous()
    if short == "fp32":
        return on(t.contiguous())
    found = lookup(entry, t, short, state, writes, turned) if known else None
    if found is not None:
        if not is_written(entry.slot, state, writes):
            entry.found = (layout, short, given.data_ptr(), given.shape, given.stride()), found
        return found
    found = lookup(entry, t, None, state, writes, turned) if known and not snapshot else None
    if found is not None:
        return rewritten(found, format, state, role)
    shape = tuple(t.shape) or (1,)
    slot = slot_of(state, role, format, shape)
    slot.begin()
    slot.tensor._load(np.ascontiguousarray(t.detach().numpy()).reshape(shape), F32)
    if known and t.untyped_storage()._cdata == given.untyped_storage()._cdata:
        attach(given, slot, Bits(t) if snapshot and not turned else None, turned)
    return slot.tensor


def rewritten(x, format, state, role):
    """x in another format, in a slot of its own, whose exponent is predicted as that of any result."""
    if x.format == split(format)[0]:
        return x
    if split(format)[0] == "fp32":
        made = _core.empty(format_id("fp32"), x.shape, 0)
        _core.rewrite(made, x)
        return made
    slot = slot_of(state, role, format, x.shape)
    slot.begin()
    _core.rewrite(slot.tensor, x)
    return slot.tensor


updates = {}  # {storage: [reference, version]} of parameters as the optimisers of flexlab left them


def note_update(p):
    storage = p.untyped_storage()
    found = updates.get(storage._cdata)
    if found is not None:  # the reference keeps the address from being used again
        found[1] = p._version
        return
    updates[storage._cdata] = [StorageWeakRef(storage), p._version]
    if len(updates) > 4096:
        for key in [key for key, (one, _) in updates.items() if one.expired()]:
            del updates[key]


def is_update(p):
    """Whether a parameter has the values that an optimiser of flexlab gave it."""
    found = updates.get(p.untyped_storage()._cdata)
    return found is not None and not found[0].expired() and found[1] == p._version


def copied_weight(t, source, format, state, name, layout):
    """A copy of a weight in another format, written when the weight has changed: as a result after an update, as a load (at the
    exponent of the largest element, with an empty history) where its values are from elsewhere."""
    state = None if state is None else state.weights
    slot = slot_of(state, f"{name} copy", format, source.shape)
    memory = stored(t, layout).contiguous()
    if slot.version is None or slot.version != t._version or not slot.bits.same(memory):
        slot.begin()
        (_core.rewrite if slot.version is not None and is_update(t) else _core.convert)(slot.tensor, source)
        slot.version, slot.bits = t._version, Bits(memory)
    return slot.tensor


class Result:
    """A result: `tensor` is what the operation writes, torch() what torch sees of it: a Held if `held`. as_seen: the shape
    that torch sees, if it is another one."""

    def __init__(self, format, state, role, shape, image=False, held=False, as_seen=None):
        self.shape, self.image, self.as_seen = tuple(shape), image, as_seen
        keyed = state is not None and role in state.keys  # of draws, which count the writes of one tensor
        if split(format)[0] == "fp32" and not keyed:
            self.made, memory = new_memory(self.shape, image, as_seen)
            self.slot, self.held, self.tensor = None, False, on(memory)
        else:
            self.slot = slot_of(state, role, format, self.shape or (1,))
            self.held = held and state is not None and split(format)[0] != "fp32"
            self.held = self.held and (as_seen is None or len(as_seen) == len(self.shape))  # a Held shows the slot's shape
            self.lease = self.slot.begin(self.held)
            self.tensor = self.slot.tensor

    def draws(self, state, role):
        """For a product whose operands draw: without keys of convert by torch's generator."""
        if state is None or role not in state.keys:
            self.tensor.set_rounding("nearest", int(torch.randint(2**62, ())))
        return self

    def torch(self):
        if self.held:
            return Held(Box(self.slot, self.shape, self.image, self.lease))
        if self.slot is not None:
            self.made, memory = new_memory(self.shape, self.image, self.as_seen)
            self.tensor._store(memory.numpy(), F32)
            attach(self.made, self.slot, exact=True)
        return self.made


def nothing():
    return torch.empty(0)


def locked(function):
    """An operation; `bare` returns None for results that are not wanted, which operations of torch may not."""
    def bare(*args):
        with LOCK:
            return function(*args)

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        with LOCK:
            made = function(*args, **kwargs)
        return tuple(nothing() if one is None else one for one in made) if type(made) is tuple else made
    guarded.bare = bare
    return guarded
