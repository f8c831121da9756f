#!/usr/bin/env python3
"""Policies on the command line: what is printed and stored of them, a file that changes while a training waits to be
resumed, what is refused. usage: test_cli_policy.py PATH-OF-FLEXLAB SOURCE"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, TINY, check, expect_error, read_csv, read_lines, succeed, summary, without_time

MODEL = [*TINY[:-2], "--epochs", "2"]


def roles(place, label):
    return {line["name"]: line for line in read_lines(place) if line["type"] == "roles" and line["format"] == label}


def read_again(folder):
    """`report` reads the results of every kind of format and policy that the options accept, with its predictor."""
    made = {"flex12+5": "paper", "flex4+1": "paper", "dfp8": "current", "tensor:int8": "current", "tensor:e4m3fn": "delayed",
            "flex12+5-sr": "paper", "dfp8-sr": "current", "flex12+5:nomaster": "paper", "flex12+5:nomaster:ngraph": "ngraph",
            "tensor:e5m2:delayed:history=16:margin=1": "delayed:history=16:margin=1", "flex16+5": "paper", "e4m3fn": None,
            "e5m10": None, "e5m10-sr:noscale": None, "e8m7:nomaster": None, "e8m23": None, "fp16:noscale@cpu": None}
    plain, presets = "fp32,e5m10:nomaster:noscale,flex12+5:ngraph,flex16+5@cpu", ",O2,variant dfp8-sr; loss-scale none;"
    mixed = plain + presets
    kinds = [(",".join(made), []), (mixed, ["--predictor", "ngraph"]), (mixed, ["--operands", "mx:int8"]),
             (mixed, ["--operands", "nvfp4,nvfp4:square", "--predictor", "current"]), (mixed, ["--operands", "channel:int8"]),
             (mixed, ["--accumulate", "h100"]), (mixed, ["--accumulate", "h100:promote=64", "--predictor", "ngraph"]),
             ("fp16,fp16:nomaster", ["--accumulate", "h100:promote=128:sums=fp16"]), (plain, ["--layer-format", "fc1=flex8+5"]),
             (plain, ["--layer-format", "fc1=fp32", "--accumulate", "h100", "--predictor", "ngraph"])]
    for number, (formats, how) in enumerate(kinds):
        out = folder / f"again-{number}"
        done = succeed("compare", *TINY, "--max-steps", "2", "--quiet", "--no-trace", "--formats", formats, *how, "--out", str(out))
        again = succeed("report", str(out))
        check(done.stdout.split("\nWritten")[0] == again.stdout.split("\nWritten")[0], how, "another table:", again.stdout)
        if not how:
            found = {f["name"]: f["predictor"] for f in read_lines(out)[0]["formats"]}
            check(found == made, found)
        for f in read_lines(out)[0]["formats"] if "--predictor" in how else []:
            expected = None if "flex" not in f["policy"] and "dfp" not in f["policy"] else "ngraph" if ":ngraph" in f["name"] else how[-1]
            check(f["predictor"] == expected, how, f)
    # results of a format made from its parameters that name no predictor, as those of older versions
    text = (folder / "again-0" / "metrics.jsonl").read_text()
    (folder / "again-older").mkdir()
    (folder / "again-older" / "metrics.jsonl").write_text(text.replace('"predictor":"paper"', '"predictor":null'))
    succeed("report", str(folder / "again-older"), str(folder / "again-0"), "--out", str(folder / "again-both"))


def operands(folder):
    """Block formats of operands: presets, the option and the line of a policy, stored and resumed; what is refused."""
    option, line, rest = folder / "blocks", folder / "blocks-line", folder / "blocks-rest"
    succeed("compare", *MODEL, "--quiet", "--formats", "fp32,mxint8", "--operands", "mx:int8", "--out", str(option))
    succeed("compare", *MODEL, "--quiet", "--formats", "fp32,mxint8", "--out", str(line))
    formats = read_lines(option)[0]["formats"]
    check([f["name"] for f in formats] == ["fp32:mx:int8", "policy:mxint8:mx:int8"], formats)
    check(formats[0]["policy"] == "variant fp32; if-any @product operands=mx:int8;", formats)
    of = {place: {r["format"]: without_time(r, "format") for r in read_lines(place) if r["type"] == "run"} for place in (option, line)}
    check(of[option]["fp32:mx:int8"] == of[line]["policy:mxint8"] == of[option]["policy:mxint8:mx:int8"], of)
    check(of[line]["fp32"]["last_loss"] != of[line]["policy:mxint8"]["last_loss"], "blocks changed nothing")
    listed = roles(line, "policy:mxint8")
    check(any(r.get("operands") == "mx:int8" and r.get("gradient_operands") == "mx:int8" for r in listed.values()), listed)
    expect_error(["train", *MODEL, "--format", "fp32", "--operands", "mx:int99", "--out", str(rest)], 2, "--operands: class 'operands=mx:int99'")
    expect_error(["train", *MODEL, "--format", "fp16", "--operands", "mx:int8", "--accumulate", "h100", "--out", str(rest)], 2,
                 "--operands 'mx:int8': the sums of blocks are exact, and --accumulate 'h100' has others")
    expect_error(["train", *MODEL, "--format", "mx:int8", "--out", str(rest)], 2, "'mx:int8' is a block format, which operands of products have")
    expect_error(["train", *MODEL, "--policy", "variant fp32; * weights=mx:int8;", "--out", str(rest)], 2, "'mx:int8' is a block format")
    told = subprocess.run([PROGRAM, "train", *MODEL, "--format", "bf16", "--operands", "mx:int8,mx:e2m1", "--out", str(rest)],
                          capture_output=True, text=True, env={**os.environ, "FLEXLAB_VERBOSE": "1"})
    check("operands=mx:int8,mx:e2m1, result bf16" in told.stderr, told.stderr)


def accumulates(folder):
    """The accumulators of a GPU: by option and as a line of a policy, stored and resumed; what no GPU has is refused."""
    option, line = folder / "option", folder / "line"
    succeed("compare", *MODEL, "--quiet", "--formats", "fp16,flex16+5", "--accumulate", "h100:promote=32", "--out", str(option))
    succeed("compare", *MODEL, "--quiet", "--formats", "fp16,variant fp16; accumulate h100:promote=32;", "--out", str(line))
    formats = read_lines(option)[0]["formats"]
    check([f["name"] for f in formats] == ["fp16:h100:promote=32", "flex16+5:h100:promote=32"], formats)
    check(formats[0]["policy"] == "variant fp16; accumulate h100:promote=32;", formats)
    mine, other = ({r["format"]: r for r in read_lines(p) if r["type"] == "run"} for p in (option, line))
    check(without_time(mine["fp16:h100:promote=32"], "format") == without_time(other["policy:text"], "format"), mine, other)
    check(mine["fp16:h100:promote=32"]["last_loss"] != other["fp16"]["last_loss"], "the accumulators changed nothing")
    expect_error(["train", *MODEL, "--format", "fp16", "--accumulate", "h10", "--out", str(folder / "none")], 2,
                 "--accumulate: class 'accumulate=h10': GPU 'h10' at character 12, expected one of v100")
    told = subprocess.run([PROGRAM, "train", *MODEL, "--format", "fp16", "--accumulate", "a100", "--out", str(folder / "told")],
                          capture_output=True, text=True, env={**os.environ, "FLEXLAB_VERBOSE": "1"})
    check("accumulate=a100, operands fp16, result fp16" in told.stderr, told.stderr)


def compares(folder):
    mine = folder / "mine.policy"
    mine.write_text("# a comment\npreset O1:bf16\nfc2 format=fp32   # the last layer\n*.weight weights=bf16 master=wide\n")
    out = folder / "compared"
    done = succeed("compare", *MODEL, "--formats", "fp32,flex16+5", "--policy", f"O2,dfp16,{mine}", "--out", str(out))
    config = read_lines(out)[0]
    names = ["fp32", "flex16+5", "policy:O2", "policy:dfp16", "policy:mine.policy"]
    check([f["name"] for f in config["formats"]] == names, config["formats"])
    check([f["policy"] for f in config["formats"]][:2] == ["variant fp32;", "variant flex16+5;"], config["formats"])
    check(config["formats"][4]["policy"].startswith("variant fp32; if-any @product operands=bf16;"), config["formats"][4])
    check(not roles(out, "fp32"), "roles of a variant")
    own = roles(out, "policy:mine.policy")
    check(own["fc1.product"]["operands"] == "bf16" and own["fc2.product"]["operands"] == "fp32", own)
    check(own["fc1.weight"]["weights"] == "bf16" and own["fc1.weight"]["master"] == "wide", own["fc1.weight"])
    check(own["fc1.bias"]["weights"] == "fp32" and own["fc1.bias"]["operands"] is None, own["fc1.bias"])
    das = roles(out, "policy:dfp16")
    check(das["fc1.product"]["operands"] == "dfp16:current" and das["fc1.product"]["result"] == "fp32", das)
    check("policy:O2: variant fp16; * master=fp32;" in done.stdout, done.stdout)
    check("operands=dfp16:current result=fp32" in done.stdout and "fc1.product" in done.stdout, done.stdout)
    losses = {line["format"]: line["last_loss"] for line in read_lines(out) if line["type"] == "run"}
    check(all(abs(losses[name] - losses["fp32"]) < 0.05 * losses["fp32"] for name in names), losses)
    again = succeed("report", str(out))
    check("policy:mine.policy" in again.stdout, again.stdout)
    # one list is equivalent to two, and the prefix is a spelling
    alone = folder / "one list"
    succeed("compare", *MODEL, "--quiet", "--formats", f"fp32,flex16+5,O2,policy:dfp16,{mine}", "--out", str(alone))
    for kind in ("run", "roles", "epoch", "steps"):
        one, other = ([without_time(line) for line in read_lines(p) if line["type"] == kind] for p in (out, alone))
        check(one and one == other, kind, "lines differ with the spelling")
    check(read_lines(alone)[0]["formats"] == config["formats"], "the policies differ with the spelling")
    # a preset that equals a variant has its numbers
    pair = folder / "pair"
    succeed("compare", *MODEL, "--formats", "dfp16,policy:dfp16-all", "--quiet", "--out", str(pair))
    runs = [without_time(line, "format") for line in read_lines(pair) if line["type"] == "run"]
    check(len(runs) == 2 and runs[0] == runs[1], runs)
    both = succeed("report", str(pair), str(out), "--out", str(folder / "both"))
    check("policy:dfp16-all" in both.stdout and "policy:mine.policy" in both.stdout, both.stdout)


def spells(folder):
    """A variant and its suffixes are spellings of a policy: their lines in metrics.jsonl train to the same numbers."""
    short = [*MODEL[:-2], "--epochs", "1", "--max-steps", "6", "--quiet"]
    spelled = {"fp16": "variant fp16;", "fp16:nomaster:noscale": "variant fp16; * master=none; loss-scale none;",
               "flex16+5": "variant flex16+5;", "flex16+5-sr:ngraph": "variant flex16+5-sr; * activations=flex16+5:ngraph "
               "gradients=flex16+5:ngraph weights=flex16+5:ngraph;", "dfp16:nomaster:paper": "variant dfp16; * activations="
               "dfp16:paper gradients=dfp16:paper weights=dfp16:paper; * master=none;"}
    out, lines = folder / "spelled", folder / "lines"
    succeed("compare", *short, "--formats", ",".join(spelled), "--out", str(out))
    check({f["name"].replace(":noscale:paper", ":paper"): f["policy"] for f in read_lines(out)[0]["formats"]} == spelled,
          read_lines(out)[0]["formats"])
    for name, policy in spelled.items():
        succeed("train", *short, "--format", policy, "--force", "--out", str(lines))
        one, = (without_time(line, "format") for line in read_lines(out) if line["type"] == "run" and line["format"] == name)
        other, = (without_time(line, "format") for line in read_lines(lines) if line["type"] == "run")
        check(one == other, name, "trains otherwise than", policy)
    page = re.sub(r"<script>.*?</script>", "", (lines / "report.html").read_text(), flags=re.S)
    check("(null)" not in succeed("report", str(lines)).stdout + page, "a name that is none is shown")
    # results from before every series had its text
    older = (out / "metrics.jsonl").read_text().splitlines()
    config = json.loads(older[0])
    config["formats"] = [{**f, "policy": None} for f in config["formats"]]
    old = folder / "older"
    old.mkdir()
    (old / "metrics.jsonl").write_text("\n".join([json.dumps(config), *older[1:]]) + "\n")
    for name in os.listdir(out):
        if name.startswith("trace-"):
            (old / name).write_bytes((out / name).read_bytes())
    both = succeed("report", str(old), str(out), "--out", str(folder / "older and new"), "--quiet")
    check(len(read_csv(folder / "older and new", "summary.csv")) == len(spelled), both.stdout, both.stderr)
    expect_error(["train", *MODEL, "--format", "O7", "--out", str(folder / "none")], 2, "'O7', and no file of that name", "flex16+5", "O1:bf16")
    expect_error(["compare", *MODEL, "--formats", "fp32,O2,policy:O2", "--out", str(folder / "none")], 2, "'policy:O2' is listed twice")
    expect_error(["train", *MODEL, "--format", "O3:noscale", "--out", str(folder / "none")], 2, "--format: 'O3:noscale'", "not scaled anyway")


def goes_on(folder):
    """The policy of a resumed training is that of its checkpoint, whatever the file contains by then, however long it
    is."""
    rules, cut, whole = folder / "rules", folder / "cut", folder / "whole"
    last, kept_as = "fc1 gradients=bf16", 65510  # bytes as one line; 65536 with what --layer-format adds are too many
    many = [f"if-any {i:0130} format=fp16" for i in range((kept_as - len(last) - 200) // 151)]
    one_more = "if-any {} format=fp16"
    left = kept_as - len("; ".join([*many, one_more.format(""), last]) + ";")
    many += [f"if-any {'z' * 40} format=fp16"] * ((left - 30) // 60)
    left = kept_as - len("; ".join([*many, one_more.format(""), last]) + ";")
    text = "\n".join(["variant fp16", *many, one_more.format("y" * left), last]) + "\n"
    rules.write_text(text)
    arguments = ["train", *MODEL, "--epochs", "12", "--policy", str(rules), "--layer-format", "fc2=flex16+5", "--quiet",
                 "--checkpoint-every", "1", "--out"]
    process = subprocess.Popen([PROGRAM, *arguments, str(cut)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept = cut / "flexlab.resume" / "resume.safetensors"
    while not kept.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    check(process.returncode == -signal.SIGKILL, "it ended before it was killed:", process.returncode)
    rules.write_text("preset O3\n")
    succeed("train", "--resume", str(cut), "--quiet")
    policy = read_lines(cut)[0]["formats"][0]["policy"]
    check(policy.endswith("fc1 gradients=bf16; fc2 format=flex16+5;"), policy)
    rules.write_text(text)
    succeed(*arguments, str(whole))
    one, other = ([without_time(line) for line in read_lines(p) if line["type"] != "config"] for p in (cut, whole))
    check(one == other, "a training that went on has other numbers")
    one, other = (list(stored(p / "last.safetensors")) for p in (cut, whole))
    check(one == other, "a training that went on has another network")


def scales(folder):
    """A policy that begins from fp16 has the loss scale of fp16, unless its text or ':noscale' changes it."""
    short = [*MODEL[:-2], "--epochs", "1", "--max-steps", "3", "--quiet"]
    rules, said, wide = folder / "half", folder / "said", folder / "wide"
    rules.write_text("fc2 gradients=bf16\n")
    said.write_text("variant fp16\nloss-scale none\nfc2 gradients=bf16\n")
    wide.write_text("variant bf16\nfc2 operands=fp16\n")
    own = folder / "own"
    own.write_text("variant fp16-sr\nfc2 gradients=bf16\n")
    dynamic = "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216"

    def trained(*arguments):
        out = folder / "scaled"
        succeed(*arguments, *short, "--force", "--out", str(out))
        lines = read_lines(out)
        weights = [without_time(line, "format") for line in lines if line["type"] == "run"]
        return {f["name"]: f["loss_scale"] for f in lines[0]["formats"]}, weights

    found, with_default = trained("train", "--format", "fp16", "--policy", str(rules))
    check(found == {"policy:half": dynamic}, found)
    found, same = trained("train", "--format", "fp16", "--policy", str(rules), "--loss-scale", "dynamic")
    check(found == {"policy:half": dynamic} and same == with_default, found)
    for arguments in (["--format", "fp16:noscale", "--policy", str(rules)], ["--format", "fp16", "--policy", f"{rules}:noscale"]):
        found, without = trained("train", *arguments)
        check(found == {"policy:half:noscale": "none"} and without != with_default, arguments, found)
    found, _ = trained("train", "--format", "bf16", "--policy", str(rules))
    check(found == {"policy:half": "none"}, found)
    found, _ = trained("train", "--policy", "variant fp16; fc2 gradients=bf16")
    check(found == {"policy:text": dynamic}, found)
    rules = "variant fp16; loss-scale dynamic:init=2^9,window=7; @product gradients=bf16; @loss activations=fp32;"
    long = "dynamic:init=512,window=7,factor=2,min=0.03125,max=16777216"
    found, alone = trained("train", "--policy", rules)
    check(found == {"policy:text": long}, found)
    found, both = trained("compare", "--formats", "fp32", "--policy", f"O1,{rules}")
    check(found == {"fp32": "none", "policy:O1": dynamic, "policy:text": long}, found)
    check(alone[0] == both[2], "the text beside others trains otherwise")
    found, both = trained("compare", "--formats", f"bf16,policy:{rules}")
    check(found == {"bf16": "none", "policy:text": long} and alone[0] == both[1], found)
    rules = folder / "half"
    found, _ = trained("compare", "--formats", "fp16", "--policy", f"{own},{own}:noscale,{said},{wide},O2,O2:noscale,O3,O3:bf16,O0,O1,dfp16")
    check(found == {"fp16": dynamic, "policy:own": dynamic, "policy:own:noscale": "none", "policy:said": "none", "policy:wide": "none",
                    "policy:O2": dynamic, "policy:O2:noscale": "none", "policy:O3": "none", "policy:O3:bf16": "none",
                    "policy:O0": "none", "policy:O1": dynamic, "policy:dfp16": "none"}, found)
    # the page has the texts unchanged
    page = (pathlib.Path(sys.argv[2]) / "docs" / "policies.md").read_text(encoding="utf-8")
    for f in read_lines(folder / "scaled")[0]["formats"]:
        preset = f["name"].removeprefix("policy:")
        check(preset not in ("O0", "O1", "O2", "O3", "dfp16") or f"| `{preset}` | `{f['policy']}` |" in page, preset, f["policy"])
    check("policy:own:noscale" in succeed("report", str(folder / "scaled")).stdout, "a report of a policy without scale")
    out = ["--out", str(folder / "none")]
    expect_error(["train", *short, "--policy", f"{said}:noscale", *out], 2, "said:noscale", "not scaled anyway")
    expect_error(["train", *short, "--policy", "O3:noscale", *out], 2, "O3:noscale", "not scaled anyway")
    expect_error(["train", *short, "--format", "fp16:nomaster", "--policy", str(rules), *out], 2, "'fp16:nomaster'", "':noscale'")


def of_layers(folder):
    """--master none and --predictor apply to components that --layer-format adds to a format without masters or shared
    exponents."""
    short = [*MODEL[:-2], "--epochs", "1", "--max-steps", "3", "--quiet"]
    for name, *how in (("fp32", "--formats", "fp32,fp16"), ("fp16", "--formats", "fp16,fp32")):
        out = folder / ("layers-" + name)
        succeed("compare", *short, *how, "--layer-format", "fc1=flex16+5", "--predictor", "ngraph", "--master", "none", "--out", str(out))
        for label in {line["format"] for line in read_lines(out) if line["type"] == "roles"}:
            own = roles(out, label)
            check(own["fc1.weight"]["master"] == "none" and own["fc1.weight"]["weights"] == "flex16+5:ngraph", label, own["fc1.weight"])
            check(own["fc1.product"]["activations"] == "flex16+5:ngraph", label, own["fc1.product"])
        check(len({line["format"] for line in read_lines(out) if line["type"] == "roles"}) == 2, "roles of two formats")
    done = succeed("compare", *short[:-1], "--formats", "fp32,fp16:noscale,fp16-sr:noscale", "--layer-format", "fc2=bf16", "--out", str(folder / "layers-told"))
    told = folder / "layers-told"
    note = "Note: fp32:layers, fp16:noscale:layers and fp16-sr:noscale:layers have some layers in other formats (--layer-format)."
    of_baseline = "Where a column or figure names fp32, it compares with fp32:layers: no run has all its layers in fp32."
    words = lambda text: " ".join(text.split())
    check(f"{note} {of_baseline}" in words(done.stdout), done.stdout)
    check([line["name"] for line in read_lines(told)[0]["formats"]] == ["fp32:layers", "fp16:noscale:layers", "fp16-sr:noscale:layers"],
          "names in metrics.jsonl")
    check((told / "summary.csv").read_text().splitlines()[1].startswith("fp32:layers,") and "fp32:layers" in (told / "report.html").read_text(),
          "names in files")
    check("fp32:layers" in succeed("report", str(told)).stdout, "names in a report")
    plain = folder / "layers-plain"  # of the two, the baseline is fp32 itself
    succeed("train", *short[:-1], "--format", "fp32", "--out", str(plain))
    both = succeed("report", str(told), str(plain), "--out", str(folder / "layers-both")).stdout
    check(note in words(both) and "names fp32, it compares" not in both and "\nfp32 " in both and "\nfp32:layers " in both, both)
    check("Note: fp16:noscale:layers, fp16-sr:noscale:layers train without loss scaling" in done.stdout, done.stdout)
    done = succeed("train", *short[:-1], "--policy", "variant fp32; fc2 weights=fp16", "--out", str(folder / "weights-alone"))
    check("without loss scaling" not in done.stdout, done.stdout)
    out = folder / "layers-alone"
    alone = succeed("train", *short, "--format", "fp32", "--layer-format", "fc1=fp16", "--master", "none", "--out", str(out)).stdout
    check("layer-format" not in alone, "of a format that nothing is compared with:", alone)
    check(roles(out, "fp32:layers")["fc1.weight"]["master"] == "none", roles(out, "fp32:layers"))


def odd_names(folder):
    """Names of files that formats do not have: an '@', a comma, and one that equals another policy's files."""
    short, texts = [*MODEL[:-2], "--epochs", "1", "--max-steps", "3", "--quiet"], {}
    for name in ("v@2.policy", 'a,"b".policy', "O1_bf16"):
        (folder / name).write_text("variant flex16+5\nfc1* format=fp16\n")
        out = folder / "odd"
        succeed("train", *short, "--policy", str(folder / name), "--force", "--out", str(out))
        succeed("report", str(out), "--quiet", "--figures")
        texts[name] = read_csv(out, "summary.csv")
        check(len(texts[name]) == 1 and texts[name][0]["format"] == f"policy:{name}" and texts[name][0]["runs"] == "1"
              and None not in texts[name][0], texts[name])
    check("(null)" not in (folder / "odd" / "figure-exponents.svg").read_text() if (folder / "odd" / "figure-exponents.svg").exists() else True,
          "a figure names a predictor that is none")
    expect_error(["compare", *short, "--formats", "fp32", "--policy", f"O1:bf16,{folder / 'O1_bf16'}", "--out", str(folder / "none")], 2,
                 "'policy:O1:bf16' and 'policy:O1_bf16'", "files of one name")


