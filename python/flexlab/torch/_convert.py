"""convert(model, policy): a model of torch whose modules, and functions where it can be traced, compute in formats."""
import copy
import operator

import torch
from torch import fx, nn

from .. import _library as c
from . import modules as M
from ._policies import Resolved, layer_name, text_of_roles
from ._roles import roles, split

RELU = {torch.relu, torch.nn.functional.relu, torch.relu_, "relu", "relu_"}
ADD = {operator.add, operator.iadd, torch.add, "add", "add_"}
POOL = {torch.nn.functional.avg_pool2d: M.PooledMean, torch.nn.functional.adaptive_avg_pool2d: M.AdaptivePooledMean,
        torch.nn.functional.max_pool2d: M.PooledMaximum, torch.max_pool2d: M.PooledMaximum}
# They read nothing but shapes, or see the same elements.
SHAPES = {"size", "dim", "numel", getattr}
VIEWS = {"view", "reshape", "flatten", torch.flatten, torch.reshape, operator.getitem}
VIEW_METHODS = {"view", "reshape", "flatten", "getitem", "transpose", "permute", "unsqueeze", "squeeze", "expand", "narrow", "select",
                "chunk", "split", "unbind", "t", "swapaxes", "movedim", "expand_as", "view_as", "unflatten", "diagonal", "detach"}
IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "pow")} | {"iadd", "isub", "imul", "itruediv", "ipow"}
ARITHMETIC = {operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.iadd, operator.isub, operator.imul}
PLAIN = {operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul, operator.itruediv: operator.truediv}
NEUTRAL = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten)


PROVISIONAL = "fp32"  # until the policy is resolved


class Report:
    """What convert did: rows of (name, what it was, what became of it). loss: the format of the loss by the policy; output: those
    of the model's output; loss_scale: what the policy asks for, "none" or the argument of flexlab.torch.GradScaler."""

    def __init__(self, policy):
        self.policy, self.replaced, self.left, self.notes = policy, [], [], []
        self.loss, self.output, self.loss_scale = None, None, "none"

    def __str__(self):
        count = {}
        for _, was, _ in self.replaced:
            count[was] = count.get(was, 0) + 1
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(count.items()))
        lines = [f"policy {self.policy}: {len(self.replaced)} replaced ({kinds})"]
        lines += [f"left: {name} ({was}): {why}" for name, was, why in self.left] or ["left: nothing"]
        if self.loss_scale != "none":
            lines.append(f"loss scale: {self.loss_scale}, by flexlab.torch.GradScaler({self.loss_scale!r})")
        return "\n".join(lines + self.notes)


