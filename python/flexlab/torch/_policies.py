"""How a policy (docs/policies.md) resolves for the modules of a model. The C library answers: for each module a layer of the same
kind and name is added to a network of the library, which is never compiled, and its roles are read. Rules, presets, files and
their errors are therefore those of the library."""
import os

from .. import _errors, _library as c, nn as networks

SUFFIXES = ("nomaster", "noscale")


def presets():
    return [c.nn_policy_at(i) for i in range(c.nn_policy_count())]


def variant(name):
    """The variant of a name; None: there is none."""
    found = c.nn_variant_find(name)
    return found.contents if found else None


def text_of(policy):
    """What nn_config.policy takes, of an item of the command line's --formats: a variant with suffixes, a preset, a file, or the
    rules themselves."""
    if not isinstance(policy, str) or not policy.strip():
        raise TypeError(f"a policy is a text such as 'flex16+5', 'O2' or 'variant flex16+5; fc* format=fp32', not {policy!r}")
    text = policy.strip()
    if ";" in text or "\n" in text:
        return text
    if len(text.split()) > 1 and not os.path.exists(text):
        return text + ";"
    if "@" in text and not os.path.exists(text):
        raise _errors.UnsupportedError(f"policy {policy!r}: a device after '@', but flexlab.torch computes on the processor")
    name, end = text, c.tensor_format_extent(text)
    if text.startswith("policy:"):
        name = text[len("policy:"):]
    elif variant(text[:end]):
        return of_variant(policy, text[:end], text[end + 1:])
    name, _, suffix = name.partition(":noscale")
    if suffix or name not in presets() and not os.path.exists(name):
        variant(text[:end])  # whose message has the names of all variants
        raise _errors.ArgumentError(f"policy {policy!r}: {c.message()}; or a preset ({', '.join(presets())}), the path of a file, or rules "
                                    "such as 'variant flex16+5; fc* format=fp32'")
    if not text.endswith(":noscale"):
        return name
    if name in presets():
        return f"preset {name}; loss-scale none;"
    with open(name) as file:
        return file.read() + "\nloss-scale none;"


def of_variant(policy, name, suffixes):
    lines, predictor = [f"variant {name}"], []
    given = variant(name)
    for word in filter(None, suffixes.split(":")):
        if word == "nomaster":
            lines += ["* master=none"] if given.wide else []
        elif word == "noscale":
            lines.append("loss-scale none")
        else:
            predictor.append(word)
    if predictor:
        format = f"{c.tensor_format_name(given.format)}:{':'.join(predictor)}"
        lines.insert(1, f"* activations={format} gradients={format} weights={format}")
    return "; ".join(lines) + ";"


def add_layer(network, node, name, kind, module):
    """The layer of a module, on one pixel of one channel: formats depend on kinds and names alone."""
    if kind == "conv2d":
        return network.conv2d(name, node, 1, 1, bias=module.bias is not None)
    if kind == "matmul":
        return network.linear(name, node, 1, relu=False)
    if kind == "batchnorm":
        if module.adds:
            return network.batchnorm_add_relu(name, node, node)
        return network.batchnorm(name, node, relu=module.relu)
    if kind == "add":
        return network.add(name, node, node, relu=module.relu)
    if kind == "groupnorm":
        return network.groupnorm(name, node, 1)
    if kind == "dropout":
        return network.dropout(name, node, module.p)
    if kind == "avgpool2d":
        return network.avgpool2d(name, node, window=1, padding_counts=True)
    if kind == "avgpool_adaptive":
        return network.avgpool_adaptive(name, node, 1, 1)
    if kind == "maxpool2d":
        return network.maxpool2d(name, node, 1)
    if kind == "shortcut_a":
        return network.shortcut_a(name, node, 1, 1)
    return getattr(network, kind)(name, node)  # relu, layernorm


PARAMETERS = {"gamma": "weight", "beta": "bias"}
LAYER = ("activations", "gradients", "operands", "gradient-operands", "forward", "backward")
PARAMETER = ("weights", "weight-gradients", "master", "rounding")


def layer_name(module):
    """The name of a module's layer: the inputs of networks have names of their own."""
    return f"{module}_" if module in ("input", "tokens") else module


class Resolved:
    """layers: {name: {node: {role: format}}}, where node is "" or, of a linear layer, "product"; parameters: {name: {parameter:
    {role: format}}}; sequences: the layers of linear modules on sequences, {name: {role: format}}."""

    def __init__(self, policy, modules):
        """modules: {name: module of flexlab.torch}."""
        self.text = text_of(policy)
        self.layers, self.parameters, self.sequences = {}, {}, {}
        image = networks.Network(policy=self.text, batch=1)
        node = image.input(1, 1, 1)
        tables = {name: module for name, module in modules.items() if module.kind == "embedding"}
        for name, module in modules.items():
            if name not in tables:
                add_layer(image, node, name, module.kind, module)
        self.line = c.nn_graph_policy(image)
        if tables:
            self.with_sequences(image, modules, tables)
        else:
            self.read(image, self.layers)
        self.input = self.layers["input"][""]
        self.loss_scale = c.nn_policy_loss_scale(image) or ("dynamic" if self.starts_from_fp16() else "none")
        number = c.nn_policy_class(image)
        self.accumulate = c.tensor_class_name(number).partition("=")[2] if number else None
        self.loss = c.nn_policy_loss_format(image)
        image.free()

    def starts_from_fp16(self):
        return self.line.partition(";")[0].split()[-1] in ("fp16", "fp16-sr")

    def with_sequences(self, image, modules, tables):
        text = networks.Network(policy=self.text, batch=1)
        tokens = c.nn_tokens(text, 1, 2)
        for name in tables:
            node = c.nn_embedding(text, name, tokens, 1, 0.02)
        for name, module in modules.items():
            if module.kind == "matmul":
                c.nn_linear(text, name, node, 1, False)
        c.nn_share_policy(image, text)
        found = {}
        self.read(text, found)
        self.read(image, self.layers)
        for name in modules:
            if name in tables:
                self.layers[name] = found[name]
            elif name in found:
                self.sequences[name] = found[name][""]
        text.free()

    def read(self, network, layers):
        count = c.nn_role_row_count(network)
        if not count:
            c.check(c.library.flexlab_tensor_error_status())
        for i in range(count):
            row = c.nn_role_row_at(network, i)
            name, kind = row.name.decode(), row.kind.decode()
            if kind == "parameter":
                owner, _, suffix = name.rpartition(".")
                self.parameters.setdefault(owner, {})[PARAMETERS.get(suffix, suffix)] = {role: c.nn_role(network, i, role) for role in PARAMETER}
                continue
            owner, part = (name.removesuffix(".product"), "product") if kind == "matmul" else (name, "")
            layers.setdefault(owner, {})[part] = {role: c.nn_role(network, i, role) for role in LAYER}


def text_of_roles(layer, parameters, accumulate):
    """The format text of an operation (_roles.py), as short as it can be."""
    formats = [layer[role] for role in LAYER if layer[role]]
    weights = {name: (roles["weights"], roles["master"] == "fp32") for name, roles in parameters.items()}
    product = layer["operands"] is not None
    formats += [format for format, _ in weights.values()]
    if len(set(formats)) == 1 and not any(master for _, master in weights.values()) and not (product and accumulate):
        return formats[0]
    words = [f"{role}={layer[role]}" for role in LAYER if layer[role]]
    words += [f"accumulate={accumulate}"] if product and accumulate else []
    for name, (format, master) in weights.items():
        words += [f"{name}.weights={format}", f"{name}.master={'fp32' if master else 'none'}"]
    return " ".join(words)
