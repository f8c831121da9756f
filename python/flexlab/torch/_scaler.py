"""Loss scaling as the C library has it (docs/training.md), with the methods of torch.amp.GradScaler."""
import ctypes

import torch

from .. import _errors, _library
from . import modules, optim
from ._carriers import LOCK

GRADIENTS = {"dx", "dy", "da", "db", "dweight", "dbias", "dresidual", "dy operand"}


def settings(text):
    """{init, window, factor, min, max} of a scale, which is None for "none"; window 0: it does not change."""
    full = ctypes.create_string_buffer(256)
    _library.nn_loss_scale_text(full, len(full), text)
    text = full.value.decode()
    if text == "none":
        return None
    if not text.startswith("dynamic"):
        return {"init": float(text), "window": 0, "factor": 1.0, "min": float(text), "max": float(text)}
    found = {name: float(value) for name, value in (word.split("=") for word in text.partition(":")[2].split(","))}
    return found | {"window": int(found["window"])}


def overflowed(t):
    """Whether the last write had an Inf or NaN, or in a format with a shared exponent a number that no exponent can hold."""
    last = t.statistics["last"]
    shared = _library.tensor_format_is_shared(t._id)
    if last["nonfinite"] or not shared:
        return bool(last["nonfinite"])
    return last["saturated"] > 0 and t.exponent == _library.tensor_autoflex(t).contents.e_min


class GradScaler:
    """A loss scale: "dynamic", "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216" with any of these, a power of
    two such as "2^10", or "none". The gradient of the loss is multiplied by it before it is rounded, and the update divides:

        scaler = flexlab.torch.GradScaler.of(model)  # what the policy asks for
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()

    The loss is flexlab's (CrossEntropyLoss) or one of torch. step makes no update if a gradient has overflowed, which lowers a
    dynamic scale; optimisers of torch get gradients that are divided before."""

    def __init__(self, loss_scale="dynamic", model=None):
        self.settings, self.model = settings(loss_scale), model
        self.now = self.settings["init"] if self.settings else 1.0
        self.good = self.skipped = 0
        self.found = False

    @classmethod
    def of(cls, model):
        report = getattr(model, "flexlab_report", None)
        if report is None:
            raise TypeError(f"{type(model).__name__}, expected a model that convert has made")
        return cls(report.loss_scale, model)

    def is_enabled(self):
        return self.settings is not None

    def get_scale(self):
        return self.now

    def scale(self, loss):
        return loss * self.now if self.settings else loss

    def unscale_(self, optimiser):
        raise _errors.UnsupportedError("GradScaler.unscale_: gradients stay scaled until the update divides, in its one rounding; expected "
                                       "scaler.step(optimiser), or torch.amp.GradScaler")

    def overflows(self, optimiser):
        """Whether a gradient has: those of parameters, as made and as the update reads them, and, in formats with a shared exponent,
        those of activations too, where an overflow ends and does not reach a parameter."""
        given = [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        if not all(bool(torch.isfinite(p.grad).all()) for p in given):
            return True
        if isinstance(optimiser, optim.Optimizer) and any(overflowed(t) for t in optimiser.take()):
            return True
        owned = {id(p) for p in given}
        found = self.model.modules() if self.model is not None else list(modules.alive)
        with LOCK:
            for module in found:
                if isinstance(module, modules.FormatModule) and (self.model is not None or any(
                        id(p) in owned for p in module._parameters.values())):
                    for (role, _), shapes in module.state.slots.items():
                        if role in GRADIENTS and any(slot.tensor.exponent is not None and overflowed(slot.tensor) for slot in shapes.values()):
                            return True
        return False

    @torch.no_grad()
    def step(self, optimiser, *args, **kwargs):
        """The optimiser's step; None if there is none because a gradient has overflowed."""
        if self.settings is None:
            return optimiser.step(*args, **kwargs)
        if self.settings["window"] and self.overflows(optimiser):
            self.found = True
            for weights in getattr(optimiser, "kept", {}).values():
                weights.taken = None
            return None
        if not isinstance(optimiser, optim.Optimizer):
            for group in optimiser.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.div_(self.now)
            return optimiser.step(*args, **kwargs)
        optimiser.loss_scale = self.now
        try:
            return optimiser.step(*args, **kwargs)
        finally:
            optimiser.loss_scale = None

    def update(self):
        """Lowers the scale at once after an overflow, raises it after a window without one."""
        if self.settings is None or not self.settings["window"]:
            return
        if self.found:
            self.now, self.good = max(self.now / self.settings["factor"], self.settings["min"]), 0
            self.skipped += 1
        else:
            self.good += 1
            if self.good >= self.settings["window"]:
                self.now, self.good = min(self.now * self.settings["factor"], self.settings["max"]), 0
        self.found = False

    def state_dict(self):
        return {"scale": self.now, "good": self.good, "skipped": self.skipped}

    def load_state_dict(self, state):
        self.now, self.good, self.skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])
