/* stream.h - stores around the caches, for outputs far larger than these: a plain store would first read the lines that
 * it overwrites, up to half of the traffic. Compiled for the instruction set of the including file. */
#ifndef FL_STREAM_H
#define FL_STREAM_H

#include <stddef.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>

/* Addresses and size are multiples of 64 bytes. Call fl_stream_end before other threads read the output. */
static inline void fl_stream(void *to, const void *from, size_t bytes) {
    char *dst = to;
    const char *src = from;
    size_t at = 0;
    for (; at + 64 <= bytes; at += 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512((__m512i *)(dst + at), _mm512_load_si512(src + at));
#elif defined(__AVX2__)
        for (size_t i = at; i < at + 64; i += 32)
            _mm256_stream_si256((__m256i *)(dst + i), _mm256_load_si256((const __m256i *)(src + i)));
#else
        for (size_t i = at; i < at + 64; i += 16)
            _mm_stream_si128((__m128i *)(dst + i), _mm_load_si128((const __m128i *)(src + i)));
#endif
    }
    memcpy(dst + at, src + at, bytes - at);
}

static inline void fl_stream_end(void) {
    _mm_sfence();
}

#else

static inline void fl_stream(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

static inline void fl_stream_end(void) {}

#endif
#endif