def convert(model, policy, *, inplace=False, verbose=True, seed=1):
    """Replaces what a model consists of by modules that compute in the formats of a policy.

    policy: as on the command line, a variant ("flex16+5"), a preset ("O2", "mxfp8", "nvfp4"), a file, or rules
    ("variant flex16+5; fc* format=fp32"), whose patterns are for the names of modules. The result is another model with copies of
    the parameters (inplace=True: of the same Parameters, for optimisers that have them already), under their names. Modules of
    torch.nn that flexlab has are replaced by name. If torch.fx can trace the model, and its graph is the same in training and
    evaluation, functions are replaced too, each with exponents of its own: relu, + and add, the poolings, the shortcut of
    option A written as F.pad of a slice; a batch normalisation with the sum and the relu that follow it becomes one operation with
    one rounding; gradients of a value that is used more than once are added in the format. seed: of what formats and dropout draw.
    result.flexlab_report says what was replaced and what was left to torch; verbose prints it."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{type(model).__name__}, expected a torch.nn.Module")
    report = Report(policy)
    model = model if inplace else copy.deepcopy(model)
    rewriter, single = None, replacement("", model, report)
    if single is not None:
        model = single
    else:
        replace_modules(model, report)
        graph = trace(model, report)
        if graph is not None:
            rewriter = Rewriter(model, graph, report)
            rewriter.run()
    resolve(model, rewriter, policy, report, seed)
    if rewriter is not None:
        model = rewriter.finish()
    model.flexlab_report = report
    if verbose:
        print(report)
    return model


def replacement(name, module, report):
    cls = M.REPLACED.get(type(module))
    if cls is None:
        return None
    try:
        made = M.taken(module, cls, PROVISIONAL)
    except ValueError as error:
        report.left.append((name, type(module).__name__, str(error)))
        return None
    report.replaced.append((name, type(module).__name__, made))
    return made


def resolve(model, rewriter, policy, report, seed):
    """Gives the modules the formats that the policy has for them."""
    found = {}
    used = None if rewriter is None else {node.target for node in rewriter.graph.nodes if node.op == "call_module"}
    for name, module in model.named_modules():
        if isinstance(module, M.FormatModule) and (used is None or name in used):
            found[layer_name(name or type(module).__name__.lower())] = module
    resolved = Resolved(policy, found)
    for name, module in found.items():
        module.seed, module.name = seed, name
        apply(resolved, name, module)
    output = rewriter and rewriter.output()
    report.loss_scale = resolved.loss_scale
    last = resolved.input["gradients"] if output is None else output.writes()[1]
    if output is not None and output.name in resolved.sequences:
        last = resolved.layers[output.name][""]["gradients"]  # logits of sequences count as a matrix, a layer without a product
    report.loss = resolved.loss or last
    report.output = None if output is None else formats_of(*output.writes())
    by = {} if rewriter is None else rewriter.absorbed
    report.replaced = [(name, was, found.get(by.get(name, name), module).format) for name, was, module in report.replaced]
    if rewriter is not None:
        rewriter.input_formats = formats_of(resolved.input["activations"], resolved.input["gradients"])
        rewriter.seed = seed


def formats_of(y, dy):
    return y if y == dy else f"activations={y} gradients={dy}"


def apply(resolved, name, module):
    layer, parameters = resolved.layers[name], resolved.parameters.get(name, {})
    own = {one: parameters[one] for one in parameters if module._parameters.get(one) is not None}
    module.parameter_roles = own
    if module.kind != "matmul":
        module.format = text_of_roles(layer[""], own, resolved.accumulate)
        return
    weight, bias = ({one: own[one]} if one in own else {} for one in ("weight", "bias"))
    sum_ = text_of_roles(layer[""], bias, None)
    alone = text_of_roles(layer["product"], weight, resolved.accumulate)
    module.format, module.added, module.sequences = alone, None, None
    if module.bias is not None and (alone != sum_ or roles(alone).draws):
        module.added = M.Part(sum_)
    if name in resolved.sequences:
        text = text_of_roles(resolved.sequences[name], own, resolved.accumulate)
        if text != alone or module.added is not None:
            module.sequences = M.Part(text)


def replace_modules(model, report):
    done = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, M.FormatModule) or not name:
            continue
        made = done.get(id(module)) or replacement(name, module, report)
        if made is None:
            own = any(True for _ in module.parameters(recurse=False))
            if (own or type(module).__module__.startswith("torch.nn")) and not isinstance(module, NEUTRAL):
                if not any(row[0] == name for row in report.left):
                    report.left.append((name, type(module).__name__, "flexlab.torch has no such module"))
            continue
        done[id(module)] = made
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, made)


class Proxy(fx.Proxy):
    """x += y is in place, for those too who know x by another name: fx would make x = x + y of it."""


for _name in ("iadd", "isub", "imul", "itruediv"):
    setattr(Proxy, f"__{_name}__", lambda self, other, _target=getattr(operator, _name): self.tracer.create_proxy(
        "call_function", _target, (self, other), {}))


class Tracer(fx.Tracer):
    def proxy(self, node):
        return Proxy(node, self)

    def is_leaf_module(self, module, name):
        return isinstance(module, M.FormatModule) or super().is_leaf_module(module, name)


def trace(model, report):
    """The graph of a model; None, with a note, where there is none that holds in training and evaluation."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        texts = []
        for training in (False, True):
            for module, _ in modes:
                module.training = training
            graph = Tracer().trace(model)
            texts.append(str(graph))
    except Exception as error:  # whatever the model's code raises about a proxy
        why = (str(error).splitlines() or [""])[0]
        report.notes.append(f"not traced, functions are torch's own ({type(error).__name__}: {why})")
        return None
    finally:
        for module, training in modes:
            module.training = training
    if texts[0] != texts[1]:
        report.notes.append("its graph differs in training and evaluation, functions are torch's own")
        return None
    for node in graph.nodes:
        if writes(node, model) and (views(node.args[0] if node.args else None) or any(map(views, node.args[0].users))):
            report.notes.append(f"not rewritten, functions are torch's own ({node} writes a view, or what has views, in place)")
            return None
    return graph


def views(node):
    """Whether a node may have the memory of its operand."""
    return isinstance(node, fx.Node) and (node.op == "call_method" and node.target in VIEW_METHODS or
                                          node.op == "call_function" and getattr(node.target, "__name__", "") in VIEW_METHODS)


