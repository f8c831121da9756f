/* autoflex.h - choosing the shared exponent of a tensor before its values exist.
 *
 * This module computes with plain numbers and knows neither tensors nor kernels. A tensor of a shared-exponent format
 * owns one struct autoflex; the library calls the functions below around every write (docs/semantics.md, "A write"):
 *
 *     autoflex_adjust(&a);                     before the write: the exponent from the history
 *     ... the operation runs with a.e, and returns gamma and the true maximum ...
 *     autoflex_record(&a, gamma, maximum);     after the write
 *
 * A mantissa m under exponent e has the value m * 2^-e. Gamma is the largest |mantissa| of one write, after rounding
 * and saturation; phi = gamma * 2^-e. N = 16 mantissa bits and top = 32767, unless autoflex_set_bits says otherwise:
 * what is said below of 14, 15 and 32767 then holds of N - 2, N - 1 and 2^(N-1) - 1, and the margin of "paper" and
 * "ngraph", 100 units of 2^-e, is one of 100 * 2^(N-16) units. Gamma and maxima are those of finite results; the
 * functions below ignore a maximum that is not finite, and leave the state as it is.
 *
 * Elements that are floats (autoflex_set_largest) have no mantissa: the exact maximum takes the place of phi, gamma is
 * not read, and every rule chooses the largest e at which its maximum, times 2^e, is at most the largest element.
 *
 * Source: Koster et al., "Flexpoint", NIPS 2017 (arXiv 1711.02213), sections 3.2 to 3.7. */
#ifndef FLEXLAB_AUTOFLEX_H
#define FLEXLAB_AUTOFLEX_H

#include "flexlab/api.h"
#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AUTOFLEX_BITS = 16, AUTOFLEX_TOP = 32767, AUTOFLEX_WINDOW = 16, AUTOFLEX_START = 8, AUTOFLEX_RANGE = 1100 };
enum { AUTOFLEX_LEAST_BITS = 4 };

/* Predictors by number: stable, never reused; part of a saved state. */
typedef int32_t autoflex_predictor;
enum {
    AUTOFLEX_NONE = 0,
    AUTOFLEX_PAPER = 1,       /* Koster et al. 2017, algorithm 2 */
    AUTOFLEX_NGRAPH = 2,      /* the behaviour of its authors' graph compiler */
    AUTOFLEX_CURRENT = 3,     /* the exact maximum of the result itself (DFP-16: Das et al. 2018) */
    AUTOFLEX_FIXED = 4,       /* never changes the exponent */
    AUTOFLEX_PER_CLASS = 5,   /* the maximum of the history times a factor of the tensor's role */
    AUTOFLEX_AMAX = 6,        /* the maximum of some 1,000 writes: delayed scaling */
    AUTOFLEX_AMAX_RECENT = 7, /* the maximum of the last write */
    AUTOFLEX_REPEAT = 8,      /* small margin over the history; a result that does not fit is computed again */
    AUTOFLEX_DELAYED = 9,     /* delayed scaling as TransformerEngine has it; with other parameters than its own: */
    AUTOFLEX_ADDED = 64,      /* the first that a program adds */
    AUTOFLEX_DELAYED_WITH = 0x1000000 /* and above: "delayed:history=N:margin=N:algo=ALGO", from its parameters */
};

/* The role of a tensor in training, for predictors that use it; 0 if it is not set. Stable, as predictors are. */
typedef int32_t autoflex_role;
enum {
    AUTOFLEX_ROLE_NONE = 0,
    AUTOFLEX_ROLE_WEIGHT = 1,
    AUTOFLEX_ROLE_ACTIVATION = 2,
    AUTOFLEX_ROLE_GRADIENT = 3, /* of an activation */
    AUTOFLEX_ROLE_WEIGHT_GRADIENT = 4,
    AUTOFLEX_ROLE_MOMENTUM = 5, /* and other averages of gradients */
    AUTOFLEX_ROLE_LAST = 5
};

/* "amax" stores the maxima of 16 blocks, each of this many writes; "delayed" those of 16 blocks of 1/16 of its history,
 * of at most AUTOFLEX_WINDOW writes each of them. */
