/* The predictors beside paper, ngraph and current: against the mathematical library on plain numbers, and on tensors.
 */
#include "check.h"
#include "flexlab/flexlab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- plain numbers ------------------------------------------------------------------------------------------------ */

enum { MOST_WRITES = 2500 };

/* The whole history that a predictor may use, oldest first. */
struct past {
    double phi[MOST_WRITES];     /* recorded, since the history last began anew */
    double maximum[MOST_WRITES]; /* exact, since the load */
    int count, writes;
};

static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static double largest_of(const double *x, int first, int end) {
    double largest = 0;
    for (int i = first < 0 ? 0 : first; i < end; i++)
        largest = fmax(largest, x[i]);
    return largest;
}

static double room_of(const char *name, int role, const struct past *p) {
    static const double factors[] = {2, 1.0625, 1.25, 1.5, 2, 1.5};
    if (!strcmp(name, "per-class"))
        return factors[role] * largest_of(p->phi, p->count - 16, p->count);
    if (!strcmp(name, "amax")) /* 16 blocks of 64 writes, the newest of them incomplete */
        return largest_of(p->maximum, ((p->writes - 1) / 64 - 15) * 64, p->writes);
    if (!strcmp(name, "amax-recent"))
        return p->maximum[p->writes - 1];
    double sorted[16];
    const int n = p->count < 16 ? p->count : 16;
    memcpy(sorted, p->phi + p->count - n, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    return 1.125 * sorted[n > 1];
}

static int clamped(int e, int low, int high) {
    return e < low ? low : e > high ? high : e;
}

/* Maxima that wander, jump, vanish and leave the range. */
static void life(const char *name, int role, int writes, uint64_t seed) {
    static struct past p;
    const bool repeats = !strcmp(name, "repeat"), amax = !strncmp(name, "amax", 4);
    const int low = seed % 2 ? 0 : -128, high = seed % 2 ? 31 : 127;
    struct autoflex a;
    double size = 0;
    int repeated = 0;
    autoflex_reset(&a, autoflex_find(name), low, high);
    a.role = (int16_t)role;
    autoflex_load(&a, 3);
    p.count = p.writes = 1;
    p.phi[0] = p.maximum[0] = 3;
    for (int i = 1; i < writes; i++) {
        const uint64_t pick = check_random(&seed) % 100;
        size =
            pick < 2 ? (double)(check_random(&seed) % 60) - 40 : size + (double)(check_random(&seed) % 2001) / 1000 - 1;
        const double maximum = pick > 97 ? 0 : exp2(size);
        const double room = room_of(name, role, &p);
        int want = clamped(14 - ilogb(room), low, high);
        const bool again = repeats && maximum > 0 && rint(ldexp(maximum, want)) > 32767 && want > low;
        for (; again && want > low && rint(ldexp(maximum, want)) > 32767; want--)
            ;
        autoflex_adjust(&a);
        const bool said = autoflex_repeat(&a, maximum);
        CHECK(a.e == want && said == again, "%s, role %d, write %d, maximum %a: e %d, again %d; expected %d, %d", name,
              role, i, maximum, a.e, said, want, again);
        const int gamma = (int)fmin(rint(ldexp(maximum, a.e)), 32767);
        const bool over = gamma == 32767 && !(repeats && rint(ldexp(maximum, a.e)) <= 32767);
        autoflex_record(&a, gamma, maximum);
        repeated += again;
        if (!(maximum > 0))
            continue;
        if (over && !amax)
            p.count = 0;
        p.phi[p.count++] = over ? 65534 * exp2(-a.e) : gamma ? gamma * exp2(-a.e) : maximum;
        p.maximum[p.writes++] = maximum;
    }
    CHECK(!repeats || repeated > 0, "%d of %d writes were made again", repeated, writes);
}

static void lives(void) {
    uint64_t seed = 5;
    for (int i = 0; i < 60; i++) {
        for (int role = 0; role <= AUTOFLEX_ROLE_LAST; role++)
            life("per-class", role, 300, check_random(&seed));
        life("repeat", 0, 300, check_random(&seed));
        life("amax-recent", 0, 300, check_random(&seed));
        life("amax", 0, MOST_WRITES, check_random(&seed));
    }
}

/* The number of writes with too few bits after one outlier. */
static int writes_to_recover(const char *name) {
    struct autoflex a;
    autoflex_reset(&a, autoflex_find(name), 0, 31);
    autoflex_load(&a, 1);
    for (int i = 0; i < 60; i++) {
        const double maximum = i == 30 ? 100 : 1;
        autoflex_adjust(&a);
        (void)autoflex_repeat(&a, maximum);
        const int gamma = (int)fmin(rint(ldexp(maximum, a.e)), 32767);
        autoflex_record(&a, gamma, maximum);
        if (i > 30 && gamma >= 4096)
            return i - 30;
    }
    return 60;
}

static void outliers(void) {
    const int paper = writes_to_recover("paper"), repeat = writes_to_recover("repeat");
    CHECK(paper == 17 && repeat == 1, "paper has its bits back at write %d after an outlier, repeat at %d", paper,
          repeat);
}

static void roles(void) {
    static const char *const names[] = {"weight", "activation", "gradient", "weight gradient", "momentum"};
    for (int i = 0; i < 5; i++)
        CHECK(autoflex_find_role(names[i]) == i + 1, "role %s is %d", names[i], (int)autoflex_find_role(names[i]));
    CHECK(!autoflex_find_role("weights") && !autoflex_find_role(NULL) && autoflex_find_role("root") == 5,
          "roles of other names");
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

enum { COUNT = 257 };

static double draw(uint64_t *seed) {
    return (double)(int64_t)check_random(seed) * 0x1p-63;
}

/* Writes under "repeat" are at the exponent that the history and the exact maximum give, and never saturate. In place,
 * too: the result is measured before operands are overwritten. */
static void repeats_in_tensors(const char *backend, tensor_format format, bool in_place) {
    static double a[COUNT], b[COUNT], sum[COUNT], got[COUNT];
    uint64_t seed = 99;
    int again = 0;
    CHECK(!tensor_set_backend(backend), "%s", tensor_error());
    tensor *x = tensor_new(format, TENSOR_SHAPE(COUNT)), *y = tensor_new(format, TENSOR_SHAPE(COUNT)),
           *z = tensor_new(format, TENSOR_SHAPE(COUNT)), *out = in_place ? x : z;
    CHECK(x && y && z && !tensor_set_predictor(out, "repeat"), "%s", tensor_error());
    for (int write = 0; write < 200; write++) {
        const double size = write % 20 == 19 ? 300 : exp2(2 * draw(&seed));
        for (int i = 0; i < COUNT; i++) {
            a[i] = draw(&seed) * size;
            b[i] = draw(&seed) * size;
        }
        if (!in_place || write == 0)
            CHECK(!tensor_load_f64(x, a, COUNT), "%s", tensor_error());
        CHECK(!tensor_load_f64(y, b, COUNT) && !tensor_store_f64(x, a, COUNT) && !tensor_store_f64(y, b, COUNT), "%s",
              tensor_error());
        struct autoflex want = *tensor_autoflex(out);
        double maximum = 0;
        for (int i = 0; i < COUNT; i++) {
            sum[i] = in_place ? b[i] - a[i] : a[i] + b[i];
            maximum = fmax(maximum, fabs(sum[i]));
        }
        CHECK(in_place ? !tensor_sub(out, y, x) : !tensor_add(out, x, y), "%s", tensor_error());
        if (want.initialised)
            autoflex_adjust(&want);
        else
            autoflex_initialise(&want, maximum);
        again += autoflex_repeat(&want, maximum);
        tensor_stats last;
        CHECK(!tensor_statistics(&last, NULL, out) && last.saturated == 0, "write %d: %lld saturated", write,
              (long long)last.saturated);
        autoflex_record(&want, last.gamma, maximum);
        CHECK(tensor_exponent(out) == want.e && !memcmp(tensor_autoflex(out), &want, sizeof want),
              "%s, write %d: exponent %d, expected %d", backend ? backend : "best", write, tensor_exponent(out),
              want.e);
        CHECK(!tensor_store_f64(out, got, COUNT), "%s", tensor_error());
        for (int i = 0; i < COUNT; i++)
            CHECK(got[i] == ldexp(rint(ldexp(sum[i], want.e)), -want.e), "write %d, element %d: %a, expected %a", write,
                  i, got[i], sum[i]);
    }
    CHECK(again > (in_place ? 0 : 5) && again < 150, "%d of 200 writes were made again", again);
    tensor_free(x);
    tensor_free(y);
    tensor_free(z);
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
}

static void roles_of_tensors(void) {
    tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2)), *f = tensor_new(FMT_FP16, TENSOR_SHAPE(2));
    CHECK(t && f, "%s", tensor_error());
    CHECK(!tensor_set_role(t, AUTOFLEX_ROLE_WEIGHT) && !tensor_set_predictor(t, "per-class") &&
              tensor_autoflex(t)->role == AUTOFLEX_ROLE_WEIGHT,
          "the role is lost with the predictor");
    CHECK(tensor_set_role(t, 6) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "role 6"), "%s", tensor_error());
    CHECK(tensor_set_role(t, -1) == TENSOR_E_ARGUMENT && tensor_set_role(NULL, 1) == TENSOR_E_ARGUMENT, "role -1");
    CHECK(tensor_set_role(f, 1) == TENSOR_E_FORMAT && strstr(tensor_error(), "no shared exponent"), "%s",
          tensor_error());
    tensor_free(t);
    tensor_free(f);
}

