#!/usr/bin/env python3
"""Mistakes in kernels are noticed: in the PTX that nvcc made one instruction at a time is changed (FLEXLAB_PTX_EDIT), and
a test that runs the kernel must then fail, by another result or by a finding.
usage: test_ptx_mutants.py FOLDER_OF_TESTS LIBRARY"""
import os
import subprocess
import sys

programs, library = sys.argv[1:3]
MATMUL, CONV = ("gpu_products", "4", "8", "matmul", "dfp16"), ("gpu_products", "2", "24", "conv2d", "flex16+5")
MATMUL_FP32, CONV_FP16 = ("gpu_products", "2", "16", "matmul", "fp32"), ("gpu_products", "2", "24", "conv2d", "fp16")
DEPTHWISE = ("gpu_products", "1", "1", "depthwise", "fp32")
FAST = ("gpu_products", "3", "6", "fast", "a100")
BATCHED, STRIDED = (("gpu_products", "1", many, what, "fp32") for many, what in (("60", "batched"), ("1", "strided")))
NUMBERS = ("gpu_products", "1", "0", "numbers")
TILES = "13product_tilesI"  # kernels with these words in their names
CHAINS, MMA = TILES + "NS_11chain_shapeI", TILES + "NS_9mma_shapeI"
SLIM, FLAT, THIN, LONG = (MMA + shape for shape in ("Li2ELi1E", "Li1ELi4E", "Li1ELi2E", "Li1ELi9E"))
FEW, AFFINE = ("gpu_products", "1", "1", "few", "dfp16"), ("gpu_ops", "1", "1", "affine", "dfp16")
FEWEST = ("gpu_products", "1", "1", "thin", "dfp16")
SHADOWS = ("gpu_describe", "shadows")
# Kernel, which occurrence in it (0: each), what it was, what it becomes, and a test that runs it.
MUTANTS = [
    (TILES, 1, "bar.sync 0;", "", MATMUL),
    (TILES, 2, "bar.sync 0;", "", MATMUL),
    (TILES, 3, "bar.sync 0;", "", MATMUL),
    (TILES, 1, "cp.async.wait_group 1;", "", MATMUL),
    (TILES, 1, "cp.async.wait_group 1;", "cp.async.wait_group 2;", CONV),
    (TILES, 2, "cp.async.commit_group;", "", MATMUL),
    (TILES, 1, "s32.s8.u8.s32", "s32.u8.u8.s32", MATMUL),
    (TILES, 1, "s32.s8.s8.s32", "s32.s8.u8.s32", MATMUL),
    (TILES, 1, "s32.u8.u8.s32", "s32.u8.s8.s32", CONV),
    (TILES, 1, "x4.trans.shared", "x4.shared", MATMUL),
    (TILES, 2, "x4.shared", "x4.trans.shared", CONV),
    (TILES, 1, "cp.async.cg.shared.global", "//", CONV),
    (TILES, 1, "prmt.b32", "shf.l.wrap.b32", MATMUL),
    ("product_elements", 0, "fma.rn.f32", "fms.rn.f32", DEPTHWISE),
    ("product_elements", 0, "setp.lt.s64", "setp.le.s64", DEPTHWISE),
    (CHAINS, 0, "fma.rn.f32", "fms.rn.f32", MATMUL_FP32),
    (CHAINS, 1, "bar.sync 0;", "", MATMUL_FP32),
    (CHAINS, 1, "cp.async.wait_group 1;", "cp.async.wait_group 2;", MATMUL_FP32),
    (CHAINS, 0, "add.rn.f32", "sub.rn.f32", BATCHED),
    (CHAINS, 2, "cvt.f32.f16", "mov.b32", CONV_FP16),
    ("10find_holes", 0, "fma.rn.f32", "fms.rn.f32", STRIDED),
    ("product_parts", 1, "add.rn.f32", "sub.rn.f32", MATMUL_FP32),
    (MMA, 1, "f32.f16.f16.f32", "f32.bf16.bf16.f32", FAST),
    (MMA, 2, "x4.trans.shared", "x4.shared", FAST),
    (MMA, 1, "bar.sync 0;", "", FAST),
    (TILES, 3, "add.s32", "sub.s32", MATMUL),
    ("numbers_to_elements", 0, "mul.lo.s64", "add.s64", NUMBERS),
    ("softmax_map", 0, "div.rn.f64", "mul.rn.f64", ("gpu_ops", "3", "8", "softmax", "fp32")),
    ("8row_norm", 0, "shfl.sync.bfly.b32", "shfl.sync.down.b32", ("gpu_ops", "3", "8", "layernorm", "flex16+5")),
    ("7maxpoolE", 0, "setp.lt.s64", "setp.le.s64", ("gpu_ops", "3", "8", "maxpool2d", "bf16")),
    ("7dropoutE", 0, "mul.rn.f64", "add.rn.f64", ("gpu_ops", "3", "8", "dropout", "fp32")),
    ("sum_products", 0, "mul.rn.f64", "add.rn.f64", ("gpu_ops", "3", "8", "matmul", "fp32")),
    ("sum_mantissas", 0, "atom.global.add.u64", "atom.global.min.u64", ("gpu_ops", "3", "8", "matmul", "fp32")),
    ("maxpool_grad", 0, "setp.ge.s64", "setp.gt.s64", ("gpu_ops", "3", "8", "maxpool2d_grad", "bf16")),
    ("3sgdE", 0, "mul.rn.f64", "add.rn.f64", ("gpu_ops", "3", "8", "sgd_momentum", "fp32")),
    ("4cellE", 0, "sub.rn.f64", "add.rn.f64", ("gpu_ops", "3", "8", "lstm_cell", "fp16")),
    ("8row_norm", 1, "sqrt.rn.f64", "rcp.rn.f64", ("gpu_ops", "3", "8", "layernorm", "bf16")),
    ("7avgpool", 1, "add.rn.f32", "sub.rn.f32", ("gpu_ops", "3", "8", "avgpool_global", "fp32")),
    ("9embedding", 1, "mul.lo.s64", "add.s64", ("gpu_ops", "3", "8", "embedding", "fp32")),
    ("affine_elements", 0, "min.s64", "max.s64", AFFINE),
    ("affine_elements", 0, "add.cc.s64", "sub.cc.s64", AFFINE),  # of sums that 64 bits do not hold
    ("affine_elements", 0, "max.u64", "min.u64", AFFINE),
    ("3sgdE", 0, "mul.hi.s64", "mul.hi.u64", ("gpu_ops", "3", "8", "sgd_momentum", "dfp16")),
    ("8shortcut", 1, "ld.global.s16", "ld.global.u16", ("gpu_ops", "3", "8", "shortcut_a", "flex16+5")),
    (SLIM, 1, "x4.trans.shared", "x4.shared", FEW),
    (FLAT, 1, "x4.trans.shared", "x4.shared", FEW),
    (THIN, 1, "x4.trans.shared", "x4.shared", FEWEST),
    (LONG, 1, "bar.sync 0;", "", FEWEST),
    (LONG, 18, "x4.trans.shared", "x4.shared", FEWEST),
    (MMA, 0, "abs.f32", "neg.f32", FAST),
    (MMA, 0, "setp.num.f32", "setp.equ.f32", FAST),  # filters of phases that are no numbers
    (MMA, 1, "neg.s32", "mov.u32", FAST),  # zeros before k, in whole groups
    ("map_elements", 1, "st.global.u16", "st.global.u32", ("gpu_ops", "3", "8", "relu", "bf16")),
    ("measure_elements", 0, "sub.rn.f64", "add.rn.f64", SHADOWS),
    ("measure_elements", 3, "bar.sync 0;", "", SHADOWS),
    ("follow_writes", 1, "setp.eq.s64", "setp.ne.s64", SHADOWS),
]


