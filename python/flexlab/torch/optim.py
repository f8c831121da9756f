"""Optimisers whose weights are tensors of flexlab: updates are exact results rounded once, on weights with a wide part.

The torch Parameter holds the values of the weight as stored; its next use in a module takes the mantissas. A Parameter that
other code has changed is loaded anew, which begins the history of its exponent anew. Formats are those of the module that a
parameter belongs to (modules.py), or `format` of the optimiser."""
import numpy as np
import torch

from .. import _core, _errors, _library
from .._tensor import format_id
from . import modules
from ._histories import load_bytes, state_bytes
from ._carriers import (F32, LOCK, Bits, Slot, attach, check, entry_of, is_image, lookup, new_tensor, note_update, on,
                        same_values, split, stored)


class Weights:
    """The flexlab tensors of one parameter. how: what FormatModule.kept_as returns: the formats of the update, of the gradient as
    made and as stored, and how the weight is written. key: of stochastic rounding."""

    def __init__(self, p, how, key):
        self.format, self.wide, self.stochastic, self.made, self.stored = how
        self.image = is_image(p)
        self.shape = tuple(stored(p, "any").shape) or (1,)
        name, self.made_name, kept = (split(one)[0] for one in (self.format, self.made, self.stored))
        self.plain, self.one_format = name == "fp32", name == self.made_name == kept
        self.weight = self.slot = self.given = self.taken = None  # given: the bits that the parameter got
        self.at = self.memory = None  # of the parameter, when it got them
        self.state = {}
        self.key = key

    def kept(self, name, predicted, wide=False, format=None):
        """A tensor of the optimiser's state."""
        if name not in self.state:
            t = new_tensor(format or self.format, self.shape, name, not predicted)
            if wide and t.format != "fp32":
                t.keep_wide()
            self.state[name] = t
        return self.state[name]

    @property
    def narrow(self):
        """Whether gradients as small as they are without a loss scale have no place in the format: velocities are wide then."""
        t = _core.empty(format_id(split(self.format)[0]), (1,), 0)
        return not _library.tensor_format_is_shared(t._id) and not t.load(np.array([2.0 ** -60])).numpy("float64")[0]

    def take(self, p):
        """The weight as a flexlab tensor: the one of the last step, unless somebody has written the parameter."""
        if self.at == (p.data_ptr(), p.stride()) and self.given.same(p):
            return self.weight
        check(p, "a parameter")
        t = stored(p.detach(), "any" if is_image(p) == self.image else "rows").contiguous()
        if self.plain:
            if t.data_ptr() % 64 or t.data_ptr() != p.data_ptr():
                raise _errors.ArgumentError("a parameter in fp32 whose memory is not aligned to 64 bytes, or has strides, "
                                            "expected one of its own memory: p.data = p.data.clone()")
            return on(t)
        if self.weight is None:
            self.weight = new_tensor(self.format, self.shape, "weight", False)
            if self.wide and not self.stochastic:
                self.weight.keep_wide()
            if self.stochastic:
                self.weight.set_rounding("stochastic", self.key)
            self.slot = Slot(self.weight, "optimiser")
        elif self.given.same(t):
            return self.weight
        self.slot.stamp += 1
        self.given = Bits(t)
        self.weight._load(t.numpy().reshape(self.shape), F32)
        return self.weight

    def gradient(self, p):
        """The gradient as the update reads it: as it was made, then as stored, then in the format of the update, where these are
        different formats each in a tensor of its own, whose exponent is predicted."""
        g = p.grad
        if g.is_sparse:
            raise TypeError("a sparse gradient, expected a dense one")
        check(g, "a gradient")
        g = (g.permute(0, 2, 3, 1) if self.image else g).detach().contiguous()
        found = lookup(entry_of(p.grad), g, self.made_name)
        if found is not None and not same_values(found, g):  # torch.amp.GradScaler divides without counting the write
            found = None
        if found is None and self.made_name != split(self.format)[0]:
            found = on(g)
        if found is not None:
            found = found if found.shape == self.shape else _core.view(found, self.shape)
            if self.one_format:
                return found
            for name, format in (("gradient stored", self.stored), ("gradient taken", self.format)):
                if found.format != split(format)[0]:
                    found, source = self.kept(name, True, format=format), found
                    _core.rewrite(found, source)
            return found
        if self.plain:
            return on(g)
        t = self.kept("gradient", False)
        t._load(g.numpy().reshape(self.shape), F32)
        return t

    def give(self, p):
        """Writes the values of the weight into the parameter."""
        if self.plain:
            torch.autograd.graph.increment_version(p)
            note_update(p)
            return
        self.slot.stamp += 1
        at = p.data_ptr(), p.stride()
        if self.at != at:
            self.at, self.memory = at, stored(p.detach(), "any").numpy().reshape(self.shape)
        self.weight._store(self.memory, F32)
        torch.autograd.graph.increment_version(p)
        self.given.take(p)
        attach(p, self.slot, self.given)
        note_update(p)


