"""Policies of docs/policies.md in flexlab.torch.convert: forward, backward and updates of small models of torch have the bits of the
C library's networks with the same policy and the same weights, evaluation and torch.compile too."""
from torch_tests import main, need_torch

need_torch()

import torch

import flexlab.torch as ft
from flexlab import c
from torch_policies import Groups, Images, Text, batch_of, compare


def test_presets():
    """Every preset, on images and on sequences."""
    for i in range(c.nn_policy_count()):
        name = c.nn_policy_at(i)
        if name != "flex16+5-sr":  # writes of weights draw by the order of the library's layouts
            for kind in (Images, Text):
                compare(kind, f"policy:{name}", steps=2)


RULES = (
    "variant flex16+5; @norm format=bf16; fc format=fp32; block2.* format=dfp16",
    "variant fp16; conv1 activations=bf16 gradients=fp32; block1.* weights=fp32 weight-gradients=bf16; fc master=fp32",
    "variant flex16+5; @product result=fp32; @loss activations=flex16+5; bn1.beta weights=fp32",
    "variant bf16; * gradients=flex16+5:ngraph; *.weight weights=flex12+5 weight-gradients=fp32 master=none",
    "preset mxfp8; block1.* format=flex16+5 operands=auto gradient-operands=auto",
    "variant dfp16; fc* activations=flex12+5:repeat; conv* gradients=flex16+5",
    "preset O1; @product operands=mx:int8:stochastic",
    "variant fp32; @product operands=nvfp4:hadamard gradient-operands=mx:e4m3fn",
    "variant bf16; @product operands=mx:e3m2 result=fp32; fc operands=auto gradient-operands=auto; * master=fp32",
    "variant fp32; @product operands=e4m3fn gradient-operands=e5m2 result=fp32; accumulate h100",
    "variant flex16+5; @product operands=flex12+5 gradient-operands=flex8+5:repeat; conv1 weights=fp32; fc.bias weights=bf16 master=none",
)


def test_roles():
    """Rules for every role: operands and their gradients, results, weights, masters, stored gradients, blocks with Hadamard
    transforms and stochastic rounding, accumulators."""
    for rule in RULES:
        compare(Images, rule, steps=2)
    compare(Text, "variant fp32; @linear operands=nvfp4,nvfp4:square gradient-operands=nvfp4:stochastic:hadamard; table format=bf16")
    compare(Text, "variant flex16+5; @linear result=fp32; @norm gradients=bf16; relu* format=dfp16; head.bias weights=flex16+5 master=none",
            evaluates=False)  # the network's logits are in the format of the loss


def test_groups_and_dropout():
    """Draws of dropout are those of the network: by seed, name, step and element."""
    for policy in ("flex16+5", "fp32", "O1", "variant fp16; norm gradients=bf16; @dropout format=flex16+5"):
        compare(Groups, policy)


def test_compiled():
    """torch.compile, with conversions, blocks, draws and masters: the same bits."""
    for kind, policy in ((Images, "O1"), (Text, "nvfp4")):
        torch.manual_seed(0)
        model = kind().train()
        plain, other = (ft.convert(model, policy, verbose=False) for _ in range(2))
        compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
        for step in range(2):
            x, _ = batch_of(model, 4, step)
            results = plain(x), compiled(x)
            assert torch.equal(*results), (policy, step)
            for one, y in zip((plain, other), results):
                one.zero_grad()
                y.square().sum().backward()
            for (name, p), q in zip(plain.named_parameters(), other.named_parameters()):
                assert torch.equal(p.grad, q[1].grad), (policy, step, name)


if __name__ == "__main__":
    main(globals())