static nn_graph *network(const char *predictor) {
    nn_graph *g = nn_graph_new(
        &(nn_config){.variant = "flex16+5", .predictor = predictor, .batch = 4, .seed = 3, .momentum = 0.9f});
    nn_node x =
        nn_linear(g, "second", nn_relu(g, "relu", nn_linear(g, "first", nn_input(g, 2, 2, 1), 6, false)), 3, false);
    CHECK(g && x >= 0 && !nn_compile(g, x), "%s", tensor_error());
    return g;
}

static void steps(nn_graph *g, int first, int end) {
    for (int i = first; i < end; i++) {
        float images[16];
        int32_t labels[4];
        uint64_t seed = (uint64_t)i;
        for (int k = 0; k < 16; k++)
            images[k] = (float)draw(&seed);
        for (int k = 0; k < 4; k++)
            labels[k] = (int32_t)(check_random(&seed) % 3);
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g) &&
                  !nn_update(g, 0.05f),
              "%s", tensor_error());
    }
}

/* Networks assign roles to their tensors. */
static void roles_in_networks(void) {
    nn_graph *g = network("per-class");
    int seen[AUTOFLEX_ROLE_LAST + 1] = {0};
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        const struct autoflex *a = tensor_autoflex(info.t);
        CHECK(a && a->role == autoflex_find_role(info.role) && a->role, "%s is %s: role %d", info.name, info.role,
              a ? a->role : -1);
        seen[a->role]++;
    }
    for (int role = 1; role <= AUTOFLEX_ROLE_LAST; role++)
        CHECK(seen[role], "no tensor has role %d", role);
    nn_graph_free(g);
}

