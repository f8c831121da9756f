"""What an operation computes in, as one text, so that it passes through torch.library and torch.compile: a format
("flex16+5:ngraph"), or formats by role, with the words of docs/policies.md:

    activations=fp32 gradients=fp32 operands=mx:int8 weights=fp32
    activations=bf16 gradients=bf16 operands=tensor:e4m3fn:delayed gradient-operands=tensor:e5m2:delayed result=bf16

Beside the roles of layers there are `forward` and `backward`, the formats in which an operation reads its inputs, and its
backward pass values and weights (then activations and gradients are those of the result); `weights` and `master`, also of one
parameter alone (weight.weights=bf16 weight.master=fp32); and `accumulate`, the GPU whose sums products have."""
import ctypes
import functools

from .. import _errors, _library
from ._carriers import split

FLAGS = ("stochastic", "hadamard", "square")
WORDS = ("activations", "gradients", "operands", "gradient-operands", "result", "forward", "backward", "weights", "master", "accumulate")


def is_blocks(text):
    """Whether an operand's format is one of blocks."""
    if not text:
        return False
    found = ctypes.c_int()
    try:
        _library.tensor_class_find(found, f"operands={text}")
    except ValueError:
        return False
    return True


@functools.cache
def class_number(text):
    found = ctypes.c_int()
    _library.tensor_class_find(found, text)
    return found.value


def flagged(name, **flags):
    """The text of a block format with other flags."""
    words = [word for word in name.split(":") if word not in FLAGS]
    return ":".join([*words, *(flag for flag in FLAGS if flags.get(flag))])


class Class:
    """The class of the products inside a `with`, None: that of the thread."""
    __slots__ = ("number", "before")

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        if self.number is not None:
            self.before = _library.tensor_result_class()
            _library.tensor_set_class(self.number)

    def __exit__(self, *_):
        if self.number is not None:
            _library.tensor_set_class(self.before)


UNCHANGED = Class(None)


class Roles:
    """The formats of an operation: of the values that it reads (x) and writes (y), of the gradient that it gets and of those
    that it gives (dy), of what its backward pass reads (back), of the gradient as an operand of products (operand)."""

    def __init__(self, text):
        self.text, self.blocks, self.accumulate, self.parameters = text, None, None, {}
        if not isinstance(text, str) or not text.startswith("activations="):
            split(text)  # refuses what is none
            self.x = self.y = self.dy = self.back = self.operand = self.weights = text
            self.uniform, self.master = True, False
            return
        words = dict(word.partition("=")[::2] for word in text.split())
        for word, value in words.items():
            if word.rpartition(".")[2] not in WORDS or not value:
                raise _errors.ArgumentError(f"{word}={value} in {text!r}, expected ROLE=VALUE with one of {', '.join(WORDS)}")
        self.take(words)
        for format in (self.x, self.y, self.dy, self.back, self.operand, self.weights, *(f for f, _ in self.parameters.values())):
            split(format)
        self.uniform = self.blocks is None and self.accumulate is None and not self.master and not self.parameters and \
            len({self.x, self.y, self.dy, self.back, self.operand, self.weights}) == 1

    def take(self, words):
        self.x = self.y = words["activations"]
        self.dy = self.back = self.operand = words.get("gradients", self.x)
        operands, gradient, result = (words.get(name) for name in ("operands", "gradient-operands", "result"))
        if is_blocks(operands):
            x, _, w = operands.partition(",")
            self.blocks = (x, w or x, gradient or x)
        elif gradient and is_blocks(gradient):
            raise _errors.ArgumentError(f"gradient-operands={gradient} in {self.text!r}, but operands are in no blocks")
        else:
            if operands:
                self.x = self.y = self.dy = self.back = self.operand = operands
            self.operand = gradient or self.operand
        self.y, self.dy = (result, result) if result else (self.y, self.dy)
        if "forward" in words:
            self.x, self.y, self.dy = words["forward"], words["activations"], words.get("gradients", words["activations"])
        self.back = words.get("backward", self.back)
        self.operand = self.back if self.blocks else self.operand
        self.weights, self.master = words.get("weights", words["activations"]), words.get("master") == "fp32"
        self.accumulate = words.get("accumulate")
        for name in {word.rpartition(".")[0] for word in words if "." in word}:
            self.parameters[name] = (words.get(f"{name}.weights", self.weights), words.get(f"{name}.master", self.master) in ("fp32", True))

    def parameter(self, name):
        """(the format as stored, whether the Parameter is an fp32 master of which that is the rounding)."""
        return self.parameters.get(name, (self.weights, self.master))

    @functools.cached_property
    def classes(self):
        """The numbers of the classes of products, by part."""
        if self.accumulate:
            return dict.fromkeys(("forward", "evaluation", "input", "input_turned", "weight", "weight_turned"),
                                 class_number(f"accumulate={self.accumulate}"))
        if not self.blocks:
            return {}
        (x, w, dy), has = self.blocks, lambda name, flag: flag in name.split(":")
        still = [flagged(name, hadamard=has(name, "hadamard"), square=has(name, "square")) for name in (x, w)]
        back = [flagged(name, stochastic=has(name, "stochastic"), square=has(name, "square") and name is w) for name in (x, w, dy)]
        turned = [flagged(name, stochastic=has(name, "stochastic"), hadamard=has(dy, "hadamard")) for name in (x, dy)]
        pairs = {"forward": (x, w), "evaluation": still, "input": (back[2], back[1]), "input_turned": (back[0], back[2]),
                 "weight": turned, "weight_turned": (turned[1], turned[0])}
        return {part: class_number(f"operands={a},{b}") for part, (a, b) in pairs.items()}

    @functools.cached_property
    def draws(self):
        return self.blocks is not None and any(flag in name.split(":") for name in self.blocks for flag in FLAGS[:2])

    def product(self, part, state=None):
        """A context for one product. forward is evaluation where the state is."""
        if part == "forward" and state is not None and state.exact:
            part = "evaluation"
        return Class(self.classes.get(part))


@functools.cache
def roles(text):
    return Roles(text)