enum { AUTOFLEX_BLOCK = 64, AUTOFLEX_HISTORY = 1024, AUTOFLEX_LONGEST_HISTORY = 16384, AUTOFLEX_LARGEST_MARGIN = 32 };

/* The state of one tensor. Plain data of one layout in C and CUDA: copy it to save it, it is part of a checkpoint. */
struct autoflex {
    int16_t predictor;               /* an autoflex_predictor */
    int16_t role;                    /* an autoflex_role */
    int32_t e;                       /* the shared exponent in force */
    int32_t e_min, e_max;            /* the format's range of e */
    int32_t initialised;             /* 1: a non-zero write or load has settled e */
    int16_t written;                 /* 1: written since e was last set, so that the next write adjusts */
    int16_t block;                   /* "amax", "delayed": writes in the newest block */
    int32_t count;                   /* entries in the history */
    int16_t next;                    /* index of the next entry */
    int16_t bits;                    /* mantissa bits; 0: AUTOFLEX_BITS */
    double history[AUTOFLEX_WINDOW]; /* phi of the last writes */
    double predicted;                /* the maximum for which the last adjust chose e; 0 before the first */
    uint64_t overflows;              /* writes with gamma >= top, or a maximum above the largest element */
    uint64_t clamped_low;            /* times that the wanted exponent was below the range (values too large) */
    uint64_t clamped_high;           /* ... above it (values too small) */
    uint64_t zero_writes;            /* writes whose true maximum was 0: they record nothing */
    double largest;                  /* of elements that are floats; 0: mantissas */
    int16_t length;                  /* "delayed": writes of its history */
    int16_t margin;                  /* "delayed": powers of two between maximum and range */
    int16_t most_recent;             /* "delayed": 1 for algo=most_recent */
    int16_t unused;
};

/* Looks up "paper", "ngraph", "current", "fixed", "per-class", "amax", "amax-recent", "repeat", "delayed" or an added
 * one; AUTOFLEX_NONE for any other name.
 *
 * "delayed" may have parameters, in any order: "delayed:history=16:margin=1:algo=most_recent". history, 1024 if it is
 * not given: the writes whose largest maximum must fit, 1 to 16 or a multiple of 16 up to 16384; margin, else 0: the
 * maximum is taken 2^margin times as large, 0 to 32; algo, else max: most_recent takes the maximum of the last write
 * alone. */
FLEXLAB_API autoflex_predictor autoflex_find(const char *name);
/* The same, with TENSOR_E_ARGUMENT and a message that names what was expected and, in parameters, where. */
FLEXLAB_API tensor_status autoflex_parse(autoflex_predictor *predictor, const char *name);
/* The predictor of a state, with its parameters; a->predictor is AUTOFLEX_DELAYED whatever these are. */
FLEXLAB_API autoflex_predictor autoflex_predictor_of(const struct autoflex *a);
/* The number of predictors, and the i-th; AUTOFLEX_NONE past the last. For lists in help texts and tests; parameters of
 * "delayed" make no entry. */
FLEXLAB_API int autoflex_count(void);
FLEXLAB_API autoflex_predictor autoflex_at(int i);
/* The name of a predictor, and a summary of it; NULL for any other number. */
FLEXLAB_API const char *autoflex_name(autoflex_predictor predictor);
FLEXLAB_API const char *autoflex_summary(autoflex_predictor predictor);

/* Adds a predictor of the program's own. The library calls predict before a write, with a history that is not empty, on
 * the thread that runs the write; predict returns the maximum that must fit, and must return the same for the same
 * state: e becomes the largest exponent at which it fits, 14 - floor(log2 maximum) of mantissas. If it returns 0 or
 * less, e does not change. name: 1 to 31 letters, digits and characters of "_-.+", copied. Returns the predictor's
 * number, valid for the rest of the process; AUTOFLEX_NONE, with TENSOR_E_ARGUMENT and its message (status.h), if the
 * name is taken or malformed, predict is NULL, or 64 predictors were added already. Only tensors on the host can use
 * it. */
typedef double (*autoflex_predict_fn)(const struct autoflex *a, void *context);
FLEXLAB_API autoflex_predictor autoflex_add(const char *name, autoflex_predict_fn predict, void *context);

