"""flexlab.torch.convert: a public ResNet has the bits of the C library's network; policies; what is left; hooks; copies."""
import copy
import os

from torch_tests import main, need_torch, raises, skip

need_torch()

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as TF

import flexlab as fl
import flexlab.torch as ft
from flexlab.torch import _carriers as carriers
from torch_networks import Graph, resnet

VARIANTS = ("flex16+5", "fp32", "fp16", "bf16", "dfp16", "flex12+5", "e5m6", "tensor:e4m3fn")


def images(count, seed=0):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def test_logits_of_evaluation():
    """Bit for bit those of nn_predict, in every variant: all layers correspond."""
    model, x = resnet(8).eval(), images(5)
    for variant in VARIANTS:
        converted = ft.convert(model, variant, verbose=False)
        assert not converted.flexlab_report.left and not converted.flexlab_report.notes
        with torch.no_grad():
            ours = converted(x)
        assert type(ours) is torch.Tensor
        graph = Graph(8, variant, 5)
        graph.load(model)
        assert np.array_equal(ours.double().numpy(), graph.predict(x)), variant
        with torch.enable_grad():
            assert torch.equal(converted(x), ours)


def test_training():
    """Steps of SGD: losses, weights and running statistics bit for bit those of nn_train_step, exponents predicted."""
    for variant, depth in (("flex16+5", 14), ("dfp16", 8), ("fp32", 8), ("flex10+5", 8)):
        model = resnet(depth).train()
        converted = ft.convert(model, variant, verbose=False)
        optimiser = ft.optim.SGD(converted.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
        loss_of = ft.CrossEntropyLoss(format=variant)
        graph = Graph(depth, variant, 6, 0.9, 1e-3)
        graph.load(model)
        for step in range(5):
            x, labels = images(6, step), torch.randint(0, 10, (6,), generator=torch.Generator().manual_seed(step))
            optimiser.zero_grad()
            loss = loss_of(converted(x), labels)
            loss.backward()
            optimiser.step()
            expected = graph.step(x, labels, 0.05)
            assert loss.item() == np.float32(expected), (variant, step, loss.item(), expected)
        weights = graph.weights()
        assert set(weights) == {name for name, _ in model.named_parameters()}
        state = converted.state_dict()
        for name, value in weights.items():
            ours = state[name].double().numpy()
            assert np.array_equal(ours, value), (variant, name)


def test_trained_weights():
    """The weights of others, where they are there, on numbers as an image has them."""
    path = os.path.join(os.environ.get("FLEXLAB_DATA", ""), "resnet20-cifar10.safetensors")
    if not os.path.exists(path):
        return skip("FLEXLAB_DATA names no folder with resnet20-cifar10.safetensors")
    from safetensors.torch import load_file
    model = resnet(20).eval()
    found = model.load_state_dict(load_file(path), strict=False)
    assert not found.unexpected_keys and all("num_batches" in name for name in found.missing_keys)
    graph = Graph(20, "flex16+5", 16)
    fl.c.nn_weights_load(graph.g, path)
    x = images(16)
    with torch.no_grad():
        assert np.array_equal(ft.convert(model, "flex16+5", verbose=False)(x).double().numpy(), graph.predict(x))


def test_names_and_copies():
    """Names of parameters stay, the model given is not changed, copies are independent, inplace has the same Parameters."""
    model = resnet(8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    converted = ft.convert(model, "flex16+5", verbose=False)
    assert set(converted.state_dict()) == set(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(isinstance(module, ft.modules.FormatModule) for module in model.modules())
    other = copy.deepcopy(converted)
    converted.load_state_dict(before)
    x = images(2)
    assert torch.equal(converted.eval()(x), other.eval()(x))
    optimiser = ft.optim.SGD(other.parameters(), lr=0.1)
    other.train()(x).sum().backward()
    optimiser.step()
    assert torch.equal(converted.linear.weight, model.linear.weight) and not torch.equal(other.linear.weight, model.linear.weight)
    parameters = list(model.parameters())
    assert all(a is b for a, b in zip(ft.convert(model, "fp32", inplace=True, verbose=False).parameters(), parameters))


def test_shared_memory():
    """Results have the memory of others that are gone. Whatever is kept, and in whatever order passes run, values and
    exponents are those of memory of their own."""
    def run(least, policy):
        usual, carriers.SHARED_BYTES = carriers.SHARED_BYTES, least
        model = ft.convert(resnet(8).train(), policy, verbose=False)
        kept, seen, random = [], [], np.random.default_rng(1)

        def keep(module, args, y):
            if random.random() < 0.3:
                kept.append(y)
            if random.random() < 0.1:
                seen.append(kept.pop(random.integers(len(kept))).detach().clone() if kept else y.sum())
            if random.random() < 0.1:
                kept.clear()
        for module in model.modules():
            if isinstance(module, (ft.Conv2d, ft.BatchNorm2d)):
                module.register_forward_hook(keep)
        optimiser = ft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(12):
            optimiser.zero_grad()
            passes = [model(images(4, 10 * step + i)) for i in range(random.integers(1, 3))]
            with torch.no_grad():
                seen.append(model.eval()(images(4)))
            model.train()
            for y in passes[::random.choice((1, -1))]:
                y.square().mean().backward(retain_graph=bool(random.random() < 0.3))
            optimiser.step()
        seen += [one.detach().clone() for one in kept] + list(model.state_dict().values())
        exponents = [module.exponents() for module in model.modules() if isinstance(module, ft.modules.FormatModule)]
        slots = [slot for module in model.modules() if isinstance(module, ft.modules.FormatModule)
                 for shapes in module.state.slots.values() for slot in shapes.values()]
        carriers.SHARED_BYTES = usual
        return seen, exponents, sum(slot.block is not None for slot in slots), len({id(slot.block) for slot in slots})
    for policy in ("flex16+5", "variant flex16+5; conv* gradients=fp16; bn* activations=bf16"):
        shared, own = run(1 << 16, policy), run(1 << 40, policy)
        assert shared[2] > 20 and own[2] == 0, policy
        assert len(shared[0]) == len(own[0]) and all(torch.equal(a, b) for a, b in zip(shared[0], own[0])), policy
        assert shared[1] == own[1], policy


def test_memory_of_evaluation():
    """A chain of layers needs memory for one result and its operand."""
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(8))).eval()
    model = ft.convert(model, "flex16+5", verbose=False)
    with torch.no_grad():
        model(torch.randn(4, 8, 32, 32))
    slots = [slot for module in model.modules() if isinstance(module, ft.Conv2d)
             for shapes in module.evaluation.slots.values() for slot in shapes.values() if slot.role == "y"]
    assert len(slots) == 8 and slots[-1].block is None  # torch reads the last
    assert len({id(slot.block) for slot in slots[:-1]}) == 2


def test_layouts_of_equal_sizes():
    """[N,C,H,W] with C = H = W: a layer that wants rows of W does not take those of C for them."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.LayerNorm(6)).eval()
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    for variant in ("flex16+5", "bf16"):
        with torch.no_grad():
            ours, exact = ft.convert(model, variant, verbose=False)(x), model(x)
        assert float((ours - exact).abs().max()) < (0.1 if variant == "bf16" else 0.01), variant


def test_hooks_see_values():
    """What a hook or a function of torch reads between the modules are the values, and what it writes counts."""
    model, x = resnet(8).eval(), images(2)
    plain, hooked = (ft.convert(model, "flex16+5", verbose=False) for _ in range(2))
    seen = []
    hooked.layer1.get_submodule("0").bn1.register_forward_hook(lambda module, args, y: seen.append((args[0] * 1, y.numpy().copy())))
    assert torch.equal(plain(x), hooked(x))
    (before, after), = seen
    assert float(before.detach().abs().max()) > 0.1 and (after >= 0).all() and after.shape == (2, 16, 32, 32)
    hooked.layer1.get_submodule("0").bn1.register_forward_hook(lambda module, args, y: y.zero_())
    changed = hooked(x)
    assert not torch.equal(plain(x), changed)
    hooked.layer1.get_submodule("0").bn1.register_forward_hook(lambda module, args, y: torch.zeros(y.shape))
    assert torch.equal(hooked(x), changed)
    for write in (lambda y: y[0].fill_(1), lambda y: y.detach().numpy().fill(2), lambda y: y.permute(0, 2, 3, 1)[1:].mul_(0.5)):
        one, other = (ft.convert(model, "flex16+5", verbose=False).requires_grad_(False) for _ in range(2))
        one.bn1.register_forward_hook(lambda module, args, y: (write(y), None)[1])

        def replaced(module, args, y):
            y = y + 0
            write(y)
            return y
        other.bn1.register_forward_hook(replaced)
        ones = one(x)
        assert torch.equal(ones, other(x)) and not torch.equal(ones, plain(x))
    grads = []
    plain.train()
    plain.layer1.get_submodule("0").conv2.register_full_backward_hook(lambda module, given, taken: grads.append(taken[0] + 0))
    plain(x).sum().backward()
    assert grads[0].shape == (2, 16, 32, 32) and bool(grads[0].any())


def test_two_passes_before_backward():
    """Two graphs that live at once: gradients are the sum of those of each."""
    torch.manual_seed(2)
    model = resnet(8)
    both, one = (ft.convert(model, "dfp16", verbose=False) for _ in range(2))  # exponents do not depend on the steps before
    losses = [both(images(3, seed)).square().sum() for seed in (1, 2)]
    for loss in losses:
        loss.backward()
    total = {}
    for seed in (1, 2):
        one.zero_grad()
        one(images(3, seed)).square().sum().backward()
        for name, p in one.named_parameters():
            total[name] = total.get(name, 0) + p.grad
    for name, p in both.named_parameters():
        assert torch.equal(p.grad, total[name]), name


class Shared(nn.Module):
    """One relu for all, a sum with a number, a function that flexlab has not, maxima, a projection."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.group = nn.InstanceNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(8 * 4, 5)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv(x)))
        x = self.relu(self.bn2(self.down(x)) + x)
        x = self.group(x) + 1.0
        x = torch.tanh(x)
        x = TF.max_pool2d(x, 2)
        x = TF.adaptive_avg_pool2d(x, 2)
        return self.fc(self.drop(torch.flatten(x, 1)))


def test_what_is_left():
    model = Shared()
    converted = ft.convert(model, "flex16+5", verbose=False)
    text = str(converted.flexlab_report)
    left = {was for _, was, _ in converted.flexlab_report.left}
    assert "InstanceNorm2d" in left and any("tanh" in one for one in left) and any("add" in one for one in left), text
    assert "flexlab.torch has no such module" in text and len(left) == 3, text
    x = images(2)[:, :, :8, :8]
    y, z = converted.eval()(x), model.eval()(x)
    assert float((y - z).detach().abs().max()) < 5e-3
    converted.train()(x).sum().backward()
    assert all(p.grad is not None for p in converted.parameters())


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        x = TF.relu(self.conv(x))
        if x.sum() > -1:
            x = x.mean((2, 3))
        return self.fc(x)


class Mode(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return TF.dropout(self.fc(x), 0.5, self.training)


def test_untraceable():
    """Modules are replaced, functions are not, and the report says so."""
    converted = ft.convert(Untraceable(), "flex16+5", verbose=False)
    assert isinstance(converted.conv, ft.Conv2d) and "not traced" in str(converted.flexlab_report)
    converted(images(2)[:, :, :6, :6]).sum().backward()
    converted = ft.convert(Mode(), "flex16+5", verbose=False)
    assert isinstance(converted.fc, ft.Linear) and "differs in training and evaluation" in str(converted.flexlab_report)
    x = torch.ones(4, 4)
    assert torch.equal(converted.eval()(x), converted(x)) and not torch.equal(converted.train()(x), converted.eval()(x))


def test_other_shapes():
    """Lengths are images of height 1, and an image without a batch is a batch of one: with the same bits."""
    lengths = (lambda x: x.unsqueeze(-2)), (lambda y: y.squeeze(-2))
    alone = (lambda x: x.unsqueeze(0)), (lambda y: y.squeeze(0))
    pooled = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.AvgPool2d(1), nn.AdaptiveAvgPool2d((2, None)))
    for model, of_images, shape, (widen, narrow) in (
            (nn.BatchNorm1d(6), nn.BatchNorm2d(6), (2, 6, 7), lengths), (nn.GroupNorm(2, 6), nn.GroupNorm(2, 6), (2, 6, 7), lengths),
            (pooled, pooled, (3, 8, 8), alone)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        for format in ("fp32", "flex16+5"):
            first, second = (ft.convert(one, format, verbose=False) for one in (model, of_images))
            for training in (True, False):
                y, z = first.train(training)(x), second.train(training)(widen(x))
                assert torch.equal(y, narrow(z)), (model, format, training)
    raises(ValueError, "expected 4D input (got 3D input)", ft.convert(nn.BatchNorm2d(6), "fp32", verbose=False), x)
    raises(ValueError, "group_norm of (7,), expected [N,C]", ft.functional.group_norm, x[0, 0, :7], 1, x, x, format="fp16")
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU())
    x = torch.randn(2, 3, 10)
    y = ft.convert(model, "flex16+5", verbose=False)(x)
    y.sum().backward()
    assert float((y - model(x)).detach().abs().max()) < 1e-3


def test_scalars():
    """A tensor without dimensions keeps that through layers, whose results lie in slots of one element; so do gradients."""
    twice, dropped = nn.Sequential(nn.ReLU(), nn.ReLU()), nn.Sequential(nn.ReLU(), nn.Dropout(1e-9), nn.ReLU())
    for model, format in [(one, format) for one in (twice, dropped, Doubled()) for format in ("fp32", "bf16", "flex16+5")] + \
            [(twice, "variant flex16+5; 1 format=bf16")]:
        converted = ft.convert(model, format, verbose=False)
        for training in (True, False):
            x = torch.tensor(2.0, requires_grad=True)
            y = converted.train(training)(x)
            y.backward()
            want = 4 if isinstance(model, Doubled) else 2
            assert y.shape == x.grad.shape == () and y.item() == want and x.grad.item() == want / 2, (model, format, y, x.grad)


class Doubled(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return torch.relu(x + x)


class Residual(nn.Module):
    def __init__(self, normalisation):
        super().__init__()
        self.normalisation = normalisation

    def forward(self, x, r):
        return torch.relu(self.normalisation(x) + r)


def test_residual_of_other_shapes():
    """A residual is broadcast as torch does; one beside which the sum would have other dimensions is refused by name."""
    for layer, shape, residuals, refused in (
            (nn.BatchNorm1d(6), (4, 6, 7), [(4, 6, 7), (6, 7), (1, 6, 1), (7,), (4, 1, 7)], [(4, 6, 1, 7), (1, 4, 6, 7), (4, 6, 7, 1), (5, 7)]),
            (nn.BatchNorm1d(6), (4, 6), [(4, 6), (6,), (1, 6), (4, 1)], [(4, 6, 1), (4, 1, 6), (5, 6)]),
            (nn.BatchNorm2d(6), (4, 6, 3, 7), [(4, 6, 1, 1), (7,), (1, 6, 3, 7)], [(4, 6, 21), (1, 4, 6, 3, 7), (4, 6, 3, 7, 1)])):
        model = Residual(layer)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(7))
        for format in ("fp32", "flex16+5"):
            converted = ft.convert(model, format, verbose=False)
            for training in (True, False):
                converted.train(training), model.train(training)
                for other in residuals:
                    given = [torch.randn(other, generator=torch.Generator().manual_seed(8)).requires_grad_() for _ in range(2)]
                    y, z = converted(x, given[0]), model(x, given[1])
                    y.square().sum().backward(), z.square().sum().backward()
                    assert y.shape == z.shape and float((y - z).detach().abs().max()) < 1e-2, (layer, other, format, training)
                    wide = float((given[0].grad - given[1].grad).abs().max() / given[1].grad.abs().max())
                    assert given[0].grad.shape == torch.Size(other) and wide < 1e-2, (layer, other, format, training, wide)
                for other in refused:
                    raises(ValueError, f"batch_norm of {shape} with a residual of {other}, expected its shape", converted, x, torch.ones(other))


def test_single_module():
    converted = ft.convert(nn.Linear(3, 2), "fp16", verbose=False)
    assert isinstance(converted, ft.Linear) and converted.format == "fp16"


def formats(model):
    return {name: module.format for name, module in model.named_modules() if isinstance(module, ft.modules.FormatModule)}


def test_policies():
    model = resnet(8)
    found = formats(ft.convert(model, "variant flex16+5; @norm format=bf16; linear format=fp32; layer3.* format=dfp16; "
                               "conv1 activations=flex16+5:ngraph gradients=flex16+5:ngraph weights=flex16+5:ngraph", verbose=False))
    assert found["conv1"] == "flex16+5:ngraph" and found["bn1"] == "bf16" and found["linear"] == "fp32"
    assert found["layer3.0.conv1"] == found["layer3.0.bn1"] == "dfp16:current" and found["layer2.0.bn1"] == "bf16"
    scaled = "tensor:e4m3fn:delayed:history=16"
    found = formats(ft.convert(model, scaled, verbose=False))
    assert found["conv1"] == found["bn1"] == scaled
    mixed = ft.convert(model, "variant flex16+5; @norm format=bf16", verbose=False)
    loss = mixed(images(3)).square().sum()
    loss.backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in mixed.parameters())
    ft.convert(model, "variant fp16; if-any noconv format=fp32", verbose=False)
    raises(TypeError, "policy", ft.convert, model, None)
    raises(TypeError, "torch.nn.Module", ft.convert, 3, "fp16")


