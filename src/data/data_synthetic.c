/* data_synthetic.c - the generated default set: ten kinds of shapes, 32x32 in colour.
 *
 * An image is painted back to front: a background with gradient, soft patches and stripes; clutter; one shape, whose
 * kind is the class, with random position, size, tilt, stretch, colours and filling; a little clutter over it; noise.
 * The shapes are their own mirror images, so mirroring is a fair augmentation. Positions vary and a quarter of the
 * shapes are darker than their background, so a single pixel has little information: of the test images a linear
 * classifier gets about 26 %, a two-layer perceptron 57 %, a six-layer convolutional network 95 % after a few epochs.
 *
 * The bytes are part of the definition: binary32 arithmetic of only +, -, *, / and square root, each rounded as in IEEE
 * 754, no library function, and draws keyed by (seed, split, image). So the bytes are the same on every machine and for
 * any number of threads, image i does not depend on how many follow it, and any ten images 10k ... 10k+9 hold each
 * class once. */
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "core/arithmetic/philox.h"
#include "data/data_internal.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, PIXELS = SIDE * SIDE, CHANNELS = 3, CLASSES = 10, PART_IMAGES = 50 };
enum { DEFAULT_TRAIN = 20000, DEFAULT_TEST = 4000, MAX_COUNT = 10000000 };

/* --- draws ------------------------------------------------------------------------------------------------- */

/* Separates these draws from those of other users of the same seed ("flexdata"). */
#define SYNTHETIC_KEY UINT64_C(0x666C657864617461)
/* The second counter word of an image's draws; the purpose in bits 60-62, the split in bit 63. */
enum { DRAW_SCENE = 0, DRAW_NOISE = 1, DRAW_LABELS = 2 };

struct draws {
    uint64_t key, stream, next;
    struct fl_philox block;
};

static struct draws draws_of(uint64_t seed, data_split split, int purpose, int64_t index) {
    return (struct draws){.key = seed ^ SYNTHETIC_KEY,
                          .stream = (uint64_t)split << 63 | (uint64_t)purpose << 60 | (uint64_t)index};
}

static uint32_t draw_word(struct draws *d) {
    if (d->next % 4 == 0)
        d->block = fl_philox(d->key, d->stream, d->next / 4);
    return d->block.word[d->next++ % 4];
}

/* Uniform in [low, high): 24 bits. */
static float draw_between(struct draws *d, float low, float high) {
    return low + (high - low) * ((float)(draw_word(d) >> 8) * 0x1p-24f);
}

/* 0 ... n-1 */
static int draw_below(struct draws *d, int n) {
    return (int)((uint64_t)draw_word(d) * (uint64_t)n >> 32);
}

/* A uniform direction, by rejection from the square (von Neumann 1951). */
static void draw_direction(struct draws *d, float *cosine, float *sine) {
    float x, y, r;
    do {
        x = draw_between(d, -1.0f, 1.0f);
        y = draw_between(d, -1.0f, 1.0f);
        r = x * x + y * y;
    } while (r > 1.0f || r < 0.01f);
    r = sqrtf(r);
    *cosine = x / r;
    *sine = y / r;
}

/* --- shapes: the margin by which (u, v) lies inside, in units of the shape's radius ------------------------ */

static float least(float a, float b) {
    return a < b ? a : b;
}
static float most(float a, float b) {
    return a > b ? a : b;
}
static float magnitude(float a) {
    return a < 0.0f ? -a : a;
}

