/* cpu.c - extensions of the processor by CPUID, and by XGETBV whether the system saves their registers. */
#include "core/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { STATE_YMM = 0x6, STATE_ZMM = 0xe6 }; /* bits of XCR0: xmm and ymm; those, opmasks and zmm */

static unsigned detect(void) {
    unsigned a, b, c, d, state, ignored;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    const unsigned leaf1 = c;
    __asm__("xgetbv" : "=a"(state), "=d"(ignored) : "c"(0));
    if ((state & STATE_YMM) != STATE_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    unsigned found = 0;
    found |= leaf1 & bit_FMA ? FL_CPU_FMA : 0;
    found |= leaf1 & bit_F16C ? FL_CPU_F16C : 0;
    found |= b & bit_AVX2 ? FL_CPU_AVX2 : 0;
    if ((state & STATE_ZMM) != STATE_ZMM || !(b & bit_AVX512F))
        return found;
    found |= FL_CPU_AVX512F;
    found |= b & bit_AVX512BW ? FL_CPU_AVX512BW : 0;
    found |= b & bit_AVX512VL ? FL_CPU_AVX512VL : 0;
    found |= b & bit_AVX512DQ ? FL_CPU_AVX512DQ : 0;
    found |= c & bit_AVX512VNNI ? FL_CPU_AVX512_VNNI : 0;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        found |= a & bit_AVX512BF16 ? FL_CPU_AVX512_BF16 : 0;
    return found;
}
#else
static unsigned detect(void) {
    return 0;
}
#endif

unsigned fl_cpu_features(void) {
    enum { KNOWN = 1 << 30 };
    static unsigned features; /* the same value whoever writes it first */
    unsigned value = __atomic_load_n(&features, __ATOMIC_RELAXED);
    if (!value) {
        value = detect() | KNOWN;
        __atomic_store_n(&features, value, __ATOMIC_RELAXED);
    }
    return value & ~(unsigned)KNOWN;
}

const char *fl_cpu_feature_name(int i) {
    static const char *const names[FL_CPU_FEATURES] = {"avx2",     "fma",      "f16c",        "avx512f",    "avx512bw",
                                                       "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16"};
    return i >= 0 && i < FL_CPU_FEATURES ? names[i] : 0;
}
