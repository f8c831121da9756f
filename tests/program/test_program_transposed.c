/* ConvTranspose whose padding follows from output_shape: random ones equal what every pixel of the input adds to the
 * result, of which the padding is cut off as ONNX says for each auto_pad. */
#include "network_parts.h"

enum { MOST = 4096, CASES = 400, BATCH = 2 };

static uint64_t seed = 5;

static int64_t below(int64_t n) {
    return (int64_t)(check_random(&seed) % (uint64_t)n);
}

struct test {
    int64_t spatial, groups, channels, filters; /* of a group */
    int64_t size[2], kernel[2], stride[2], dilation[2], more[2], wanted[2], begin[2];
    const char *rule;
};

static int64_t whole(const struct test *t, int i) {
    return t->stride[i] * (t->size[i] - 1) + t->more[i] + (t->kernel[i] - 1) * t->dilation[i] + 1;
}

/* Of one spatial dimension the first has size 1. */
static void draw(struct test *t) {
    static const char *const rules[] = {"NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"};
    *t = (struct test){1 + below(2), 1 + below(2), 1 + below(2), 1 + below(2), .rule = rules[below(4)]};
    for (int i = 0; i < 2; i++) {
        const bool flat = i < 2 - t->spatial;
        t->size[i] = flat ? 1 : 1 + below(4);
        t->kernel[i] = flat ? 1 : 1 + below(4);
        t->stride[i] = flat ? 1 : 1 + below(3);
        t->dilation[i] = flat ? 1 : 1 + below(2);
        t->more[i] = flat ? 0 : below(t->stride[i]);
        const int64_t most = whole(t, i), all = flat ? 0 : below(most < 5 ? most : 5);
        t->wanted[i] = most - all;
        t->begin[i] = !strcmp(t->rule, "SAME_UPPER") ? all / 2 : all - all / 2;
    }
}

static void scatter(const struct test *t, float *y, const float *x, const float *w) {
    const int64_t pixels = t->size[0] * t->size[1], taps = t->kernel[0] * t->kernel[1],
                  out = t->wanted[0] * t->wanted[1];
    const int64_t channels = t->groups * t->channels, filters = t->groups * t->filters;
    memset(y, 0, sizeof *y * (size_t)(BATCH * filters * out));
    for (int64_t p = 0; p < BATCH * channels * pixels; p++)
        for (int64_t f = 0; f < t->filters; f++)
            for (int64_t k = 0; k < taps; k++) {
                const int64_t c = p / pixels % channels, plane = c / t->channels * t->filters + f, at = p % pixels;
                const int64_t i = at / t->size[1] * t->stride[0] + k / t->kernel[1] * t->dilation[0] - t->begin[0];
                const int64_t j = at % t->size[1] * t->stride[1] + k % t->kernel[1] * t->dilation[1] - t->begin[1];
                if (i >= 0 && i < t->wanted[0] && j >= 0 && j < t->wanted[1])
                    y[(p / pixels / channels * filters + plane) * out + i * t->wanted[1] + j] +=
                        x[p] * w[(c * t->filters + f) * taps + k];
            }
}

static void check_case(int number) {
    static float x[MOST], y[MOST];
    struct test t;
    draw(&t);
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int skip = 2 - (int)t.spatial, ndim = 2 + (int)t.spatial;
    int64_t image[4] = {BATCH, t.groups * t.channels}, filters[4] = {t.groups * t.channels, t.filters};
    memcpy(image + 2, t.size + skip, (size_t)t.spatial * sizeof *image);
    memcpy(filters + 2, t.kernel + skip, (size_t)t.spatial * sizeof *image);
    const int input = part_value(n, ndim, image), w = part_constant(n, ndim, filters, &seed);
    const int value = part_node(n, "ConvTranspose", 2, (const int[]){input, w});
    struct fl_net_node *const node = &n->graph.nodes[0];
    const struct {
        const char *name;
        const int64_t *values;
    } lists[] = {
        {"strides", t.stride}, {"dilations", t.dilation}, {"output_padding", t.more}, {"output_shape", t.wanted}};
    for (int i = 0; i < 4; i++)
        CHECK(!fl_net_set_ints(n, node, lists[i].name, (int)t.spatial, lists[i].values + skip), "%s", tensor_error());
    CHECK(!fl_net_set_int(n, node, "group", t.groups) && !fl_net_set_string(n, node, "auto_pad", t.rule), "%s",
          tensor_error());
    part_ports(n, 1, &input, 1, &value);
    program *const p = program_of(n);
    program_array in = {.type = TENSOR_TYPE_F32, .ndim = ndim, .data = x}, out;
    memcpy(in.shape, image, sizeof image);
    for (int64_t i = 0; i < BATCH * image[1] * t.size[0] * t.size[1]; i++)
        x[i] = (float)below(17) - 8;
    scatter(&t, y, x, n->values[w].constant->data);
    const bool good = !fl_net_check(n) && !program_run(p, &out, &in);
    CHECK(good, "case %d: %s", number, tensor_error());
    for (int64_t i = 0; good && i < BATCH * t.groups * t.filters * t.wanted[0] * t.wanted[1]; i++)
        CHECK(((const float *)out.data)[i] == y[i], "case %d, %s: number %lld is %g, expected %g", number, t.rule,
              (long long)i, (double)((const float *)out.data)[i], (double)y[i]);
    program_free(p);
}

int main(void) {
    for (int i = 0; i < CASES; i++)
        check_case(i);
    return check_summary();
}
