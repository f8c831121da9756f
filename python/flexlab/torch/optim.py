"""Optimisers whose weights are tensors of flexlab: updates are exact results rounded once, on weights with a wide part.

The torch Parameter holds the values of the weight as stored; its next use in a module takes the mantissas. A Parameter that
other code has changed is loaded anew, which begins the history of its exponent anew. Formats are those of the module that a
parameter belongs to (modules.py), or `format` of the optimiser."""
import numpy as np
import torch

from .. import _core, _errors, _library
from .._tensor import format_id
from . import modules
from ._carriers import F32, LOCK, Bits, Slot, attach, check, entry_of, is_image, lookup, new_tensor, on, split, stored


class Weights:
    """The flexlab tensors of one parameter."""

    def __init__(self, p, format, wide, stochastic, number):
        self.format, self.image = format, is_image(p)
        self.shape = tuple(stored(p, "any").shape) or (1,)
        self.plain = split(format)[0] == "fp32"
        self.weight = self.slot = self.given = None  # given: the bits that the parameter got
        self.at = self.memory = None  # of the parameter, when it got them
        self.state = {}
        self.wide, self.stochastic, self.number = wide, stochastic, number

    def kept(self, name, predicted, wide=False):
        """A tensor of the optimiser's state."""
        if name not in self.state:
            t = new_tensor(self.format, self.shape, name, not predicted)
            if wide and not self.plain:
                t.keep_wide()
            self.state[name] = t
        return self.state[name]

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
                self.weight.set_rounding("stochastic", self.number)
            self.slot = Slot(self.weight, "optimiser")
        elif self.given.same(t):
            return self.weight
        self.slot.stamp += 1
        self.given = Bits(t)
        self.weight._load(t.numpy().reshape(self.shape), F32)
        return self.weight

    def gradient(self, p):
        g = p.grad
        if g.is_sparse:
            raise TypeError("a sparse gradient, expected a dense one")
        check(g, "a gradient")
        g = (g.permute(0, 2, 3, 1) if self.image else g).detach().contiguous()
        if self.plain:
            return on(g)
        found = lookup(entry_of(p.grad), g, split(self.format)[0])
        if found is not None:
            return found if found.shape == self.shape else _core.view(found, self.shape)
        t = self.kept("gradient", False)
        t._load(g.numpy().reshape(self.shape), F32)
        return t

    def give(self, p):
        """Writes the values of the weight into the parameter."""
        if self.plain:
            torch.autograd.graph.increment_version(p)
            return
        self.slot.stamp += 1
        at = p.data_ptr(), p.stride()
        if self.at != at:
            self.at, self.memory = at, stored(p.detach(), "any").numpy().reshape(self.shape)
        self.weight._store(self.memory, F32)
        torch.autograd.graph.increment_version(p)
        self.given.take(p)
        attach(p, self.slot, self.given)


class Optimizer(torch.optim.Optimizer):
    def __init__(self, params, defaults, format):
        if format is not None:
            split(format)
        self.format, self.kept = format, {}
        super().__init__(params, defaults)
        if not 0 <= defaults["lr"] < float("inf"):
            raise ValueError(f"lr is {defaults['lr']}, expected a finite number, 0 or more")

    def of(self, p):
        found = self.kept.get(p)
        if found is None:
            how = self.find(p)
            found = self.kept[p] = Weights(p, *how, len(self.kept))
        return found

    def find(self, p):
        if self.format is not None:
            return self.format, True, False
        for module in list(modules.alive):
            if any(one is p for one in module._parameters.values()):
                return module.format, module.wide, module.stochastic
        raise ValueError(f"a parameter of shape {tuple(p.shape)} belongs to no module of flexlab.torch: give the optimiser a "
                         "format=, or that parameter to an optimiser of torch")

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
                        self.update(self.of(p), p, group)
        return loss

    def state_dict(self):
        """The settings, and for each parameter its number, the values of its weight as it is updated and of the state, in
        float64. Histories of exponents are not in it: they begin anew."""
        numbers = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        result = super().state_dict()
        result["state"] = {numbers[id(p)]: {
            "weight": None if w.weight is None else torch.from_numpy(w.weight.wide()),
            **{name: torch.from_numpy(t.wide() if name != "numbers" else t.numpy("float64")) for name, t in w.state.items()
               if name != "gradient"}} for p, w in self.kept.items()}
        return result

    def load_state_dict(self, saved):
        state = saved["state"]
        super().load_state_dict({**saved, "state": {}})
        params = [p for group in self.param_groups for p in group["params"]]
        with LOCK, torch.no_grad():
            self.kept = {}
            for i, values in state.items():
                w = self.of(params[int(i)])
                for name, value in values.items():
                    if name == "weight":
                        if value is not None:
                            w.take(params[int(i)])
                            w.weight.load(value.numpy())
                            w.give(params[int(i)])
                    else:
                        self.restore(w, name, value.numpy())


def check_betas(*betas):
    for beta in betas:
        if not 0 <= beta < 1:
            raise ValueError(f"a beta or momentum is {beta}, expected 0 or more, and below 1")


class SGD(Optimizer):
    """Gradient descent with momentum and weight decay: v = momentum v + g + weight_decay w and w = w - lr v, each one exact
    result rounded once, the weight in its wide part. The first step of torch.optim.SGD is the same."""

    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0, *, format=None):
        check_betas(momentum)
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay is {weight_decay}, expected 0 or more")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, format)

    def update(self, weights, p, group):
        w, g, v = weights.take(p), weights.gradient(p), weights.kept("velocity", True)
        _core.sgd_momentum(v, g, w, group["momentum"], group["weight_decay"])
        _core.sgd_update(w, v, group["lr"])
        weights.give(p)

    def restore(self, weights, name, values):
        weights.kept(name, True).load(values)


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

    def numbers(self, weights, group):
        """The numbers of the steps: docs/training.md."""
        if "numbers" not in weights.state:
            made = _core.empty(format_id("f64"), (_library.TENSOR_STEP_ROWS, 4), 0)
            beta1, beta2 = group["betas"]
            how = _library.tensor_optimiser(kind=self.kind, beta1=beta1, beta2=beta2, epsilon=group["eps"],
                                            weight_decay=group["weight_decay"])
            _library.tensor_optimiser_begin(made, how)
            weights.state["numbers"] = made
        return weights.state["numbers"]

    def update(self, weights, p, group):
        w, g, numbers = weights.take(p), weights.gradient(p), self.numbers(weights, group)
        rate = _core.empty(format_id("f32"), (1,), 0)
        rate._load(np.array([group["lr"]], np.float32), F32)
        _library.tensor_optimiser_step(numbers, rate, None)
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
            made = weights.state[name] = _core.empty(format_id("f64"), (_library.TENSOR_STEP_ROWS, 4), 0)
            made.load(values)
        else:
            weights.kept(name, False, name in ("moment", "root")).load(values)


class AdamW(Adam):
    """Adam with decoupled weight decay."""
    kind = 2
    decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, *, format=None):
        super().__init__(params, lr, betas, eps, weight_decay, format=format)
