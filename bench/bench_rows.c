/* Operations on rows beside memcpy: <format>.<operation>, nanoseconds an element, and how many times as long as a
 * memcpy of as many elements of that format that is, fastest of repeated runs. The shapes are those of a small
 * transformer: rows of 192 channels, attention over 128 positions, heads of 32; images of 16 x 16 pixels of 64
 * channels.
 *
 *     bench_rows [FILTER] [--threads N] [--batch N]      default: one thread, a batch of 4 */
#define _GNU_SOURCE
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    POSITIONS = 128,
    CHANNELS = 192,
    HEADS = 6,
    HEAD = CHANNELS / HEADS,
    WORDS = 512,
    SIDE = 16,
    DEPTH = 64,
    GROUPS = 8,
    RUNS = 15
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p) {
    if (!p) {
        fprintf(stderr, "bench_rows: %s\n", *tensor_error() ? tensor_error() : "out of memory");
        exit(1);
    }
    return p;
}

/* Nearly Gaussian, as activations are. */
static tensor *made(tensor *t, uint64_t seed) {
    const int64_t n = tensor_count(need(t));
    float *v = need(malloc((size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (int)(seed >> 48);
        }
        v[i] = (float)(sum - 131070) / 65536;
    }
    tensor_load_f32(t, v, n);
    free(v);
    return t;
}

/* The operands of all operations below. */
static struct {
    tensor *x, *y, *dy, *dx, *gamma, *beta, *dgamma, *dbeta; /* [batch positions, channels] */
    tensor *scores, *shares, *dscores;                       /* [batch heads, positions, positions] */
    tensor *split, *turned;                /* [batch, positions, heads, head], heads before positions */
    tensor *back, *table, *indices, *pair; /* positions last; words; two x side by side */
    tensor *step, *mask, *of_rows;         /* of dropout; of where, [batch positions, channels]; [batch positions] */
    tensor *image, *dimage, *pooled;       /* [4 batch, side, side, depth]; a quarter of its pixels */
    tensor *by_depth[4];                   /* [depth] */
} o;

static tensor_status layernorm(void) {
    return tensor_layernorm(o.y, o.x, o.gamma, o.beta, 1e-5);
}
static tensor_status layernorm_grad(void) {
    return tensor_layernorm_grad(o.dx, o.dgamma, o.dbeta, o.dy, o.x, o.gamma, 1e-5);
}
static tensor_status rmsnorm(void) {
    return tensor_rmsnorm(o.y, o.x, o.gamma, 1e-5);
}
static tensor_status softmax(void) {
    return tensor_softmax(o.shares, o.scores, 0.125f, false);
}
static tensor_status softmax_causal(void) {
    return tensor_softmax(o.shares, o.scores, 0.125f, true);
}
static tensor_status softmax_grad(void) {
    return tensor_softmax_grad(o.dscores, o.scores, o.shares, 0.125f, false);
}
static tensor_status log_softmax(void) {
    return tensor_log_softmax(o.dscores, o.scores, 1);
}
static tensor_status heads_forward(void) {
    return tensor_permute(o.turned, o.split, (int[]){0, 2, 1, 3});
}
static tensor_status positions_last(void) {
    return tensor_permute(o.back, o.split, (int[]){0, 2, 3, 1});
}
static tensor_status slice(void) {
    return tensor_slice(o.y, o.pair, 1, CHANNELS);
}
static tensor_status concat(void) {
    return tensor_concat(o.pair, o.x, o.dy, NULL, 1);
}
static tensor_status embedding(void) {
    return tensor_embedding(o.y, o.table, o.indices);
}
static tensor_status embedding_grad(void) {
    return tensor_embedding_grad(o.table, o.dy, o.indices);
}

static tensor_status dropout(void) {
    return tensor_dropout(o.y, o.x, 0.1f, 1, o.step);
}
static tensor_status broadcast_add(void) {
    return tensor_broadcast_add(o.y, o.x, o.beta);
}
static tensor_status broadcast_mul(void) {
    return tensor_broadcast_mul(o.y, o.x, o.gamma);
}
static tensor_status broadcast_mul_grad(void) {
    return tensor_broadcast_mul_grad(o.dgamma, o.dy, o.x);
}
static tensor_status choose(void) {
    return tensor_where(o.y, o.mask, o.x, o.dy);
}
static tensor_status mean_of_columns(void) {
    return tensor_reduce_mean(o.dgamma, o.x, 1);
}
static tensor_status mean_of_rows(void) {
    return tensor_reduce_mean(o.of_rows, o.x, 2);
}
static tensor_status max_of_rows(void) {
    return tensor_reduce_max(o.of_rows, o.x, 2);
}
static tensor_status max_of_rows_grad(void) {
    return tensor_reduce_max_grad(o.dx, o.of_rows, o.x, 2);
}
static tensor_status l2_of_rows(void) {
    return tensor_reduce_l2(o.of_rows, o.x, 2);
}
static tensor_status groupnorm(void) {
    return tensor_groupnorm(o.dimage, o.image, o.by_depth[0], o.by_depth[1], GROUPS, 1e-5);
}
static tensor_status groupnorm_grad(void) {
    return tensor_groupnorm_grad(o.dimage, o.by_depth[2], o.by_depth[3], o.image, o.image, o.by_depth[0], GROUPS, 1e-5);
}
static tensor_status lrn(void) {
    return tensor_lrn(o.dimage, o.image, 5, 1e-4f, 0.75f, 2);
}
static tensor_status lrn_grad(void) {
    return tensor_lrn_grad(o.dimage, o.image, o.image, 5, 1e-4f, 0.75f, 2);
}
static const tensor_window halves = {TENSOR_SQUARE(2, 2, 0)};
static tensor_status avgpool(void) {
    return tensor_avgpool2d(o.pooled, o.image, &halves, false);
}
static tensor_status avgpool_grad(void) {
    return tensor_avgpool2d_grad(o.dimage, o.pooled, &halves, false);
}
static tensor_status describe(void) {
    tensor_description ignored;
    return tensor_describe(&ignored, o.x);
}

static const struct {
    const char *name;
    tensor_status (*run)(void);
    tensor **counted; /* divides by their elements */
} rows[] = {{"layernorm", layernorm, &o.x},
            {"layernorm_grad", layernorm_grad, &o.x},
            {"rmsnorm", rmsnorm, &o.x},
            {"softmax", softmax, &o.scores},
            {"softmax_causal", softmax_causal, &o.scores},
            {"softmax_grad", softmax_grad, &o.scores},
            {"log_softmax", log_softmax, &o.scores},
            {"permute_heads", heads_forward, &o.split},
            {"permute_last", positions_last, &o.split},
            {"slice", slice, &o.y},
            {"concat", concat, &o.pair},
            {"embedding", embedding, &o.y},
            {"embedding_grad", embedding_grad, &o.dy},
            {"dropout", dropout, &o.x},
            {"broadcast_add", broadcast_add, &o.x},
            {"broadcast_mul", broadcast_mul, &o.x},
            {"broadcast_mul_grad", broadcast_mul_grad, &o.x},
            {"where", choose, &o.x},
            {"reduce_mean_columns", mean_of_columns, &o.x},
            {"reduce_mean_rows", mean_of_rows, &o.x},
            {"reduce_max_rows", max_of_rows, &o.x},
            {"reduce_max_rows_grad", max_of_rows_grad, &o.x},
            {"reduce_l2_rows", l2_of_rows, &o.x},
            {"groupnorm", groupnorm, &o.image},
            {"groupnorm_grad", groupnorm_grad, &o.image},
            {"lrn", lrn, &o.image},
            {"lrn_grad", lrn_grad, &o.image},
            {"avgpool2d", avgpool, &o.image},
            {"avgpool2d_grad", avgpool_grad, &o.image},
            {"describe", describe, &o.x}};

static void make(tensor_format f, int64_t batch) {
    const int64_t m = batch * POSITIONS;
    tensor **wide[] = {&o.x, &o.y, &o.dy, &o.dx};
    tensor **narrow[] = {&o.gamma, &o.beta, &o.dgamma, &o.dbeta};
    tensor **square[] = {&o.scores, &o.shares, &o.dscores};
    for (int i = 0; i < 4; i++) {
        *wide[i] = made(tensor_new(f, TENSOR_SHAPE(m, CHANNELS)), 1 + (uint64_t)i);
        *narrow[i] = made(tensor_new(f, TENSOR_SHAPE(CHANNELS)), 5 + (uint64_t)i);
    }
    for (int i = 0; i < 3; i++)
        *square[i] = made(tensor_new(f, TENSOR_SHAPE(batch * HEADS, POSITIONS, POSITIONS)), 9 + (uint64_t)i);
    o.split = made(tensor_new(f, TENSOR_SHAPE(batch, POSITIONS, HEADS, HEAD)), 12);
    o.turned = made(tensor_new(f, TENSOR_SHAPE(batch, HEADS, POSITIONS, HEAD)), 13);
    o.back = made(tensor_new(f, TENSOR_SHAPE(batch, HEADS, HEAD, POSITIONS)), 14);
    o.pair = made(tensor_new(f, TENSOR_SHAPE(m, 2 * CHANNELS)), 15);
    o.table = made(tensor_new(f, TENSOR_SHAPE(WORDS, CHANNELS)), 16);
    o.indices = need(tensor_new(FMT_I32, TENSOR_SHAPE(m)));
    int32_t *words = need(malloc((size_t)m * sizeof *words));
    uint64_t seed = 17;
    for (int64_t i = 0; i < m; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        words[i] = (int32_t)(seed >> 33) % WORDS;
    }
    tensor_load_i32(o.indices, words, m);
    free(words);
    o.of_rows = made(tensor_new(f, TENSOR_SHAPE(m)), 18);
    o.step = need(tensor_new(FMT_F64, TENSOR_SHAPE(1)));
    o.mask = need(tensor_new(FMT_U8, TENSOR_SHAPE(m, CHANNELS)));
    uint8_t *marks = need(malloc((size_t)(m * CHANNELS)));
    for (int64_t i = 0; i < m * CHANNELS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        marks[i] = (uint8_t)(seed >> 63);
    }
    tensor_load_u8(o.mask, marks, m * CHANNELS);
    free(marks);
    o.image = made(tensor_new(f, TENSOR_SHAPE(4 * batch, SIDE, SIDE, DEPTH)), 19);
    o.dimage = made(tensor_new(f, TENSOR_SHAPE(4 * batch, SIDE, SIDE, DEPTH)), 20);
    o.pooled = made(tensor_new(f, TENSOR_SHAPE(4 * batch, SIDE / 2, SIDE / 2, DEPTH)), 21);
    for (int i = 0; i < 4; i++)
        o.by_depth[i] = made(tensor_new(f, TENSOR_SHAPE(DEPTH)), 22 + (uint64_t)i);
}

static void free_all(void) {
    tensor *all[] = {o.x,      o.y,      o.dy,          o.dx,          o.gamma,       o.beta,       o.dgamma,
                     o.dbeta,  o.scores, o.shares,      o.dscores,     o.split,       o.turned,     o.back,
                     o.pair,   o.table,  o.indices,     o.of_rows,     o.step,        o.mask,       o.image,
                     o.dimage, o.pooled, o.by_depth[0], o.by_depth[1], o.by_depth[2], o.by_depth[3]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

/* The seconds of a memcpy of that tensor. */
static double copy_time(const tensor *t) {
    const size_t bytes = (size_t)tensor_count(t) * tensor_format_bytes(tensor_format_of(t));
    char *copy = need(malloc(bytes));
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        memcpy(copy, tensor_const_data(t), bytes);
        __asm__ volatile("" : : "r"(copy) : "memory");
        const double seconds = now() - start;
        best = i && seconds < best ? seconds : best;
    }
    free(copy);
    return best;
}

int main(int argc, char **argv) {
    const char *filter = "";
    int threads = 1;
    int64_t batch = 4;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--batch") && i + 1 < argc) {
            batch = atoll(argv[++i]);
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "usage: bench_rows [FILTER] [--threads N] [--batch N]\n");
            return 2;
        } else {
            filter = argv[i];
        }
    }
    if (tensor_set_threads(threads) || batch < 1 || batch > 1 << 16)
        return fprintf(stderr, "bench_rows: %s\n",
                       tensor_set_threads(threads) ? tensor_error() : "batch: expected 1 to 65536"),
               2;
    printf("threads %d, batch %lld; ns an element, times that of memcpy on one thread\n", tensor_threads(),
           (long long)batch);
    for (int k = 0; tensor_format_at(k); k++) {
        const tensor_format f = tensor_format_at(k);
        make(f, batch);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            char name[96];
            snprintf(name, sizeof name, "%s.%s", tensor_format_name(f), rows[r].name);
            if (!strstr(name, filter))
                continue;
            double best = 1e9;
            for (int i = 0; i < RUNS; i++) {
                const double start = now();
                if (rows[r].run())
                    return fprintf(stderr, "bench_rows: %s\n", tensor_error()), 1;
                const double seconds = now() - start;
                best = i && seconds < best ? seconds : best;
            }
            printf("%-28s %8.3f  %7.2fx\n", name, best / (double)tensor_count(*rows[r].counted) * 1e9,
                   best / copy_time(*rows[r].counted));
            fflush(stdout);
        }
        free_all();
    }
    return 0;
}
