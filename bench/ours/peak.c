/* peak.c - independent chains of fused multiply-adds in registers: latency 4 on 2 pipes wants 8 chains or more. */
#include "peak.h"
#include <pthread.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { CHAINS = 12, MOST_THREADS = 256 };

static float (*chains)(long steps);
static long chain_steps;

#ifdef __x86_64__

/* noinline, and the sum leaves the function: the compiler may not drop a chain. */
#define PEAK(NAME, TARGET, VECTOR, SET, FMA, STORE)                                                                    \
    __attribute__((target(TARGET), noinline)) static float NAME(long steps) {                                          \
        VECTOR chain[CHAINS];                                                                                          \
        const VECTOR x = SET(0.999f), y = SET(1e-3f);                                                                  \
        for (int i = 0; i < CHAINS; i++)                                                                               \
            chain[i] = SET((float)i);                                                                                  \
        for (long step = 0; step < steps; step++)                                                                      \
            for (int i = 0; i < CHAINS; i++)                                                                           \
                chain[i] = FMA(chain[i], x, y);                                                                        \
        float sum = 0, lanes[sizeof(VECTOR) / sizeof(float)];                                                          \
        for (int i = 0; i < CHAINS; i++) {                                                                             \
            STORE(lanes, chain[i]);                                                                                    \
            sum += lanes[0];                                                                                           \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
PEAK(chains_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
PEAK(chains_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps)

bool peak_prepare(const char *isa, double products) {
    const bool wide = !strcmp(isa, "avx512") && __builtin_cpu_supports("avx512f");
    const bool narrow = !strcmp(isa, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    chains = wide ? chains_avx512 : narrow ? chains_avx2 : NULL;
    chain_steps = (long)(products / (CHAINS * (wide ? 16 : 8)));
    return chains;
}

#else

bool peak_prepare(const char *isa, double products) {
    (void)isa;
    (void)products;
    return false;
}

#endif

/* --- one piece of work on each thread ----------------------------------------------------------------------------- */

struct piece {
    void (*work)(struct piece *piece);
    char *to;
    const char *from;
    size_t bytes;
    float sum;
};

static void *run_piece(void *pointer) {
    struct piece *piece = pointer;
    piece->work(piece);
    return NULL;
}

static void run_pieces(struct piece *pieces, int threads) {
    pthread_t helper[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    for (int i = 1; i < threads; i++)
        started[i] = !pthread_create(&helper[i], NULL, run_piece, &pieces[i]);
    run_piece(&pieces[0]);
    for (int i = 1; i < threads; i++) {
        if (started[i])
            pthread_join(helper[i], NULL);
        else
            run_piece(&pieces[i]);
    }
}

static void work_chains(struct piece *piece) {
    piece->sum = chains(chain_steps);
}

static void work_copy(struct piece *piece) {
    memcpy(piece->to, piece->from, piece->bytes);
}

void peak_run(int threads) {
    struct piece pieces[MOST_THREADS];
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    for (int i = 0; i < threads; i++)
        pieces[i] = (struct piece){.work = work_chains};
    run_pieces(pieces, threads);
}

void peak_copy(void *to, const void *from, size_t bytes, int threads) {
    struct piece pieces[MOST_THREADS];
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    for (int i = 0; i < threads; i++) {
        const size_t begin = bytes / (size_t)threads * (size_t)i;
        const size_t end = i + 1 == threads ? bytes : bytes / (size_t)threads * (size_t)(i + 1);
        pieces[i] = (struct piece){work_copy, (char *)to + begin, (const char *)from + begin, end - begin, 0};
    }
    run_pieces(pieces, threads);
}