/* Predictors for a program that is already compiled, such as `flexlab`: a shared library that defines a function of
 * type autoflex_plugin_fn named flexlab_predictors, which calls add as it would autoflex_add (docs/autoflex.md). */
typedef autoflex_predictor (*autoflex_add_fn)(const char *name, autoflex_predict_fn predict, void *context);
typedef void (*autoflex_plugin_fn)(autoflex_add_fn add);

/* Finds a role by name: AUTOFLEX_ROLE_WEIGHT ... for "weight", "activation", "gradient", "weight gradient", "momentum"
 * (and "root" and "direction", which are kinds of momentum); AUTOFLEX_ROLE_NONE for any other name. */
FLEXLAB_API autoflex_role autoflex_find_role(const char *name);

/* True for a predictor that takes the exponent from the result itself ("current"): the caller measures the maximum
 * first and calls autoflex_fit. */
FLEXLAB_API bool autoflex_needs_maximum(autoflex_predictor predictor);

/* Sets an empty state: e = 8 (clamped to the range), nothing recorded. TENSOR_E_ARGUMENT, with *a unchanged, for a
 * number that is no predictor's, e_min above e_max, and exponents beyond +-AUTOFLEX_RANGE, which no double needs. */
FLEXLAB_API tensor_status autoflex_reset(struct autoflex *a, autoflex_predictor predictor, int e_min, int e_max);
/* Sets the number of mantissa bits of an empty state. TENSOR_E_ARGUMENT outside AUTOFLEX_LEAST_BITS ... 16. */
FLEXLAB_API tensor_status autoflex_set_bits(struct autoflex *a, int bits);
/* Sets the largest element of an empty state whose elements are floats: 448 of e4m3fn. TENSOR_E_ARGUMENT unless it is
 * finite and above 0. */
FLEXLAB_API tensor_status autoflex_set_largest(struct autoflex *a, double largest);

/* Call it after a load of host values: e = 14 - floor(log2 maximum), the history starts anew, and the load is recorded
 * as the first write. A maximum of 0 leaves the tensor uninitialised, at e = 8 as a new one (a predictor that never
 * changes e, or takes it from the result itself, preserves e). The caller must refuse maxima that are not finite. */
FLEXLAB_API void autoflex_load(struct autoflex *a, double maximum);
/* The exponent that autoflex_load would choose, without changing anything but the clamp counters. */
FLEXLAB_API int autoflex_load_exponent(struct autoflex *a, double maximum);

/* Before a write: sets e from the history if the tensor was written since e was last set. Returns e. */
FLEXLAB_API int autoflex_adjust(struct autoflex *a);

/* The first write of an uninitialised tensor, given the exact maximum of the result: runs the initialisation loop of
 * Flexpoint on that number; for elements that are floats e is that of autoflex_fit. Returns e. A maximum of 0 leaves
 * the tensor uninitialised; "fixed" preserves its e. */
FLEXLAB_API int autoflex_initialise(struct autoflex *a, double maximum);

/* "current": sets e to the largest exponent in range for which round(maximum * 2^e) <= 32767, or maximum * 2^e at most
 * the largest float. A maximum of 0 does not change e. Returns e. */
FLEXLAB_API int autoflex_fit(struct autoflex *a, double maximum);

/* "repeat", after an attempt at a->e: returns true if the write must be made again because its exact maximum does not
 * fit; a->e is then the largest exponent at which it does. False for every other predictor. Call it before
 * autoflex_record, which is for the attempt that remains. */
FLEXLAB_API bool autoflex_repeat(struct autoflex *a, double maximum);

/* After a write: gamma (0 ... 32767) and the true maximum before rounding and saturation. A true maximum of 0, or one
 * that is not finite, records nothing. gamma 0 with a maximum above 0 records the maximum itself. */
FLEXLAB_API void autoflex_record(struct autoflex *a, int gamma, double maximum);

/* floor(log2 x) for x > 0, from the bits of x: powers of two come out exact. */
FLEXLAB_API int autoflex_floor_log2(double x);
/* ceil(log2 x), likewise. */
FLEXLAB_API int autoflex_ceil_log2(double x);

#ifdef __cplusplus
}
#endif
#endif
