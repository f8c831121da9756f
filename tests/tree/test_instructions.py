#!/usr/bin/env python3
"""Which instructions are in which object: the disassembly of the library's objects, against what the ending of the file's
name allows (_avx2, _avx2_vnni, _avx512bw, _avx512, _avx512_fast, _avx512_amx, _avx512_amx_fast; the baseline of
x86-64, SSE2, for all others). Inline functions of headers cannot bring more either: an object is checked as it is. usage: test_instructions.py OBJECT..."""
import functools
import re
import shutil
import subprocess
import sys

SKIP = 77
if not shutil.which("objdump"):
    print("skipped: no objdump here (Debian: apt-get install binutils)")
    sys.exit(SKIP)

# Families of instructions by mnemonic and operands, as objdump prints them.
FAMILIES = {
    "SSE3 to SSE4.2": r"^(pshufb|p(sign|abs)[bwd]|ph(add|sub)(w|d|sw)|pmaddubsw|palignr|pmulhrsw|(h|add)(add|sub)p[sd]|"
                      r"mov(sl|sh|d)dup|lddqu|pmulld|pmuldq|pm(in|ax)(sb|sd|uw|ud)|pmov[sz]x\w+|packusdw|p?blend\w+|round[sp][sd]|"
                      r"dpp[sd]|mpsadbw|phminposuw|ptest|p(ins|ext)r[bdq]|insertps|extractps|movntdqa|pcmp(eqq|gtq|[ei]str\w+)|"
                      r"crc32\w*|popcnt)\b",
    "BMI, LZCNT, MOVBE": r"^(andn[lq]?|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|s(ar|hl|hr)x|lzcnt|movbe)\b",
    "AVX, AVX2, FMA, F16C": r"^v(?!err\b|errw\b)\w+",
    "AVX-512": r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]",
    "VNNI": r"^(\{vex\} )?vpdp\w+",
    "BF16": r"^v(dpbf16ps|cvtne2?ps2bf16)",
    "VBMI": r"^vperm[it]?2?b\b",
    "AMX": r"^(ldtilecfg|sttilecfg|tile\w+|tdp\w+)\b",
    "beyond AVX-512 F, BW, VL, DQ, VNNI, BF16, VBMI": r"^v(pmadd52|pmultishift|popcnt|ppopcnt|pcompress[bw]|"
                                                r"pexpand[bw]|psh[lr]d|pconflict|plzcnt|gf2p8|aes|pclmul|pp2intersect|\w+ph\b)",
}
VECTOR = ["AVX, AVX2, FMA, F16C"]
AVX512 = ["SSE3 to SSE4.2", *VECTOR, "AVX-512"]
ALLOWED = {"": [], "avx2": ["SSE3 to SSE4.2", *VECTOR], "avx2_vnni": ["SSE3 to SSE4.2", *VECTOR, "VNNI"],
           "avx512bw": AVX512, "avx512": [*AVX512, "VNNI"],
           "avx512_fast": [*AVX512, "VNNI", "BF16"],
           "avx512_amx": [*AVX512, "VNNI", "VBMI", "AMX"], "avx512_amx_fast": [*AVX512, "VNNI", "VBMI", "AMX"]}
CONVERSIONS = r"^vcvtp[hs]2p[hs]x?\b"  # of F16C; the pattern of FP16 arithmetic would take vcvtps2ph with it
PLACE = re.compile(r"\b[0-9a-f]+ <.*|-?\b0x[0-9a-f]+(?=\()")
failures, seen = [], {}


@functools.lru_cache(1 << 20)
def families_of(instruction):
    """The families of an instruction with its operands."""
    instruction = re.sub(r"^((lock|rep[nz]*|bnd|data16|cs|ds|notrack)\s+)*", "", instruction)
    return [family for family, pattern in FAMILIES.items() if re.search(pattern, instruction) and
            not (family.startswith("beyond") and re.match(CONVERSIONS, instruction))]


for path in sys.argv[1:]:
    name = path.rsplit("/", 1)[-1]
    ending = re.search(r"_(avx2|avx2_vnni|avx512bw|avx512_fast|avx512_amx_fast|avx512_amx|avx512)\.c\.o(bj)?$", name)
    allowed = ALLOWED[ending.group(1) if ending else ""]
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    used = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) < 2:
            continue
        # The address to which it jumps or from which it takes a constant, by the symbol after it or by rip, is no part of it.
        instruction = PLACE.sub("", parts[1].split("#")[0]).strip()
        for family in families_of(instruction):
            used.setdefault(family, instruction)
    for family, example in used.items():
        seen.setdefault(ending.group(1) if ending else "baseline", set()).add(family)
        if family not in allowed:
            failures.append(f"{name}: {family}: {example}")

# A disassembly that shows nothing where there must be something proves nothing.
for ending, family in (("avx2", VECTOR[0]), ("avx2_vnni", "VNNI"), ("avx512bw", "AVX-512"), ("avx512", "VNNI"), ("avx512_fast", "BF16"),
                       ("avx512_amx", "AMX"), ("avx512_amx_fast", "AMX")):
    named = [p for p in sys.argv[1:] if f"_{ending}.c.o" in p]
    if named and family not in seen.get(ending, set()):
        failures.append(f"no {family} found in {', '.join(named)}")
print("\n".join(failures) if failures else f"{len(sys.argv) - 1} objects: " +
      "; ".join(f"{k}: {', '.join(sorted(v))}" for k, v in sorted(seen.items())))
sys.exit(bool(failures))
