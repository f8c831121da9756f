/* cpu.h - what the processor and the system offer beyond the baseline of the architecture. */
#ifndef FL_CPU_H
#define FL_CPU_H

#include <stdbool.h>

/* An extension counts only where the system also saves the registers that it uses. */
enum fl_cpu_feature {
    FL_CPU_AVX2 = 1 << 0,
    FL_CPU_FMA = 1 << 1,
    FL_CPU_F16C = 1 << 2,
    FL_CPU_AVX512F = 1 << 3,
    FL_CPU_AVX512BW = 1 << 4,
    FL_CPU_AVX512VL = 1 << 5,
    FL_CPU_AVX512DQ = 1 << 6,
    FL_CPU_AVX512_VNNI = 1 << 7,
    FL_CPU_AVX512_BF16 = 1 << 8,
    FL_CPU_AVX512_VBMI = 1 << 9,
    FL_CPU_AMX_TILE = 1 << 10,
    FL_CPU_AMX_INT8 = 1 << 11,
    FL_CPU_AMX_BF16 = 1 << 12,
    FL_CPU_AVX_VNNI = 1 << 13,
    FL_CPU_FEATURES = 14
};

/* The set of features of this machine. */
unsigned fl_cpu_features(void);
/* The i-th feature (1 << i) as the kernel of the system spells it. */
const char *fl_cpu_feature_name(int i);

/* Whether VDPBF16PS, if the processor has it, takes longer than the fused multiply-adds that it replaces. */
bool fl_cpu_dot_is_slow(void);

/* Whether at most two ports execute all instructions of 512 bits, multiplications among them: on Intel processors. AMD
 * processors add and shift in other units than they multiply. */
bool fl_cpu_has_two_ports(void);
/* For tests: this answer instead, 0 or 1; -1: that of the processor again. */
void fl_cpu_pretend_two_ports(int answer);

/* NULL if this process may use the tiles of AMX, else why not. It asks the system once, from any thread. Signal frames
 * of the process are larger from then on (docs/embedding.md), so call this only when tiles are about to be used. The
 * processor must have FL_CPU_AMX_TILE. */
const char *fl_cpu_tiles_refused(void);

static inline bool fl_cpu_has(unsigned features) {
    return (features & ~fl_cpu_features()) == 0;
}

#endif