static float disc(float u, float v) {
    return 0.85f - sqrtf(u * u + v * v);
}
static float ring(float u, float v) {
    return 0.2f - magnitude(sqrtf(u * u + v * v) - 0.75f);
}
static float square(float u, float v) {
    return 0.75f - most(magnitude(u), magnitude(v));
}
static float frame(float u, float v) {
    return 0.19f - magnitude(most(magnitude(u), magnitude(v)) - 0.65f);
}
static float triangle(float u, float v) {
    return 0.52f - most(-v, most(0.8660254f * u + 0.5f * v, -0.8660254f * u + 0.5f * v));
}
static float cross(float u, float v) {
    u = magnitude(u), v = magnitude(v);
    return most(least(0.26f - u, 0.95f - v), least(0.95f - u, 0.26f - v));
}
static float bars(float u, float v) {
    return least(0.21f - magnitude(magnitude(u) - 0.52f), 0.85f - magnitude(v));
}
/* Five half-planes; a point is inside a pentagram if it is in at least four, so the second least margin decides. */
static float star(float u, float v) {
    static const float normal[5][2] = {{0.0f, 1.0f},
                                       {0.95105652f, 0.30901699f},
                                       {0.58778525f, -0.80901699f},
                                       {-0.58778525f, -0.80901699f},
                                       {-0.95105652f, 0.30901699f}};
    float first = 9.0f, second = 9.0f;
    for (int i = 0; i < 5; i++) {
        float margin = 0.34f - (normal[i][0] * u + normal[i][1] * v);
        second = least(second, most(first, margin));
        first = least(first, margin);
    }
    return second;
}
static float crescent(float u, float v) {
    float w = v - 0.5f;
    return least(0.9f - sqrtf(u * u + v * v), sqrtf(u * u + w * w) - 0.62f);
}
static float tee(float u, float v) {
    return most(least(0.85f - magnitude(u), 0.24f - magnitude(v + 0.56f)),
                least(0.24f - magnitude(u), 0.8f - magnitude(v)));
}
/* Used for clutter only. */
static float blob(float u, float v) {
    return 1.0f - sqrtf(u * u + v * v);
}
static float stick(float u, float v) {
    return least(1.0f - magnitude(u), 0.12f - magnitude(v));
}

typedef float shape(float u, float v);
static shape *const class_shape[CLASSES] = {disc, ring, square, frame, triangle, cross, bars, star, crescent, tee};

/* --- painting ---------------------------------------------------------------------------------------------- */

struct canvas {
    float value[PIXELS][CHANNELS];
};

struct place {
    float x, y, radius, cosine, sine, stretch;
};

enum filling { FLAT, STRIPES, CHECKS, SHADED, FILLINGS };
struct paint {
    enum filling filling;
    float frequency, phase;
    float colour[2][CHANNELS]; /* main and second */
};

/* Period 2, from 0 at even to 1 at odd integers. t > -1000. */
static float wave(float t) {
    t = (t + 1000.0f) * 0.5f;
    t -= (float)(int)t;
    return t < 0.5f ? 2.0f * t : 2.0f - 2.0f * t;
}

static float clamp_unit(float t) {
    return least(1.0f, most(0.0f, t));
}

/* The share of the second colour in a filling at (u, v). */
static float second_share(const struct paint *p, float u, float v) {
    float a = wave(u * p->frequency + p->phase) - 0.5f;
    switch (p->filling) {
    case STRIPES:
        return clamp_unit(0.5f + 3.0f * a);
    case CHECKS:
        return clamp_unit(0.5f + 9.0f * a * (wave(v * p->frequency + p->phase) - 0.5f) * 2.0f);
    case SHADED:
        return clamp_unit(0.5f + 0.5f * u);
    default:
        return 0.0f;
    }
}

static void paint_shape(struct canvas *canvas, shape *inside, const struct place *at, const struct paint *p) {
    float reach = at->radius * 1.5f + 1.0f;
    int left = (int)most(0.0f, at->x - reach), right = (int)least(SIDE - 1.0f, at->x + reach);
    int top = (int)most(0.0f, at->y - reach), bottom = (int)least(SIDE - 1.0f, at->y + reach);
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) {
            float dx = (float)x - at->x, dy = (float)y - at->y;
            if (dx * dx + dy * dy > reach * reach)
                continue;
            float u = (dx * at->cosine + dy * at->sine) / (at->radius * at->stretch);
            float v = (dy * at->cosine - dx * at->sine) * at->stretch / at->radius;
            float cover = clamp_unit(inside(u, v) * at->radius + 0.5f);
            if (cover == 0.0f)
                continue;
            float second = second_share(p, u, v);
            float *value = canvas->value[y * SIDE + x];
            for (int c = 0; c < CHANNELS; c++) {
                float colour = p->colour[0][c] + second * (p->colour[1][c] - p->colour[0][c]);
                value[c] += cover * (colour - value[c]);
            }
        }
}