def writes(node, model):
    """Whether a node writes its first operand in place, which is its result."""
    if not node.args or not isinstance(node.args[0], fx.Node):
        return False
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(node.target), "inplace", False))
    if node.kwargs.get("inplace") or node.target is torch.nn.functional.relu and node.args[1:2] == (True,):
        return True
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name in IN_PLACE or name.endswith("_") and not name.endswith("__")


class Rewriter:
    def __init__(self, model, graph, report):
        self.model, self.graph, self.report = model, graph, report
        self.numbers, self.absorbed = {}, {}
        self.input_formats = self.seed = None

    def run(self):
        self.in_place()
        self.separate_modules()
        for node in list(self.graph.nodes):
            self.rewrite(node)
        self.fuse()
        self.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output", "call_module", "call_method"))

    def finish(self):
        """When the modules have their formats."""
        self.convert()
        self.name_draws()
        self.fork()
        self.hold()
        self.graph.lint()
        return fx.GraphModule(self.model, self.graph, type(self.model).__name__)

    def in_place(self):
        """What is written in place is read later as the result: here the result is another tensor, which takes its place."""
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        for node in self.graph.nodes:
            if node.target in PLAIN and self.of_numbers(node):
                node.target = PLAIN[node.target]  # numbers are not written in place
        written = [node for node in self.graph.nodes if writes(node, self.model)]
        for node in written:
            for user in list(node.args[0].users):
                if order[user] > order[node]:
                    user.replace_input_with(node.args[0], node)
        for node in written:
            if isinstance(self.module_of(node), (M.ReLU, M.Dropout)):
                self.module_of(node).inplace = False

    # --- places

    def module_of(self, node):
        return self.model.get_submodule(node.target) if node.op == "call_module" else None

    def scope(self, node):
        """The name of the module whose forward a node comes from."""
        stack = [name for name, _ in (node.meta.get("nn_module_stack") or {}).values()]
        if node.op == "call_module" and stack and stack[-1] == node.target:
            stack.pop()
        return stack[-1] if stack else ""

    def name(self, node, kind):
        scope = self.scope(node)
        prefix = f"{scope}." if scope else ""
        number = self.numbers[prefix + kind] = self.numbers.get(prefix + kind, 0) + 1
        return f"{prefix}{kind}{number}"

    def put(self, name, module):
        while True:
            try:
                self.model.get_submodule(name)
            except AttributeError:
                break
            name += "_"
        module.train(self.model.training)
        parent, _, leaf = name.rpartition(".")
        self.model.get_submodule(parent).add_module(leaf, module)
        return name

    def call(self, node, name, args, kwargs=None):
        """A call of a module instead of a node."""
        with self.graph.inserting_before(node):
            new = self.graph.call_module(name, tuple(args), kwargs or {})
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        self.graph.erase_node(node)
        return new

    def separate_modules(self):
        """A module without parameters that is called twice, such as self.relu, becomes two, each with its own exponents."""
        seen = set()
        for node in self.graph.nodes:
            module = self.module_of(node)
            if isinstance(module, M.FormatModule) and not any(True for _ in module.parameters()):
                if node.target in seen:
                    parent, _, leaf = node.target.rpartition(".")
                    node.target = self.put(f"{parent}.{leaf}_again" if parent else f"{leaf}_again", copy.deepcopy(module))
                seen.add(node.target)

    # --- functions

    def is_a(self, node, targets, operations=("call_function", "call_method")):
        return node.op in operations and node.target in targets

    def new(self, node, cls, was, args, kwargs=None, *settings, **how):
        name = self.put(self.name(node, cls.kind), cls(*settings, **how, format=PROVISIONAL))
        self.report.replaced.append((name, was, self.model.get_submodule(name)))
        return self.call(node, name, args, kwargs)

    def leave(self, node, why):
        self.report.left.append((self.scope(node) or "model", str(node), why))

    def rewrite(self, node):
        if self.is_a(node, RELU):
            self.new(node, M.ReLU, "relu", node.args[:1] or [node.kwargs["input"]])
        elif self.is_a(node, ADD):
            self.rewrite_add(node)
        elif node.op == "call_function" and node.target in POOL:
            self.rewrite_pool(node)
        elif node.op == "call_function" and node.target in (torch.nn.functional.pad,):
            self.rewrite_pad(node)
        elif node.op == "call_method" and node.target == "view":
            node.target = "reshape"  # the same values, of memory in torch.channels_last too
        elif node.op == "call_function" and node.target not in VIEWS | SHAPES or \
                node.op == "call_method" and node.target not in VIEWS | SHAPES | {"reshape"}:
            if not self.of_numbers(node):
                self.leave(node, "flexlab.torch has no such function")

    def of_numbers(self, node):
        """Whether a node computes with sizes, not with tensors."""
        return bool(node.all_input_nodes) and all(map(self.is_number, node.all_input_nodes))

    def is_number(self, node):
        if node.target is getattr:
            return node.args[1] in ("shape", "ndim", "dtype", "device")
        return self.is_a(node, SHAPES) or self.is_a(node, ARITHMETIC) and self.of_numbers(node)

    def rewrite_add(self, node):
        operands = [one for one in node.args if isinstance(one, fx.Node)]
        if self.of_numbers(node):
            return
        if any(map(self.is_number, operands)):
            operands = []
        if len(operands) != 2 or len(node.args) != 2 or node.kwargs:
            self.leave(node, "a sum with a number, alpha or out, expected two tensors of the same shape")
            return
        self.new(node, M.Add, "add", operands)

    def rewrite_pool(self, node):
        how = dict(node.kwargs)
        if how.pop("ceil_mode", False) or how.pop("return_indices", False) or how.get("divisor_override") is not None:
            self.leave(node, "ceil_mode, return_indices or divisor_override, expected none of them")
            return
        how.pop("divisor_override", None)
        x = [how.pop("input")] if "input" in how else []
        self.new(node, POOL[node.target], "pooling", [*x, *node.args], how)

    def rewrite_pad(self, node):
        """F.pad(x[:, :, ::s, ::s], (0, 0, 0, 0, c, c)): the shortcut of option A."""
        pad, mode, value = (*node.args[1:], *([None] * 3))[:3]
        pad, mode, value = node.kwargs.get("pad", pad), node.kwargs.get("mode", mode), node.kwargs.get("value", value)
        source = node.args[0] if node.args else node.kwargs["input"]
        stride = stride_of(source)
        zeros = (mode or "constant") == "constant" and value in (None, 0, 0.0)
        channels = len(pad) == 6 and not any(pad[:4]) and pad[4] == pad[5] and isinstance(pad[4], int) and pad[4] >= 0
        if stride is None or not zeros or not channels:
            self.leave(node, "a padding other than the shortcut of option A, F.pad(x[:, :, ::s, ::s], (0, 0, 0, 0, c, c))")
            return
        self.new(node, M.ShortcutA, "shortcut", source.args[:1], None, pad[4], stride)

    # --- several in one

    def fuse(self):
        """relu(batchnorm(x) + r), relu(batchnorm(x)) and relu(a + b) become one operation."""
        for node in list(self.graph.nodes):
            if not isinstance(self.module_of(node), M.ReLU):
                continue
            before = node.args[0]
            module = self.module_of(before) if len(before.users) == 1 else None
            if isinstance(module, M.Add):
                self.fuse_sum(node, before, module)
            elif isinstance(module, M.BatchNorm) and self.once(before):
                module.relu = True
                self.absorbed[node.target] = before.target
                self.call(node, before.target, before.args)
                self.graph.erase_node(before)

    def once(self, node):
        return sum(other.op == "call_module" and other.target == node.target for other in self.graph.nodes) == 1

    def fuse_sum(self, node, sum_, module):
        a, b = sum_.args
        for normalised, residual in ((a, b), (b, a)):
            norm = self.module_of(normalised)
            alone = isinstance(norm, M.BatchNorm) and len(normalised.users) == len(normalised.args) == 1 and a is not b
            if alone and not norm.relu and self.once(normalised):
                norm.relu = norm.adds = True
                self.absorbed[node.target] = self.absorbed[sum_.target] = normalised.target
                self.call(node, normalised.target, (*normalised.args, residual))
                self.graph.erase_node(sum_)
                self.graph.erase_node(normalised)
                return
        module.relu = True
        self.absorbed[node.target] = sum_.target
        self.call(node, sum_.target, sum_.args)
        self.graph.erase_node(sum_)

    # --- between formats

    def source(self, node):
        """What writes the value that a node passes on: a module of flexlab, a placeholder, or something of torch."""
        while self.is_a(node, VIEWS | {"reshape"}) and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        return node

    def output(self):
        """The module that writes the model's output; None: torch does."""
        value = next(node for node in self.graph.nodes if node.op == "output").args[0]
        source = self.source(value) if isinstance(value, fx.Node) else None
        module = self.module_of(source) if source is not None else None
        return module if isinstance(module, M.FormatModule) else None

    def formats(self, node):
        """(format of the value, of its gradient) of what flexlab writes, or the model is given."""
        source = self.source(node)
        if source.op == "placeholder":
            r = roles(self.input_formats)
            return r.y, r.dy
        module = self.module_of(source)
        return module.writes() if isinstance(module, M.FormatModule) else None

    def convert(self):
        """Where a module reads another format, or gives its gradient in another, the value is converted, once for all that read it
        so: as in networks of the C library."""
        made = {}
        for node in list(self.graph.nodes):
            module = self.module_of(node)
            if not isinstance(module, M.FormatModule) or module.kind == "embedding":
                continue
            for x in dict.fromkeys(one for one in node.args if isinstance(one, fx.Node)):
                written, read = self.formats(x), module.reads()
                if written is None or all(split(a)[0] == split(b)[0] for a, b in zip(written, read)):
                    continue
                if (x, read) not in made:
                    name = self.put(self.name(node, "convert"), M.Convert(formats_of(*written), format=formats_of(*read)))
                    with self.graph.inserting_before(node):
                        made[x, read] = self.graph.call_module(name, (x,))
                    self.module_of(made[x, read]).seed = self.seed
                node.replace_input_with(x, made[x, read])

    def name_draws(self):
        """Draws have the keys that they have in a network whose layers have the names of the modules."""
        parts = [one for module in self.model.modules() if isinstance(module, M.FormatModule)
                 for one in (module, getattr(module, "sequences", None)) if one is not None]
        if not any(roles(one.format).draws for one in parts):
            return
        key = lambda text: c.nn_name_key(self.seed, text)
        for node in self.graph.nodes:
            module = self.module_of(node)
            if not isinstance(module, M.FormatModule) or module.kind not in ("matmul", "conv2d"):
                continue
            part = module.sequences if module.kind == "matmul" and module.sequences is not None else module
            own = node.target if module.kind == "conv2d" or part is not module else f"{node.target}.product"
            before = self.value_name(node.args[0])
            alone = sum(isinstance(self.module_of(user), M.FormatModule) for user in node.args[0].users) <= 1
            part.keys = {"y": key(own), "dweight": key(f"{node.target}.weight.grad"),
                         "dx": key(f"{before}.grad" if alone else f"{before}.grad.{own}")}
            part.begin_states()

    def value_name(self, node):
        source = self.source(node)
        module = self.module_of(source)
        if not isinstance(module, M.Convert):
            return "input" if source.op == "placeholder" else str(source.target)
        read, gradient = (split(one)[0] for one in module.writes())
        return f"{self.value_name(source.args[0])}.{read}" + ("" if read == gradient else f"-{gradient}")

    # --- gradients of values that are used more than once

    def fork(self):
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        for node in list(self.graph.nodes):
            module = self.module_of(node)
            uses = sorted((user for user in node.users if not self.is_a(user, SHAPES)), key=order.get)
            if not isinstance(module, M.FormatModule) or isinstance(module, M.Fork) or len(uses) < 2:
                continue
            y, dy = module.writes()
            gated = isinstance(module, M.ReLU) or isinstance(module, (M.BatchNorm, M.Add)) and module.relu
            module.gated = gated = gated and self.once(node) and split(y)[0] == split(dy)[0]
            name = self.put(self.name(node, "fork"), M.Fork(len(uses), gated, format=dy))
            with self.graph.inserting_after(node):
                fork = self.graph.call_module(name, (node,))
            for i, user in enumerate(uses):
                with self.graph.inserting_before(user):
                    one = self.graph.call_function(operator.getitem, (fork, i))
                user.replace_input_with(node, one)


    # --- values that no other code sees

    def hold(self):
        """Results that only modules of flexlab read remain flexlab's tensors."""
        for node in self.graph.nodes:
            module = self.module_of(node)
            if isinstance(module, M.FormatModule):
                module.holds = all(self.reads(user) or self.is_a(user, SHAPES) for user in node.users) and self.once(node)

    def reads(self, node):
        if node.op == "call_function" and node.target is operator.getitem and isinstance(self.module_of(node.args[0]), M.Fork):
            return all(self.reads(user) for user in node.users)
        return isinstance(self.module_of(node), M.FormatModule) and (
            not isinstance(self.module_of(node), M.Fork) or all(self.reads(user) for user in node.users))


def stride_of(node):
    """s of x[:, :, ::s, ::s]; None for anything else."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem or not isinstance(node.args[1], tuple):
        return None
    key = node.args[1]
    if len(key) != 4 or not all(isinstance(one, slice) and one.start in (None, 0) and one.stop is None for one in key):
        return None
    steps = [1 if one.step is None else one.step for one in key]
    return steps[2] if steps[:2] == [1, 1] and steps[2] == steps[3] and isinstance(steps[2], int) and steps[2] > 0 else None