def run(test, edit=None):
    env = {**os.environ, "FLEXLAB_REQUIRE_GPU": "1", "FLEXLAB_CUDA_LIBRARY": library, "OMP_WAIT_POLICY": "passive",
           "FLEXLAB_PTX_CHECKS": "registers,races", "FLEXLAB_PTX_BYTES": "134217728", "FLEXLAB_TEST_STOP": "1"}
    if edit:
        env["FLEXLAB_PTX_EDIT"] = "|".join(map(str, edit))
    return subprocess.run([os.path.join(programs, "test_" + test[0]), *test[1:]], capture_output=True, text=True, env=env)


bad = 0
for test in sorted({mutant[4] for mutant in MUTANTS}):
    done = run(test)
    if done.returncode:
        bad += 1
        print("WITHOUT A MISTAKE:", *test, done.stdout[-500:], done.stderr[-500:])
for *edit, test in MUTANTS:
    done = run(test, edit)
    edited, noticed = "ptx: edited" in done.stderr, done.returncode != 0
    how = "a finding" if done.returncode == 98 else "the result" if noticed else "NOBODY"
    if "unknown opcode" in done.stderr or not edited:
        how, noticed = "no mutant: " + done.stderr[-200:], False
    bad += not noticed
    print(f"{edit[0]}, {edit[2]!r} {edit[1] or 'each'} to {edit[3]!r}, {' '.join(test)}: {how}", flush=True)
print(f"{len(MUTANTS)} mutants, {bad} wrong")
sys.exit(bool(bad))