class Optimizer(torch.optim.Optimizer):
    def __init__(self, params, defaults, format):
        if format is not None:
            split(format)
        self.format, self.kept = format, {}
        self.loss_scale = None  # of the gradients, while a GradScaler makes a step
        super().__init__(params, defaults)
        if not 0 <= defaults["lr"] < float("inf"):
            raise ValueError(f"lr is {defaults['lr']}, expected a finite number, 0 or more")

    def of(self, p):
        found = self.kept.get(p)
        if found is None:
            how, key = self.find(p)
            found = self.kept[p] = Weights(p, how, len(self.kept) if key is None else key)
        return found

    def find(self, p):
        if self.format is not None:
            return (self.format, True, False, self.format, self.format), None
        for module in list(modules.alive):
            for name, one in module._parameters.items():
                if one is p:
                    return module.kept_as(name), module.key_of(name)
        raise ValueError(f"a parameter of shape {tuple(p.shape)} belongs to no module of flexlab.torch: give the optimiser a "
                         "format=, or that parameter to an optimiser of torch")

    @torch.no_grad()
    def take(self):
        """Brings the gradients into the formats of the update, and returns them, for a GradScaler to look at."""
        with LOCK:
            taken = []
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        weights = self.of(p)
                        weights.taken = weights.gradient(p)
                        taken += [weights.taken, *(t for name, t in weights.state.items() if name == "gradient stored")]
            return taken

    def numbers(self, weights, how, rate):
        """The numbers of this step: docs/training.md."""
        if "numbers" not in weights.state:
            made = _core.empty(format_id("f64"), (_library.TENSOR_STEP_ROWS, 4), 0)
            _library.tensor_optimiser_begin(made, _library.tensor_optimiser(**how))
            weights.state["numbers"] = made
        numbers = weights.state["numbers"]
        if self.loss_scale is None:
            _library.tensor_optimiser_step(numbers, rate, None)
        else:
            scale = _core.empty(format_id("f64"), (1,), 0)
            scale.load(np.array([self.loss_scale]))
            _library.tensor_optimiser_step_scaled(numbers, rate, None, scale)
        return numbers

    @staticmethod
    def rate(group):
        rate = _core.empty(format_id("f32"), (1,), 0)
        rate._load(np.array([group["lr"]], np.float32), F32)
        return rate

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with LOCK:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        weights = self.of(p)
                        gradient = weights.gradient(p) if weights.taken is None else weights.taken
                        weights.taken = None
                        self.update(weights, p, gradient, group)
        return loss

    def state_dict(self):
        """The settings, and for each parameter its number, the values of its weight as it is updated and of the state, in
        float64; and `bytes`, these tensors as they are, with the histories of their exponents, which the same version of flexlab
        reads. Without them histories begin anew."""
        numbers = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        result = super().state_dict()
        result["state"] = {numbers[id(p)]: {
            "weight": None if w.weight is None else torch.from_numpy(w.weight.wide()),
            **{name: torch.from_numpy(t.wide() if name != "numbers" else t.numpy("float64")) for name, t in w.state.items()
               if not name.startswith("gradient")},
            "bytes": {name: state_bytes(t, True) for name, t in [("weight", w.weight), *w.state.items()] if t is not None}} for p, w in self.kept.items()}
        return result

    def load_state_dict(self, saved):
        state = saved["state"]
        super().load_state_dict({**saved, "state": {}})
        params = [p for group in self.param_groups for p in group["params"]]
        with LOCK, torch.no_grad():
            self.kept = {}
            for i, values in state.items():
                w = self.of(params[int(i)])
                kept = values.get("bytes", {})
                for name, value in values.items():
                    if name == "bytes":
                        continue
                    if name == "weight":
                        if value is not None:
                            w.take(params[int(i)])
                            w.weight.load(value.numpy())
                            w.give(params[int(i)])
                    else:
                        self.restore(w, name, value.numpy())
                for name, value in kept.items():
                    if name.startswith("gradient"):
                        w.kept(name, name != "gradient", format=w.stored if name == "gradient stored" else None)
                    t = w.weight if name == "weight" else w.state[name]
                    if name in ("velocity", "direction") and _library.tensor_state_bytes(t, True) != value.numel():
                        t.keep_wide()  # of a scaled loss
                    load_bytes(t, True, value, f"parameter {i}, {name}")
                if "weight" in kept:
                    w.give(params[int(i)])