def test_compiled():
    """torch.compile of a converted model, training and evaluation: the same bits."""
    plain, other = (ft.convert(resnet(8), "flex16+5", verbose=False) for _ in range(2))
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    for step, training in enumerate((True, True, False)):
        plain.train(training), other.train(training)
        x = images(2, step)
        results = [(model, model(x)) for model in (plain, compiled)]
        assert torch.equal(results[0][1], results[1][1])
        for model, y in results:
            model.zero_grad()
            y.square().sum().backward()
        for (name, p), q in zip(plain.named_parameters(), other.parameters()):
            assert torch.equal(p.grad, q.grad), (step, name)


def test_loss_of_autograd():
    """A value with several uses: gradients are added in the format, not in float32."""
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            h = self.fc(x)
            return self.a(h) + self.b(h)
    converted = ft.convert(Twice(), "flex16+5", verbose=False)
    names = [name for name, module in converted.named_modules() if isinstance(module, ft.modules.Fork)]
    assert names == ["fork1"], names
    x = torch.randn(4, 6)
    grads = []
    converted.fc.register_full_backward_hook(lambda module, given, taken: grads.append(taken[0] * 1))
    converted(x).sum().backward()
    a, b = (torch.ones(4, 6) @ layer.weight.detach() for layer in (converted.a, converted.b))
    total = fl.add(fl.tensor(ft.quantize(a, "flex16+5").numpy(), "flex16+5"), fl.tensor(ft.quantize(b, "flex16+5").numpy(), "flex16+5"))
    assert np.abs(grads[0].numpy() - total.numpy()).max() <= 4 * 2.0 ** -total.exponent


if __name__ == "__main__":
    main(globals())
