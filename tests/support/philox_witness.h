/* philox_witness.h - Philox 4x32-10 for tests, written from its definition (Salmon, Moraes, Dror, Shaw: Parallel Random
 * Numbers: As Easy as 1, 2, 3, SC 2011, section 3.3): ten rounds of two Feistel-like steps on pairs of words, each
 * round with the key of the round before plus a Weyl constant. test_stochastic.c holds it to published numbers. */
#ifndef FL_PHILOX_WITNESS_H
#define FL_PHILOX_WITNESS_H

#include <stdint.h>

/* High and low half of a * b, by multiplication in columns of 16 bits. */
static void witness_product(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low) {
    const uint32_t a0 = a & 0xffff, a1 = a >> 16, b0 = b & 0xffff, b1 = b >> 16;
    const uint32_t column0 = a0 * b0, cross = a1 * b0, other = a0 * b1;
    const uint32_t column1 = (column0 >> 16) + (cross & 0xffff) + (other & 0xffff);
    *low = column1 << 16 | (column0 & 0xffff);
    *high = a1 * b1 + (cross >> 16) + (other >> 16) + (column1 >> 16);
}

/* word 0 ... 3 of the output. */
static void witness_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t word[4]) {
    uint32_t left[2] = {counter[1], counter[3]}, right[2] = {counter[0], counter[2]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint32_t high[2], low[2];
        witness_product(right[0], 0xD2511F53, &high[0], &low[0]);
        witness_product(right[1], 0xCD9E8D57, &high[1], &low[1]);
        right[0] = high[1] ^ left[0] ^ k[0];
        right[1] = high[0] ^ left[1] ^ k[1];
        left[0] = low[1];
        left[1] = low[0];
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    word[0] = right[0];
    word[1] = left[0];
    word[2] = right[1];
    word[3] = left[1];
}

/* The draw of an element as docs/semantics.md defines it: key = the tensor's seed, counter = (number of the write,
 * element / 4), word = element mod 4; low words first. */
static inline uint32_t witness_draw(uint64_t seed, uint64_t write, int64_t element) {
    const uint64_t of = (uint64_t)element / 4;
    const uint32_t counter[4] = {(uint32_t)of, (uint32_t)(of >> 32), (uint32_t)write, (uint32_t)(write >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    witness_philox(counter, key, word);
    return word[element % 4];
}

#endif