def stored(path):
    """Names and bytes of the tensors of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, about in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            yield name, data[8 + size + begin:8 + size + end]


def refuses(folder):
    rules = folder / "bad"
    rules.write_text("variant fp16\n\nfc1 wieghts=fp32\n")
    out = ["--out", str(folder / "none")]
    expect_error(["train", *MODEL, "--policy", str(rules), *out], 2, "bad, line 3", "'wieghts'", "weights")
    rules.write_bytes(b"variant fp32\nif-any caf\xe9 format=fp16\n")
    expect_error(["train", *MODEL, "--policy", str(rules), *out], 2, "bad, line 2: byte 11 is 0xe9", "UTF-8")
    rules.write_text("conv* format=fp16\n")
    expect_error(["train", *MODEL, "--policy", str(rules), *out], 2, "bad, line 1: 'conv*' matches no layer", "fc1, fc2", "@matmul")
    rules.write_text("preset O2\n\n# a comment\nfc9 format=fp16\n")
    expect_error(["train", *MODEL, "--policy", str(rules), *out], 2, "policy bad, line 4: 'fc9' matches no layer")
    expect_error(["wgan", "--data", "synthetic:train=40", "--policy", str(rules), *out], 2, "policy bad, line 4: 'fc9' matches no layer")
    expect_error(["train", *MODEL, "--layer-format", "fc9=fp16", *out], 2, "layer formats", "'fc9' matches no layer")
    expect_error(["train", *MODEL, "--policy", "O7", *out], 2, "'O7'", "O0, O1")
    expect_error(["train", *MODEL, "--policy", "O1", "--format", "bf16", *out], 2, "'O1'", "variant fp32", "bf16")
    expect_error(["train", *MODEL, "--policy", "O2", "--master", "none", *out], 2, "'* master=fp32'", "expected master=none")
    expect_error(["train", *MODEL, "--policy", "variant fp16;loss-scale 1000", *out], 2, "line 1", "'1000'", "power of two")
    expect_error(["compare", *MODEL, "--policy", "variant fp16;@norm format=fp32,O1", *out], 2, "'fp32,O1'")
    expect_error(["train", *MODEL, "--layer-format", "fc1", *out], 2, "PATTERN=FORMAT")
    expect_error(["train", *MODEL, "--layer-format", "fc1=fp12", *out], 2, "'fp12'")
    expect_error(["compare", *MODEL, "--formats", "fp32,policy:O1", "--policy", "O1", *out], 2, "'policy:O1' is listed twice")
    check(not os.path.exists(folder / "none" / "metrics.jsonl"), "a refused training left results")


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        read_again(folder)
        compares(folder)
        accumulates(folder)
        operands(folder)
        scales(folder)
        spells(folder)
        of_layers(folder)
        odd_names(folder)
        refuses(folder)
        goes_on(folder)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