def restore_numbers(weights, values):
    made = weights.state["numbers"] = _core.empty(format_id("f64"), (_library.TENSOR_STEP_ROWS, 4), 0)
    made.load(values)


def check_betas(*betas):
    for beta in betas:
        if not 0 <= beta < 1:
            raise ValueError(f"a beta or momentum is {beta}, expected 0 or more, and below 1")


class SGD(Optimizer):
    """Gradient descent with momentum and weight decay: v = momentum v + g + weight_decay w and w = w - lr v, each one exact
    result rounded once, the weight in its wide part; with nesterov, w = w - lr (momentum v + g + weight_decay w). The first step
    of torch.optim.SGD is the same."""

    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0, nesterov=False, *, format=None):
        check_betas(momentum)
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay is {weight_decay}, expected 0 or more")
        if nesterov and not momentum:
            raise ValueError("nesterov with momentum 0, expected a momentum above 0")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}, format)

    def update(self, weights, p, g, group):
        momentum, decay, nesterov = group["momentum"], group["weight_decay"], group.get("nesterov", False)
        w = weights.take(p)
        if not nesterov and self.loss_scale is None:
            v = weights.kept("velocity", True)
            _core.sgd_momentum(v, g, w, momentum, decay)
            _core.sgd_update(w, v, group["lr"])
        else:
            self.descend(weights, w, g, decay, nesterov, self.rate(group), {"kind": 0, "momentum": momentum, "weight_decay": decay})
        weights.give(p)

    def descend(self, weights, w, g, decay, nesterov, rate, how):
        """By the numbers of the step: with Nesterov's direction, or gradients of a scaled loss."""
        numbers, wide = self.numbers(weights, how, rate), self.loss_scale is not None and weights.narrow
        v, row = weights.kept("velocity", True, wide), _library.TENSOR_STEP_DIRECTION if decay else _library.TENSOR_STEP_DIRECTION_UNDECAYED
        _core.combine(v, v, g, w, numbers, row)
        d = weights.kept("direction", False, wide) if nesterov else v
        if not wide:
            if nesterov:
                _core.combine(d, v, g, w, numbers, row)
            _library.tensor_sgd_update_by(w, d, rate)
            return
        if nesterov:
            _core.combine(d, d, g, v, numbers, _library.TENSOR_STEP_MOMENT)
            if decay:
                _core.combine(d, d, g, w, numbers, _library.TENSOR_STEP_ROOT)
        _core.combine(w, w, g, d, numbers, _library.TENSOR_STEP_WEIGHT)

    def restore(self, weights, name, values):
        if name == "numbers":
            restore_numbers(weights, values)
        else:
            weights.kept(name, name == "velocity").load(values)


class Adam(Optimizer):
    """Adam as the C library has it (docs/training.md): moments and roots with wide parts, each an exact result, or one in
    double, rounded once. Weight decay is added to the gradient."""
    kind = 1
    decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, format=None):
        check_betas(*betas)
        if not eps >= 0 or not weight_decay >= 0:
            raise ValueError(f"eps is {eps} and weight_decay {weight_decay}, expected 0 or more")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}, format)

    def update(self, weights, p, g, group):
        w, (beta1, beta2) = weights.take(p), group["betas"]
        numbers = self.numbers(weights, {"kind": self.kind, "beta1": beta1, "beta2": beta2, "epsilon": group["eps"],
                                         "weight_decay": group["weight_decay"]}, self.rate(group))
        v, r = weights.kept("moment", False, True), weights.kept("root", False, True)
        if group["weight_decay"] and not self.decoupled:
            d = weights.kept("direction", False)
            _core.combine(d, w, g, None, numbers, _library.TENSOR_STEP_DIRECTION)
            g = d
        _core.root_mean(r, g, numbers, _library.TENSOR_STEP_ROOT)
        _core.combine(v, v, g, None, numbers, _library.TENSOR_STEP_MOMENT)
        _core.add_ratio(w, w, v, r, numbers, _library.TENSOR_STEP_WEIGHT)
        weights.give(p)

    def restore(self, weights, name, values):
        if name == "numbers":
            restore_numbers(weights, values)
        else:
            weights.kept(name, False, name in ("moment", "root")).load(values)


class AdamW(Adam):
    """Adam with decoupled weight decay."""
    kind = 2
    decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, *, format=None):
        super().__init__(params, lr, betas, eps, weight_decay, format=format)
