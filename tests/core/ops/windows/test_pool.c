/* Max pooling and shortcuts, all rows of all formats against the reference kernels: numbers of channels about those of
 * vectors and blocks, windows that overlap, leave gaps, reach over the border or hold more places than 16 bits count.
 */
#include "flexlab/tensor.h"
#include "kernel_cases.h"
#include "window_cases.h"

static const int channels[] = {1, 2, 3, 5, 8, 15, 16, 31, 33, 67, 1029};
static const struct {
    int h, w, window, stride, padding;
} windows[] = {{6, 7, 2, 2, 0}, {9, 8, 3, 2, 1}, {5, 6, 3, 1, 1}, {7, 9, 2, 3, 0}, {6, 5, 5, 1, 4}};

static uint64_t seed = 20170711;

static struct fl_windows geometry_of(enum fl_op op, int w, int c) {
    struct fl_windows g = {.batch = 2,
                           .h = windows[w].h,
                           .w = windows[w].w,
                           .c = c,
                           .filters = c,
                           .r = windows[w].window,
                           .s = windows[w].window,
                           .stride = {windows[w].stride, windows[w].stride},
                           .padding = {windows[w].padding, windows[w].padding},
                           .dilation = {1, 1}};
    if (op == FL_OP_SHORTCUT_A || op == FL_OP_SHORTCUT_A_GRAD) {
        g.filters += w;
        g.r = g.s = 1;
        g.padding[0] = g.padding[1] = 0;
    }
    g.p = (g.h + 2 * g.padding[0] - g.r) / g.stride[0] + 1;
    g.q = (g.w + 2 * g.padding[1] - g.s) / g.stride[1] + 1;
    return g;
}

static void check_case(const struct fl_format *f, enum fl_op op, struct fl_windows g, enum style style) {
    static struct call call;
    const bool gradient = op == FL_OP_MAXPOOL2D_GRAD || op == FL_OP_SHORTCUT_A_GRAD;
    const int64_t x = g.batch * g.h * g.w * g.c, y = g.batch * g.p * g.q * g.filters;
    const int e = f->arithmetic == FL_ARITHMETIC_SHARED ? 15 : 0;
    call = (struct call){.format = f, .op = op, .shape = {.out = gradient ? x : y}, .e_out = e ? e - 1 : 0};
    call.args = (struct fl_args){.op = op, .format = f, .p.pooling.windows = g};
    call.shape.in[0] = gradient ? y : x;
    call.shape.in[1] = op == FL_OP_MAXPOOL2D_GRAD ? x : 0;
    for (int i = 0; i < 2; i++)
        if (call.shape.in[i]) {
            call.in[i] = block_new(f, call.shape.in[i], e);
            fill(f, &call.in[i], style, &seed);
            call.args.in[i] = call.in[i].view;
        }
    struct result expected, r;
    CHECK(!run(&call, fl_ref_kernel(op), false, false, &expected), "%s", tensor_error());
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++)
        for (int threads = 1; threads < 3; threads++) {
            enum fl_backend chosen;
            fl_kernel kernel = fl_kernel_select(f, op, (enum fl_backend)backend, &chosen);
            tensor_set_threads(threads);
            CHECK(!run(&call, kernel, false, false, &r), "%s", tensor_error());
            int64_t wrong = -1;
            for (int64_t i = 0; i < call.shape.out && wrong < 0; i++) {
                double a, b;
                f->decode(f, &r.out.view, i, 1, &a);
                f->decode(f, &expected.out.view, i, 1, &b);
                if (memcmp(r.out.memory + i * f->bytes, expected.out.memory + i * f->bytes, (size_t)f->bytes) != 0 &&
                    (a == a || b == b))
                    wrong = i;
            }
            CHECK(wrong < 0 && !memcmp(&r.stats, &expected.stats, sizeof r.stats),
                  "%s.%s.%s: %s: element %lld or statistics", f->name, fl_op_name(op), fl_backend_name(chosen),
                  windows_text(&g), (long long)wrong);
            for (int i = 0; i < CANARY; i++)
                CHECK(r.out.memory[r.out.bytes + (size_t)i] == 0xa5, "%s.%s writes beyond its end", f->name,
                      fl_op_name(op));
            result_free(&r);
        }
    result_free(&expected);
    call_free(&call);
}

int main(void) {
    static const enum fl_op ops[] = {FL_OP_MAXPOOL2D, FL_OP_MAXPOOL2D_GRAD, FL_OP_SHORTCUT_A, FL_OP_SHORTCUT_A_GRAD};
    static const enum style styles[] = {ORDINARY, SPARSE, SPECIAL};
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        for (size_t op = 0; op < sizeof ops / sizeof ops[0]; op++)
            for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++)
                for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++)
                    for (size_t s = 0; s < sizeof styles / sizeof styles[0]; s++)
                        if (channels[c] < 1000 || s == 0)
                            check_case(f, ops[op], geometry_of(ops[op], (int)w, channels[c]), styles[s]);
        for (int j = 0; j < 60; j++) {
            int after[2];
            const struct fl_windows g = draw_pool(&seed, channels[j % 10], after);
            check_case(f, FL_OP_MAXPOOL2D, g, styles[j % 3]);
            check_case(f, FL_OP_MAXPOOL2D_GRAD, g, styles[j % 3]);
        }
        const struct fl_windows large = {.batch = 1,
                                         .h = 300,
                                         .w = 301,
                                         .c = 1,
                                         .filters = 1,
                                         .r = 260,
                                         .s = 260,
                                         .stride = {41, 41},
                                         .dilation = {1, 1},
                                         .p = 1,
                                         .q = 2};
        /* 32,761 places, almost as many as fit 16 bits */
        const struct fl_windows fitting = {.batch = 1,
                                           .h = 190,
                                           .w = 191,
                                           .c = 3,
                                           .filters = 3,
                                           .r = 181,
                                           .s = 181,
                                           .stride = {9, 9},
                                           .dilation = {1, 1},
                                           .p = 2,
                                           .q = 2};
        const struct fl_windows sizes[] = {large, fitting};
        for (int size = 0; size < 2; size++) {
            check_case(f, FL_OP_MAXPOOL2D, sizes[size], SPARSE);
            check_case(f, FL_OP_MAXPOOL2D_GRAD, sizes[size], SPARSE);
        }
    }
    return check_summary();
}