/* A training that resumes from a file in the middle of a block equals one that was not interrupted. */
static void kept_in_checkpoints(const char *predictor) {
    char path[] = "/tmp/flexlab-predictors-XXXXXX.safetensors";
    const int file = mkstemps(path, 12);
    nn_graph *whole = network(predictor), *part = network(predictor), *rest = network(predictor);
    steps(whole, 0, 300);
    steps(part, 0, 90);
    CHECK(file >= 0 && !nn_checkpoint_save(part, path, NULL, 0) && !nn_checkpoint_load(rest, path), "%s",
          tensor_error());
    steps(rest, 90, 300);
    for (int i = 0; i < nn_tensor_count(whole); i++) {
        const struct autoflex *a = tensor_autoflex(nn_tensor_at(whole, i).t),
                              *b = tensor_autoflex(nn_tensor_at(rest, i).t);
        CHECK(!memcmp(a, b, sizeof *a), "%s, %s: another state after a checkpoint", predictor,
              nn_tensor_at(whole, i).name);
    }
    nn_graph_free(whole);
    nn_graph_free(part);
    nn_graph_free(rest);
    remove(path);
}

int main(void) {
    lives();
    outliers();
    roles();
    static const char *const backends[] = {"ref", "portable", NULL};
    for (int i = 0; i < 3; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            repeats_in_tensors(backends[i], FMT_FLEX16_5, in_place);
            repeats_in_tensors(backends[i], FMT_DFP16, in_place);
        }
    roles_of_tensors();
    roles_in_networks();
    kept_in_checkpoints("amax");
    kept_in_checkpoints("repeat");
    return check_summary();
}
