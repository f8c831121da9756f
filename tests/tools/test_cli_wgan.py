#!/usr/bin/env python3
"""flexlab wgan: the same curves, samples and networks whatever the number of threads and with a stop in between,
pictures that agree with their head, loss scales of both networks, policies, folders with results, usage. usage:
test_cli_wgan.py PROGRAM"""
import filecmp
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, check, expect_error, read_lines, succeed, summary

TINY = ["wgan", "--data", "synthetic:train=64,test=8", "--batch", "4", "--filters", "2", "--latent", "3", "--critic-steps", "2", "--lr", "1e-3",
        "--samples", "3", "--seed", "7"]


def numbers(directory):
    return [(line["step"], line["estimate"], line["generator_loss"]) for line in read_lines(directory) if line["type"] == "step"]


def same_files(a, b, *names):
    for name in names:
        check(filecmp.cmp(os.path.join(a, name), os.path.join(b, name), shallow=False), a, b, name, "differ")


def test_bits(place):
    for form in "flex16+5", "fp16", "fp16:nomaster", "bf16", "fp32", "dfp16":
        one, other = os.path.join(place, form, "one"), os.path.join(place, form, "other")
        os.makedirs(os.path.join(place, form))
        succeed(*TINY, "--format", form, "--steps", "6", "--threads", "1", "--out", one, "--sample-every", "3")
        succeed(*TINY, "--format", form, "--steps", "3", "--threads", "3", "--out", other, "--quiet")
        succeed(*TINY, "--format", form, "--steps", "6", "--threads", "2", "--out", other + "2", "--resume", os.path.join(other, "wgan-000003"))
        check(numbers(one) == numbers(other) + numbers(other + "2"), form, "curves differ")
        check([step for step, _, _ in numbers(one)] == [1, 2, 3, 4, 5, 6], form, numbers(one))
        same_files(one, other, "samples-000003.ppm")
        same_files(one, other + "2", "samples-000006.ppm", "wgan-000006.critic.safetensors", "wgan-000006.generator.safetensors")
        check(sorted(os.path.basename(p) for p in glob.glob(one + "/*")) ==
              ["metrics.jsonl", "samples-000003.ppm", "samples-000006.ppm", "wgan-000006.critic.safetensors", "wgan-000006.generator.safetensors"],
              os.listdir(one))
    check(numbers(os.path.join(place, "fp16", "one")) != numbers(os.path.join(place, "fp16:nomaster", "one")), "master weights change nothing")
    expect_error([*TINY, "--format", "fp16", "--steps", "7", "--out", os.path.join(place, "mixed"), "--resume",
                  os.path.join(place, "fp16:nomaster", "one", "wgan-000006")], 1, "'network.master' is 'none'")
    with open(os.path.join(one, "samples-000006.ppm"), "rb") as file:
        picture = file.read()
    head = b"P6\n66 66\n255\n"  # two by two of 32 pixels, two between them
    check(picture.startswith(head) and len(picture) == len(head) + 66 * 66 * 3, "picture", picture[:20], len(picture))
    rows = picture[len(head):]
    check(rows[32 * 3:34 * 3] == bytes(6) and min(rows[:96]) > 0, "the gap is black, an image is not")
    check(rows[34 * 66 * 3 + 34 * 3:34 * 66 * 3 + 66 * 3] == bytes(96), "no fourth image")


def lines_of(directory, kind):
    return [line for line in read_lines(directory) if line["type"] == kind]


def scalers(steps, fits, power=24, least=-5):
    """The expected records of two scalers that begin at 2^power: the gradient of the loss is a quarter of the scale,
    and a step in which that does not fit the format is left out. Two steps of the critic, one of the generator."""
    state = {"critic": [power, 0], "generator": [power, 0]}
    for step in range(1, steps + 1):
        for name in "critic", "critic", "generator":
            if 2.0 ** state[name][0] / 4 > fits:
                state[name] = [max(state[name][0] - 1, least), state[name][1] + 1]
        yield {"step": step, **{f"{name}_scale": 2.0 ** now[0] for name, now in state.items()},
               **{f"{name}_skipped": now[1] for name, now in state.items()}}


def told(directory):
    return [{k: v for k, v in line.items() if k in ("step", "critic_scale", "critic_skipped", "generator_scale", "generator_skipped")}
            for line in lines_of(directory, "step")]


