/* All 2^32 binary32 numbers to fp16 and bf16, by every kernel set's block conversion, against the oracle of
 * conversion.h; and that oracle against the compiler's own binary16 where there is one. */
#include "conversion.h"

#ifdef __FLT16_MANT_DIG__
static void compare_oracle_with_compiler(void) {
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits++) {
        const _Float16 half = (_Float16)float_of((uint32_t)bits);
        uint16_t word;
        memcpy(&word, &half, sizeof word);
        const uint16_t want = oracle_from_float(&small_fp16, (uint32_t)bits, false);
        if (word != want) /* CHECK counts, which would take longer than the conversion */
            CHECK(word == want, "oracle of fp16: float 0x%08x is 0x%04x, _Float16 0x%04x", (uint32_t)bits, want, word);
    }
}
#else
static void compare_oracle_with_compiler(void) {
    printf("no _Float16: the oracle stands alone\n");
}
#endif

int main(void) {
    tensor_set_threads(1); /* short calls, many of them */
    compare_oracle_with_compiler();
    sweep_floats(&small_fp16, 0, 1, false);
    sweep_floats(&small_bf16, 0, 1, false);
    sweep_floats(&small_bf16, 0, 1, true);
    return check_summary();
}
