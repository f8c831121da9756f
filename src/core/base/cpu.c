/* cpu.c - extensions of the processor by CPUID, and by XGETBV whether the system saves their registers; the permission
 * for tiles. */
#define _GNU_SOURCE /* syscall */
#include "core/base/cpu.h"
#include <stddef.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of XCR0: xmm and ymm; those, opmasks and zmm; the configuration of tiles and the tiles. */
enum { STATE_YMM = 0x6, STATE_ZMM = 0xe6, STATE_TILES = 0x60000 };
/* Bits of EDX in leaf 7 of CPUID; compilers have different names for them. */
enum { TILES_BF16 = 1 << 22, TILES = 1 << 24, TILES_INT8 = 1 << 25 };
/* Of EAX in its subleaf 1, likewise. */
enum { VNNI_OF_AVX = 1 << 4 };

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
    unsigned more = 0; /* EAX of subleaf 1 */
    if (a >= 1)
        __get_cpuid_count(7, 1, &more, &ignored, &ignored, &ignored);
    found |= more & VNNI_OF_AVX ? FL_CPU_AVX_VNNI : 0;
    if ((state & STATE_ZMM) != STATE_ZMM || !(b & bit_AVX512F))
        return found;
    found |= FL_CPU_AVX512F;
    found |= b & bit_AVX512BW ? FL_CPU_AVX512BW : 0;
    found |= b & bit_AVX512VL ? FL_CPU_AVX512VL : 0;
    found |= b & bit_AVX512DQ ? FL_CPU_AVX512DQ : 0;
    found |= c & bit_AVX512VNNI ? FL_CPU_AVX512_VNNI : 0;
    found |= c & bit_AVX512VBMI ? FL_CPU_AVX512_VBMI : 0;
    if ((state & STATE_TILES) == STATE_TILES) {
        found |= d & TILES ? FL_CPU_AMX_TILE : 0;
        found |= d & TILES_INT8 ? FL_CPU_AMX_INT8 : 0;
        found |= d & TILES_BF16 ? FL_CPU_AMX_BF16 : 0;
    }
    found |= more & bit_AVX512BF16 ? FL_CPU_AVX512_BF16 : 0;
    return found;
}
#else
static unsigned detect(void) {
    return 0;
}
#endif

unsigned fl_cpu_features(void) {
    enum { KNOWN = 1 << 30 };
    static unsigned features; /* every thread would write the same value */
    unsigned value = __atomic_load_n(&features, __ATOMIC_RELAXED);
    if (!value) {
        value = detect() | KNOWN;
        __atomic_store_n(&features, value, __ATOMIC_RELAXED);
    }
    return value & ~(unsigned)KNOWN;
}

const char *fl_cpu_feature_name(int i) {
    static const char *const names[FL_CPU_FEATURES] = {
        "avx2",        "fma",         "f16c",        "avx512f",  "avx512bw", "avx512vl", "avx512dq",
        "avx512_vnni", "avx512_bf16", "avx512_vbmi", "amx_tile", "amx_int8", "amx_bf16", "avx_vnni"};
    return i >= 0 && i < FL_CPU_FEATURES ? names[i] : 0;
}

/* --- what was measured -------------------------------------------------------------------------------------------- */

static bool is_intel(void) {
#if defined(__x86_64__)
    enum { UNKNOWN, INTEL, OTHER };
    static int known; /* every thread would write the same value; CPUID is slow in a virtual machine */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == UNKNOWN) {
        unsigned highest = 0, b = 0, c = 0, d = 0;
        const bool intel = __get_cpuid(0, &highest, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx;
        answer = intel ? INTEL : OTHER;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == INTEL;
#else
    return false;
#endif
}

/* On Zen 5 a bf16 matmul of 2048^3 by VDPBF16PS is 1.75 to 1.83 times as fast as the best binary32 product; on Sapphire
 * Rapids one of 1024^3 takes 1.84 times as long as by the fused multiply-adds of class exact (24.0 and 13.1 ms, one
 * thread; decision 10). Other Intel processors were not measured and count as the latter. */
bool fl_cpu_dot_is_slow(void) {
    return is_intel();
}

static int pretended = -1;

void fl_cpu_pretend_two_ports(int answer) {
    __atomic_store_n(&pretended, answer, __ATOMIC_RELAXED);
}

/* On an Emerald Rapids Gaussian int16 matmuls of 1024^3 take 0.93 of the time with carry splits by multiplication.
 * Other Intel processors were not measured and count as that one. */
bool fl_cpu_has_two_ports(void) {
    const int answer = __atomic_load_n(&pretended, __ATOMIC_RELAXED);
    return answer < 0 ? is_intel() : answer > 0;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

#if defined(FL_AMX_EMULATED)
const char *fl_cpu_tiles_refused(void) {
    return NULL;
}
#elif defined(__x86_64__) && defined(__linux__)
static const char *ask_for_tiles(void) {
    enum { GET_PERMISSIONS = 0x1022, ASK_PERMISSION = 0x1023, TILE_DATA = 18 }; /* of arch_prctl, since Linux 5.16 */
    unsigned long permitted = 0;
    if (!syscall(SYS_arch_prctl, GET_PERMISSIONS, &permitted) && permitted >> TILE_DATA & 1)
        return NULL;
    return syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) ? "the system refused the permission (arch_prctl)" : NULL;
}

const char *fl_cpu_tiles_refused(void) {
    static const char *answer; /* every thread would write the same; "" once permitted */
    const char *known = __atomic_load_n(&answer, __ATOMIC_ACQUIRE);
    if (!known) {
        const char *refused = ask_for_tiles();
        known = refused ? refused : "";
        __atomic_store_n(&answer, known, __ATOMIC_RELEASE);
    }
    return *known ? known : NULL;
}
#else
const char *fl_cpu_tiles_refused(void) {
    return "only Linux supports AMX tiles";
}
#endif