def test_scales(place):
    def out(name):
        return os.path.join(place, name)

    def trained(name, *more, status=0):
        return succeed(*TINY, *more, "--out", out(name), status=status)

    # a power of two changes no bit of fp32: neither losses nor generated images
    for name, scale in (("plain", "none"), ("up", "2^20"), ("down", "0.125"), ("moving", "dynamic:init=2^10,window=3")):
        done = trained(name, "--format", "fp32", "--steps", "8", "--loss-scale", scale)
        check(numbers(out(name)) == numbers(out("plain")), scale, numbers(out(name)))
        same_files(out(name), out("plain"), "samples-000008.ppm")
        check(("loss scale:" in done.stdout) == (scale != "none"), scale, done.stdout)
    check(all("critic_scale" not in line for line in lines_of(out("plain"), "step")), "a scale without scaling")
    # 16 steps of the critic, 8 of the generator, up after three
    check(told(out("moving"))[-1] == {"step": 8, "critic_scale": 2.0 ** 15, "critic_skipped": 0, "generator_scale": 2.0 ** 12, "generator_skipped": 0},
          told(out("moving"))[-1])
    # each scaler counts its own steps; with a shared exponent the largest value is 32767
    for form, fits in ("fp16", 65504), ("flex16+5", 32767):
        scale = ["--format", form, "--loss-scale", "dynamic:init=2^24"]
        done = trained(form, *scale, "--steps", "12", "--sample-every", "3")
        want = list(scalers(12, fits))
        check(told(out(form)) == want, form, told(out(form)), want)
        last = want[-1]
        check(f"critic {last['critic_scale']:g} after 24 steps, {last['critic_skipped']} of them without" in done.stdout and
              f"generator {last['generator_scale']:g} after 12 steps, {last['generator_skipped']} of them" in done.stdout, done.stdout)
        # the state of the scalers is in the files of the networks
        trained(form + "-a", *scale, "--steps", "3")
        trained(form + "-b", *scale, "--steps", "12", "--sample-every", "3", "--resume", out(form + "-a/wgan-000003"))
        check(told(out(form + "-a")) + told(out(form + "-b")) == want, form, "goes on otherwise")
        same_files(out(form), out(form + "-b"), "samples-000012.ppm", "wgan-000012.critic.safetensors", "wgan-000012.generator.safetensors")
    expect_error([*TINY, "--format", "fp16", "--out", out("none"), "--resume", out("fp16-a/wgan-000003")], 1, "'network.loss_scale' is", "16777216")
    # without an option fp16 is scaled, as by train and compare
    usual = "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216"
    for form, scale in ("fp16", usual), ("fp16:noscale", "none"), ("fp16-sr", usual), ("bf16", "none"):
        trained("usual-" + form, "--format", form, "--steps", "1")
        check(read_lines(out("usual-" + form))[0]["loss_scale"] == scale, form, read_lines(out("usual-" + form))[0])
    # a static scale that is too large makes all weights NaN, which is a failure; so is a number of steps already made
    done = trained("diverged", "--format", "fp16", "--loss-scale", "2^40", "--steps", "6", "--quiet", status=1)
    check("DIVERGED: the distance of step 6 is nan" in done.stderr and not done.stdout and os.path.exists(out("diverged/metrics.jsonl")), done.stderr)
    trained("made", "--format", "fp32", "--steps", "2", "--quiet")
    for steps in "1", "2":
        expect_error([*TINY, "--format", "fp32", "--steps", steps, "--out", out("again"), "--resume", out("made/wgan-000002")], 2,
                     f"--steps {steps}: the pair of --resume has made 2 steps, expected more")
    for how, words in ((("--lr", "2e-3"), "rate=0.00200000009"), (("--clip", "0.5"), "clip=0.5"), (("--critic-steps", "1"), "critic_steps=1")):
        expect_error([*TINY, "--format", "fp32", "--steps", "4", "--out", out("again"), "--resume", out("made/wgan-000002"), *how], 1,
                     "was trained with critic_steps=", words)
    batch = [*TINY, "--format", "fp32", "--steps", "4", "--out", out("again"), "--resume", out("made/wgan-000002"), "--batch", "8"]
    expect_error(batch, 1, "'network.batch' is '4', that of the network is '8'")
    # other images, or the same in another order, are another training; labels do not count
    resumed = ["--format", "fp32", "--steps", "4", "--out", out("again"), "--resume", out("made/wgan-000002")]
    for data in "synthetic:train=65,test=8", "synthetic:train=64,test=8,seed=7":
        kept = [data if word.startswith("synthetic:") else word for word in TINY]
        expect_error([*kept, *resumed], 1, f"--data '{data}'", f"--resume '{out('made/wgan-000002')}'", "was trained with 64 images (",
                     f"this set has {'65' if '65' in data else '64'} images (")
    check(not os.path.exists(out("again")), "a refused training left a folder")
    # no scale is small enough: reported when it happens, and a failure after all is stored
    done = trained("starved", "--format", "fp16", "--loss-scale", "dynamic:init=2^24,min=2^24", "--steps", "15", status=1)
    check("WARNING: the last 20 steps of the critic made no update, up to step 10" in done.stderr and
          "diverged: the last 30 steps of the critic made no update" in done.stderr, done.stderr)
    check(told(out("starved"))[-1]["critic_skipped"] == 30 and os.path.exists(out("starved/wgan-000015.critic.safetensors")), told(out("starved"))[-1:])