static void paint_background(struct canvas *canvas, struct draws *d, const float *base) {
    enum { CELLS = 4, CELL = SIDE / CELLS };
    float lattice[CELLS + 1][CELLS + 1][CHANNELS], gx[CHANNELS], gy[CHANNELS], stripe[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        gx[c] = draw_between(d, -1.2f, 1.2f);
        gy[c] = draw_between(d, -1.2f, 1.2f);
        stripe[c] = draw_between(d, -16.0f, 16.0f);
    }
    for (int i = 0; i <= CELLS; i++)
        for (int j = 0; j <= CELLS; j++) {
            float grey = draw_between(d, -22.0f, 22.0f);
            for (int c = 0; c < CHANNELS; c++)
                lattice[i][j][c] = grey + draw_between(d, -12.0f, 12.0f);
        }
    float cosine, sine;
    float frequency = draw_between(d, 0.15f, 0.6f);
    float phase = draw_between(d, 0.0f, 2.0f);
    draw_direction(d, &cosine, &sine);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int i = y / CELL, j = x / CELL;
            float fy = (float)(y % CELL) * (1.0f / CELL), fx = (float)(x % CELL) * (1.0f / CELL);
            float w = wave(((float)x * cosine + (float)y * sine) * frequency + phase) - 0.5f;
            for (int c = 0; c < CHANNELS; c++) {
                float top = lattice[i][j][c] + fx * (lattice[i][j + 1][c] - lattice[i][j][c]);
                float bottom = lattice[i + 1][j][c] + fx * (lattice[i + 1][j + 1][c] - lattice[i + 1][j][c]);
                canvas->value[y * SIDE + x][c] = base[c] + (top + fy * (bottom - top)) + stripe[c] * w +
                                                 gx[c] * ((float)x - 15.5f) + gy[c] * ((float)y - 15.5f);
            }
        }
}

static void paint_clutter(struct canvas *canvas, struct draws *d, int pieces) {
    for (int k = 0; k < pieces; k++) {
        struct place at = {.stretch = 1.0f};
        struct paint p = {.filling = FLAT};
        at.x = draw_between(d, 0.0f, 31.0f);
        at.y = draw_between(d, 0.0f, 31.0f);
        bool round = draw_below(d, 2);
        at.radius = round ? draw_between(d, 1.2f, 2.8f) : draw_between(d, 4.0f, 9.0f);
        draw_direction(d, &at.cosine, &at.sine);
        for (int c = 0; c < CHANNELS; c++)
            p.colour[0][c] = draw_between(d, 20.0f, 235.0f);
        paint_shape(canvas, round ? blob : stick, &at, &p);
    }
}

/* Noise of every value: the sum of two uniform bytes, centred; its standard deviation is 104.5 before scaling. */
static void finish(const struct canvas *canvas, struct draws noise, float amplitude, uint8_t *image) {
    const float *value = &canvas->value[0][0];
    float scale = amplitude / 104.5f;
    for (int i = 0; i < PIXELS * CHANNELS; i += 2) {
        uint32_t word = draw_word(&noise);
        for (int k = 0; k < 2; k++, word >>= 16) {
            float sum = (float)(int)((word & 0xFF) + (word >> 8 & 0xFF)) - 255.0f;
            float t = value[i + k] + scale * sum + 0.5f;
            image[i + k] = t <= 0.0f ? 0 : t >= 255.0f ? 255 : (uint8_t)(int)t;
        }
    }
}

static void paint_image(uint64_t seed, data_split split, int64_t index, int label, uint8_t *image) {
    struct draws d = draws_of(seed, split, DRAW_SCENE, index);
    struct canvas canvas;
    float base[CHANNELS];
    float grey = draw_between(&d, 70.0f, 185.0f);
    for (int c = 0; c < CHANNELS; c++)
        base[c] = grey + draw_between(&d, -45.0f, 45.0f);
    paint_background(&canvas, &d, base);
    paint_clutter(&canvas, &d, 1 + draw_below(&d, 3));

    struct place at;
    at.radius = draw_between(&d, 8.0f, 13.0f);
    at.stretch = draw_between(&d, 0.88f, 1.13f);
    at.x = 15.5f + draw_between(&d, -1.0f, 1.0f) * (14.5f - at.radius);
    at.y = 15.5f + draw_between(&d, -1.0f, 1.0f) * (14.5f - at.radius);
    float slope = draw_between(&d, -0.6f, 0.6f);
    at.cosine = 1.0f / sqrtf(1.0f + slope * slope);
    at.sine = slope * at.cosine;
    struct paint p;
    p.filling = draw_below(&d, FILLINGS);
    p.frequency = draw_between(&d, 2.0f, 4.5f);
    p.phase = draw_between(&d, 0.0f, 2.0f);
    float sign = draw_below(&d, 4) ? 1.0f : -1.0f;
    float contrast = draw_between(&d, 30.0f, 85.0f);
    for (int c = 0; c < CHANNELS; c++) {
        p.colour[0][c] = base[c] + sign * contrast + draw_between(&d, -28.0f, 28.0f);
        p.colour[1][c] = p.colour[0][c] + draw_between(&d, -28.0f, 28.0f);
        p.colour[1][c] += contrast * draw_between(&d, -0.3f, 0.3f);
    }
    paint_shape(&canvas, class_shape[label], &at, &p);
    paint_clutter(&canvas, &d, draw_below(&d, 2));
    finish(&canvas, draws_of(seed, split, DRAW_NOISE, index), draw_between(&d, 4.0f, 28.0f), image);
}

