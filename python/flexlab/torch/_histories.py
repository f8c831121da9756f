"""What a converted model has beside its state_dict: the exponents of its tensors with their histories, and how often each was
written, on which draws depend. With it, and with the state of its optimiser, a training goes on with the same bits."""
import numpy as np
import torch

from .. import _errors, _library
from . import modules
from ._carriers import LOCK, Bits, is_update, note_update, stored

CURRENT, UPDATED = 1, 2  # of a copy of a weight: it has its present values; these are those of an optimiser of flexlab
PARTS = ("state", "added", "sequences")


def state_bytes(t, elements):
    """The state of a flexlab tensor as a tensor of bytes."""
    made = torch.empty(_library.tensor_state_bytes(t, elements), dtype=torch.uint8)
    _library.tensor_state_store(t, elements, made.numpy(), made.numel())
    return made


def load_bytes(t, elements, given, name):
    given = np.ascontiguousarray(given.numpy())
    try:
        _library.tensor_state_load(t, elements, given, given.size)
    except _errors.Error as error:
        raise type(error)(f"{name}: {error}; expected what the same version of flexlab has saved on such a machine") from None


def states(module):
    """(key, State) of everything that a module writes in training."""
    for name in PARTS:
        part = module if name == "state" else getattr(module, name, None)
        if part is not None:
            yield f"{name} 0", part.state
            yield from ((f"{name} {i}", one) for i, one in part.state.parts.items())


def has_elements(role):
    return role.endswith(" copy")  # a weight in another format, which is written when the weight changes


def histories(model):
    """{"MODULE|PART|ROLE|FORMAT|SHAPE": bytes} of a converted model, for torch.save."""
    found = {}
    with LOCK:
        for name, module in model.named_modules():
            if not isinstance(module, modules.FormatModule):
                continue
            for part, state in states(module):
                for (role, format), shapes in state.slots.items():
                    for shape, slot in shapes.items():
                        if slot.tensor is None:  # nothing has been written there
                            continue
                        key = "|".join((name, part, role, format, " ".join(map(str, shape))))
                        found[key] = state_bytes(slot.tensor, has_elements(role))
                        if has_elements(role):
                            p = module._parameters[role.split()[0]]
                            flags = CURRENT * (slot.version == p._version) + UPDATED * is_update(p)
                            found[key] = torch.cat([torch.tensor([flags], dtype=torch.uint8), found[key]])
            if hasattr(module, "passes"):
                found[f"{name}|passes"] = module.passes.clone()
    return found


def load_histories(model, saved):
    """Sets what histories(model) gave, of a model that was converted by the same policy. Load the state_dict of the model first."""
    with LOCK, torch.no_grad():
        for key, value in saved.items():
            name, *rest = key.split("|")
            try:
                module = model.get_submodule(name)
            except AttributeError:
                raise _errors.DataError(f"histories: the model has no module {name!r}, expected those of a model converted as this one") from None
            if rest == ["passes"]:
                module.passes.copy_(value)
                continue
            part, role, format, shape = rest
            part, number = part.split()
            owner = module if part == "state" else getattr(module, part, None)
            if not isinstance(module, modules.FormatModule) or owner is None:
                raise _errors.DataError(f"histories: {key!r}, which module {name!r} does not have, expected those of a model converted as this one")
            state = owner.state.part(int(number)) if int(number) else owner.state
            slot = state.slot(role, format, tuple(int(one) for one in shape.split()))
            slot.begin(held=not has_elements(role))
            load_bytes(slot.tensor, has_elements(role), value[has_elements(role):], key)
            if has_elements(role):
                p = module._parameters[role.split()[0]]
                slot.version = p._version if value[0] & CURRENT else -1
                slot.bits = Bits(stored(p, "image" if p.dim() == 4 else "rows").contiguous())
                if value[0] & UPDATED:
                    note_update(p)