def test_policies(place):
    out, rules = os.path.join(place, "policy"), os.path.join(place, "my.policy")
    with open(rules, "w") as file:
        file.write("preset O2\nup1 format=bf16  # of the generator\ndown* gradients=fp32  # of the critic\n")
    short = [*TINY, "--steps", "4", "--sample-every", "2", "--out"]
    done = succeed(*short, out, "--policy", rules, "--layer-format", "score=dfp16")
    head, roles = read_lines(out)[0], {line["name"]: line for line in lines_of(out, "roles")}
    check(head["format"] == "policy:my.policy" and head["loss_scale"].startswith("dynamic:init=65536") and
          head["policy"].endswith("up1 format=bf16; down* gradients=fp32; score format=dfp16;"), head)
    for name, network, role, value in (("up1.weight", "generator", "weights", "bf16"), ("up2.weight", "generator", "weights", "fp16"),
                                       ("bn1", "generator", "activations", "fp32"), ("down2", "critic", "gradients", "fp32"),
                                       ("down2", "critic", "activations", "fp16"), ("score", "critic", "operands", "dfp16:current")):
        check(roles[name]["network"] == network and roles[name][role] == value and roles[name]["format"] == "policy:my.policy", name, roles[name])
    begins = done.stdout[:done.stdout.index("step ")]
    check(begins.startswith("policy:my.policy: variant fp16; ") and begins.index("\ncritic\n") < begins.index("down1.weight") < begins.index("\ngenerator\n") <
          begins.index("up1.weight") and "loss scale: dynamic" in begins, begins)
    check(succeed(*short, out + "-quiet", "--policy", rules, "--layer-format", "score=dfp16", "--threads", "3", "--quiet").stdout == "", "--quiet prints")
    check(numbers(out) == numbers(out + "-quiet") and len(numbers(out)) == 4, "threads")
    # the same bits with a stop in between; a file that has changed by then is refused
    part, rest = out + "-part", out + "-rest"
    succeed(*TINY, "--steps", "2", "--out", part, "--policy", rules, "--layer-format", "score=dfp16")
    again = [*short, rest, "--policy", rules, "--layer-format", "score=dfp16", "--resume", os.path.join(part, "wgan-000002")]
    succeed(*again)
    check(numbers(part) + numbers(rest) == numbers(out), "goes on otherwise")
    same_files(out, rest, "samples-000004.ppm", "wgan-000004.critic.safetensors", "wgan-000004.generator.safetensors")
    with open(rules, "w") as file:
        file.write("preset O2\nup1 format=bf16\n")
    expect_error([*again, "--force"], 1, "'network.policy' is")
    # the same policy by another name; one that equals the variant
    for name, *how in (("a", "--policy", "O1"), ("b", "--format", "policy:O1"), ("c", "--format", "dfp16"), ("d", "--policy", "dfp16-all")):
        succeed(*short, out + name, *how)
    check(numbers(out + "a") == numbers(out + "b") and numbers(out + "c") == numbers(out + "d") != numbers(out + "a"), "names of policies")
    for scale, arguments in (("none", ["--policy", "O1:noscale"]), ("none", ["--policy", "O3"]), ("1024", ["--policy", "O2", "--loss-scale", "1024"]),
                             ("none", ["--policy", "O2:bf16"])):
        succeed(*TINY, "--steps", "1", "--out", out + "s", "--force", *arguments)
        check(read_lines(out + "s")[0]["loss_scale"] == scale, arguments, read_lines(out + "s")[0])