/* --- the set ----------------------------------------------------------------------------------------------- */

struct job {
    data_set *set;
    uint64_t seed;
    data_split split;
};

/* Labels are in blocks of ten, each a permutation of the classes. */
static void block_labels(const struct job *job, int64_t block, uint8_t *labels) {
    struct draws d = draws_of(job->seed, job->split, DRAW_LABELS, block);
    for (int i = 0; i < CLASSES; i++) {
        int j = draw_below(&d, i + 1);
        labels[i] = labels[j];
        labels[j] = (uint8_t)i;
    }
}

static void paint_part(void *context, int part, int worker) {
    (void)worker;
    const struct job *job = context;
    data_set *set = job->set;
    uint8_t labels[CLASSES] = {0};
    int64_t end = ((int64_t)part + 1) * PART_IMAGES;
    for (int64_t i = (int64_t)part * PART_IMAGES; i < end && i < set->count; i++) {
        if (i % CLASSES == 0)
            block_labels(job, i / CLASSES, labels);
        set->labels[i] = labels[i % CLASSES];
        paint_image(job->seed, job->split, i, set->labels[i], set->pixels + i * PIXELS * CHANNELS);
    }
}

/* "train=N,test=N,seed=S" in any order, each at most once. */
static tensor_status parse_options(const char *text, uint64_t values[3]) {
    static const struct {
        const char *name;
        uint64_t low, high;
    } options[3] = {{"train", 1, MAX_COUNT}, {"test", 1, MAX_COUNT}, {"seed", 0, UINT64_MAX}};
    bool seen[3] = {false};
    for (const char *p = text;; p++) {
        int length = (int)strcspn(p, ",");
        int name = (int)strcspn(p, "=,");
        int o = 0;
        while (o < 3 && !(name < length && (int)strlen(options[o].name) == name && !memcmp(options[o].name, p, name)))
            o++;
        if (o == 3)
            return fl_fail(TENSOR_E_ARGUMENT, "synthetic: option '%.*s', expected train=N, test=N or seed=S", length,
                           p);
        if (seen[o])
            return fl_fail(TENSOR_E_ARGUMENT, "synthetic: option %s is given twice", options[o].name);
        seen[o] = true;
        const char *digits = p + name + 1;
        size_t count = strspn(digits, "0123456789");
        errno = 0;
        values[o] = strtoull(digits, NULL, 10);
        if (!count || digits + count != p + length || errno || values[o] < options[o].low ||
            values[o] > options[o].high)
            return fl_fail(TENSOR_E_ARGUMENT, "synthetic: option '%.*s', expected a whole number from %llu to %llu",
                           length, p, (unsigned long long)options[o].low, (unsigned long long)options[o].high);
        p += length;
        if (!*p)
            return TENSOR_OK;
    }
}

tensor_status fl_data_open_synthetic(data_set **set, const char *rest, data_split split) {
    uint64_t values[3] = {DEFAULT_TRAIN, DEFAULT_TEST, 0};
    if (rest) {
        tensor_status status = parse_options(rest, values);
        if (status)
            return status;
    }
    data_set *s = NULL;
    int64_t count = (int64_t)values[split];
    tensor_status status = fl_data_new(&s, "synthetic", count, SIDE, SIDE, CHANNELS, CLASSES);
    if (status)
        return status;
    struct job job = {s, values[2], split};
    fl_parallel((int)((count + PART_IMAGES - 1) / PART_IMAGES), paint_part, &job);
    *set = s;
    return TENSOR_OK;
}
