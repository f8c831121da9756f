"""Policies for models of torch: the part of docs/policies.md that applies to modules.

    flex16+5                                                a variant, everywhere
    variant flex16+5; fc* format=fp32; @norm format=bf16    a variant, and rules; the last one that matches wins

A pattern is one of the shell (*, ?, [...]) for the names of modules as named_modules() has them, or @kind for a kind
(@conv2d, @batchnorm, @matmul, ...) or a group (@product, @norm, @pool)."""
import fnmatch

from .. import _errors, _library

GROUPS = {"product": ("matmul", "conv2d"), "norm": ("batchnorm", "layernorm"),
          "pool": ("avgpool2d", "avgpool_adaptive", "maxpool2d")}
KINDS = ("matmul", "conv2d", "batchnorm", "layernorm", "embedding", "relu", "add", "avgpool2d", "avgpool_adaptive", "maxpool2d",
         "shortcut_a", "loss")
SUPPORTED = "flexlab.torch takes 'variant NAME', and rules 'PATTERN format=VARIANT'"


class Variant:
    """The format of a variant, and how its weights are kept."""

    def __init__(self, text):
        end = _library.tensor_format_extent(text)
        name, predictor = text[:end], text[end + 1:]
        if predictor in ("nomaster", "noscale"):
            raise _errors.ArgumentError(f"variant {text!r}: {SUPPORTED}")
        found = _library.nn_variant_find(name)
        if not found:
            _library.check(_library.library.flexlab_tensor_error_status())
        v = found.contents
        format = _library.tensor_format_name(v.format)
        given = v.predictor.decode() if v.predictor and not predictor else predictor
        self.name, self.format = text, f"{format}:{given}" if given else format
        self.wide, self.stochastic = v.wide, v.stochastic_weights

    @property
    def how(self):
        return {"format": self.format, "wide": bool(self.wide), "stochastic": bool(self.stochastic)}


class Policy:
    def __init__(self, text):
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"a policy is a text such as 'flex16+5' or 'variant flex16+5; fc* format=fp32', not {text!r}")
        lines = [line.partition("#")[0].strip() for line in text.replace("\n", ";").split(";")]
        lines = [line for line in lines if line]
        self.text, self.rules, self.used = text, [], set()
        if ";" not in text and "\n" not in text and len(lines) == 1 and len(lines[0].split()) == 1:
            self.default = Variant(lines[0])
            return
        self.default = Variant("fp32")
        for number, line in enumerate(lines, 1):
            self.take(number, line)

    def take(self, number, line):
        words = line.split()
        if words[0] == "variant":
            if self.rules or len(words) != 2:
                raise _errors.ArgumentError(f"line {number} of the policy, {line!r}: expected 'variant NAME' before all rules")
            self.default = Variant(words[1])
            return
        any_ = words[0] == "if-any"
        words = words[any_:]
        roles = [word.partition("=") for word in words[1:]]
        if not roles or len(roles) > 1 or roles[0][0] != "format" or not roles[0][2]:
            raise _errors.UnsupportedError(f"line {number} of the policy, {line!r}: {SUPPORTED}; roles other than format, "
                                           "presets, loss scales and accumulators are those of networks (flexlab.nn)")
        pattern = words[0]
        if pattern.startswith("@") and not any(fnmatch.fnmatchcase(kind, pattern[1:]) for kind in (*KINDS, *GROUPS)):
            raise _errors.ArgumentError(f"line {number} of the policy: no kind is called {pattern!r}, expected one of "
                                        f"{', '.join('@' + kind for kind in (*KINDS, *GROUPS))}")
        self.rules.append((pattern, Variant(roles[0][2]), any_))

    def variant(self, name, kind):
        """The variant of a module."""
        chosen = self.default
        kinds = [kind, *(group for group, members in GROUPS.items() if kind in members)]
        for i, (pattern, variant, _) in enumerate(self.rules):
            names = kinds if pattern.startswith("@") else [name]
            if any(fnmatch.fnmatchcase(one, pattern.removeprefix("@")) for one in names):
                chosen = variant
                self.used.add(i)
        return chosen

    def check_used(self):
        for i, (pattern, _, any_) in enumerate(self.rules):
            if i not in self.used and not any_:
                raise _errors.ArgumentError(f"the policy's pattern {pattern!r} matches no module that is replaced")