def test_folder(place):
    out = os.path.join(place, "results")
    succeed(*TINY, "--steps", "1", "--out", out, "--quiet")
    expect_error([*TINY, "--steps", "1", "--out", out], 1, "there are results already", "--force")
    succeed(*TINY, "--steps", "2", "--out", out, "--force", "--checkpoint-every", "1", "--quiet")
    check(len(numbers(out)) == 2, "lines", numbers(out))
    expect_error([*TINY, "--out", out + "2", "--filters", "3", "--resume", os.path.join(out, "wgan-000002")], 1, "checkpoint")
    os.remove(os.path.join(out, "wgan-000002.critic.safetensors"))
    expect_error([*TINY, "--out", out + "2", "--resume", os.path.join(out, "wgan-000002")], 1, "wgan-000002.critic.safetensors")


def test_stopped(place):
    out = os.path.join(place, "stopped")
    process = subprocess.Popen([PROGRAM, *TINY, "--steps", "1000000", "--out", out, "--quiet"])
    part = os.path.join(out, "metrics.jsonl.part")
    for _ in range(600):
        if os.path.exists(part) and open(part).read().count("\n") > 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    check(process.wait(60) == 130, "after SIGINT:", process.returncode)
    last = numbers(out)[-1][0]
    check(os.path.exists(os.path.join(out, f"wgan-{last:06}.generator.safetensors")) and
          os.path.exists(os.path.join(out, f"samples-{last:06}.ppm")), os.listdir(out))


def test_usage(place):
    out = ["--out", os.path.join(place, "none")]
    for option in "steps", "batch", "filters", "latent", "critic-steps", "samples", "sample-every":
        for value in "0", "-1", "x", "1.5":
            expect_error(["wgan", f"--{option}={value}"], 2, f"--{option} '{value}'", "whole number from 1 to")
    for option in "lr", "clip":
        expect_error(["wgan", f"--{option}=0"], 2, f"--{option} '0'", "number from")
    expect_error(["wgan", "--format", "fp33", *out], 2, "fp33")
    expect_error(["wgan", "--format", "fp16,fp32", *out], 2, "expected one format")
    expect_error(["wgan", "--epochs", "3", *out], 2, "--epochs")
    for scale, words in (("3", "'3': expected a power of two"), ("dynamic:init=5", "init: expected a power of two"), ("much", "'much': expected none")):
        expect_error([*TINY, "--loss-scale", scale, *out], 2, "--loss-scale", words)
    expect_error([*TINY, "--policy", "O7", *out], 2, "'O7'", "O0, O1")
    expect_error([*TINY, "--policy", "O1", "--format", "bf16", *out], 2, "'O1'", "variant fp32", "bf16")
    expect_error([*TINY, "--policy", "O3:noscale", *out], 2, "'O3:noscale'", "not scaled anyway")
    expect_error([*TINY, "--format", "bf16:noscale", *out], 2, "'bf16:noscale'", "not scaled anyway")
    expect_error([*TINY, "--policy", "O1,O2", *out], 2, "'O1,O2'")
    expect_error([*TINY, "--layer-format", "conv*=bf16", *out], 2, "'conv*' matches no layer", "up1", "down1", "@conv_transpose2d", "@conv2d")
    expect_error([*TINY, "--policy", "variant fp32; bn1 operands=bf16", *out], 2, "policy:text", "'bn1' matches has operands")
    expect_error([*TINY, "--layer-format", "up1=fp12", *out], 2, "--layer-format", "'fp12'")
    expect_error(["wgan", "more", *out], 2, "unexpected argument 'more'")
    expect_error(["wgan", "--data", "nothing", *out], 2, "--data 'nothing'")
    expect_error([*TINY, "--batch", "65", *out], 1, "batches of 65, but only 64 images")


with tempfile.TemporaryDirectory() as place:
    test_bits(place)
    test_scales(place)
    test_policies(place)
    test_folder(place)
    test_stopped(place)
    test_usage(place)
sys.exit(summary())
