#!/usr/bin/env python3
"""Mistakes in kernels are noticed: in the PTX that nvcc made one instruction at a time is changed (FLEXLAB_PTX_EDIT), and
test_gpu_ops must then fail, by another result or by a finding.
usage: test_ptx_mutants.py TEST_GPU_OPS LIBRARY [all]"""
import os
import subprocess
import sys

program, library = sys.argv[1:3]
TILES = "13product_tilesI"  # kernels with these words in their names
# Kernel, which occurrence in it, what it was, what it becomes, and a function and a format that run it.
MUTANTS = [
    (TILES, 1, "bar.sync 0;", "", "matmul", "flex16+5"),
    (TILES, 2, "bar.sync 0;", "", "matmul", "flex16+5"),
    (TILES, 1, "cp.async.wait_group 1;", "", "matmul", "flex16+5"),
    (TILES, 1, "cp.async.wait_group 1;", "cp.async.wait_group 2;", "conv2d", "flex16+5"),
    (TILES, 3, "cp.async.commit_group;", "", "matmul", "dfp16"),
    (TILES, 1, "s32.s8.u8.s32", "s32.u8.u8.s32", "matmul", "flex16+5"),
    (TILES, 1, "s32.s8.s8.s32", "s32.s8.u8.s32", "matmul", "dfp16"),
    (TILES, 1, "s32.u8.u8.s32", "s32.u8.s8.s32", "conv2d_weight_grad", "flex16+5"),
    (TILES, 1, "x4.trans.shared", "x4.shared", "matmul", "flex16+5"),
    (TILES, 1, "x4.shared", "x4.trans.shared", "matmul_nt", "flex16+5"),
    (TILES, 1, "cp.async.cg.shared.global", "//", "conv2d", "flex16+5"),
    (TILES, 1, "prmt.b32", "shf.l.wrap.b32", "matmul", "flex16+5"),
    ("", 1, "shfl.sync.down", "shfl.sync.up", "add", "flex16+5"),
    ("", 1, "atom.global.max.u64", "atom.global.min.u64", "add", "flex16+5"),
    ("product_tiles", 1, "atom.global.add.u64", "atom.global.max.u64", "matmul", "flex16+5"),
    ("channel_affine", 1, "setp.ge.s64", "setp.gt.s64", "channel_affine", "fp32"),
    ("channel_affine", 1, "fma.rn.f32", "mad.rn.f32", "channel_affine", "fp32"),
    ("product_elements", 1, "add.rn.f32", "sub.rn.f32", "matmul", "fp32"),
    ("product_elements", 1, "mul.rn.f32", "add.rn.f32", "matmul", "fp32"),
    ("product_elements", 1, "setp.lt.s64", "setp.le.s64", "conv2d", "fp16"),
    ("softmax_rows", 1, "div.rn.f64", "mul.rn.f64", "softmax", "fp32"),
    ("softmax_rows", 1, "cvt.rn.f32.f64", "cvt.rn.f32.u32", "softmax", "fp32"),
    ("maxpool_grad", 1, "setp.lt.s64", "setp.le.s64", "maxpool2d_grad", "bf16"),
    ("7maxpool", 1, "setp.gt.f64", "setp.lt.f64", "maxpool2d", "bf16"),
    ("3sgdE", 1, "mul.rn.f64", "add.rn.f64", "sgd_momentum", "fp32"),
    ("4cellE", 3, "add.rn.f64", "sub.rn.f64", "lstm_cell", "fp16"),
    ("8row_norm", 1, "sqrt.rn.f64", "rcp.rn.f64", "layernorm", "bf16"),
    ("8row_norm", 2, "shfl.sync.idx.b32", "shfl.sync.bfly.b32", "layernorm", "bf16"),
    ("7avgpool", 1, "add.rn.f32", "sub.rn.f32", "avgpool_global", "fp32"),
    ("9embedding", 1, "mul.lo.s64", "add.s64", "embedding", "fp32"),
    ("real_elements", 1, "setp.gt.s32", "setp.ge.s32", "tanh", "fp32"),
    ("map_elements", 1, "st.global.u16", "st.global.u32", "relu", "bf16"),
]


def run(function, kind, edit=None):
    env = {**os.environ, "FLEXLAB_REQUIRE_GPU": "1", "FLEXLAB_CUDA_LIBRARY": library, "OMP_WAIT_POLICY": "passive",
           "FLEXLAB_PTX_CHECKS": "registers,races", "FLEXLAB_PTX_BYTES": "134217728"}
    if edit:
        env["FLEXLAB_PTX_EDIT"] = "|".join(map(str, edit))
    return subprocess.run([program, "3", "8", function, kind], capture_output=True, text=True, env=env)


bad = 0
for function, kind in sorted({mutant[4:] for mutant in MUTANTS}):
    done = run(function, kind)
    if done.returncode:
        bad += 1
        print("WITHOUT A MISTAKE:", function, kind, done.stdout[-500:], done.stderr[-500:])
for *edit, function, kind in MUTANTS:
    done = run(function, kind, edit)
    edited, noticed = "ptx: edited" in done.stderr, done.returncode != 0
    how = "a finding" if done.returncode == 98 else "the result" if noticed else "NOBODY"
    if "unknown opcode" in done.stderr or not edited:
        how, noticed = "no mutant: " + done.stderr[-200:], False
    bad += not noticed
    print(f"{edit[0] or 'every kernel'}, {edit[2]!r} {edit[1]} to {edit[3]!r}, {function} {kind}: {how}", flush=True)
print(f"{len(MUTANTS)} mutants, {bad} wrong")
sys.exit(bool(bad))
