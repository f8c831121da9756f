/* int8_windows.c - pooling of quantised sequences and images. */
#include "program/arrays/windows.h"
#include "program/lower/quantised.h"
#include "core/base/fail.h"

struct pool {
    struct fl_int8_window window;
    struct fl_int8_types types;
    enum fl_int8_rounding rounding;
    bool mean, count_padding;
    int64_t n, h, w, c;
};

static tensor_status run_pool(tensor *const *t, const void *with) {
    const struct pool *const p = with;
    const void *const x = fl_plan_data(t[1]);
    void *const y = fl_plan_data(t[0]);
    return p->mean ? fl_int8_average_pool(p->rounding, p->n, p->h, p->w, p->c, &p->window, p->count_padding,
                                          &p->types.x, x, &p->types.y, p->types.range, y)
                   : fl_int8_max_pool(p->n, p->h, p->w, p->c, &p->window, &p->types.x, p->types.range, x, y);
}

static tensor_status plan_pool(struct fl_planner *p, const struct fl_net_node *node, struct pool *pool, bool *done) {
    int layout[TENSOR_MAX_DIMS];
    pool->rounding = fl_plan_network(p)->rounding;
    TRY(fl_int8_types_of(p, node, &pool->types));
    fl_image_layout(node, fl_plan_out(p, node, 0)->ndim, layout);
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x};
    *done = true;
    return fl_plan_step(p, node, run_pool, 1, 2, slots, pool, sizeof *pool);
}

static tensor_status plan_windows(struct fl_planner *p, const struct fl_net_node *node, struct pool pool, bool *done) {
    struct fl_windows g;
    TRY(fl_windows_pool(&g, node, &fl_plan_in(p, node, 0)->array));
    const int across = g.spatial - 1; /* a sequence is an image of height 1 */
    pool.window = (struct fl_int8_window){.height = across ? g.window[0] : 1,
                                          .width = g.window[across],
                                          .stride_h = across ? g.stride[0] : 1,
                                          .stride_w = g.stride[across],
                                          .dilation_h = across ? g.dilation[0] : 1,
                                          .dilation_w = g.dilation[across],
                                          .top = across ? g.begin[0] : 0,
                                          .left = g.begin[across],
                                          .bottom = across ? g.end[0] : 0,
                                          .right = g.end[across]};
    pool.n = g.batch;
    pool.h = across ? g.size[0] : 1;
    pool.w = g.size[across];
    pool.c = g.channels;
    return plan_pool(p, node, &pool, done);
}

tensor_status fl_lower_int8_average_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const bool counts = fl_net_int(node, "count_include_pad", 0) != 0;
    return plan_windows(p, node, (struct pool){.mean = true, .count_padding = counts}, done);
}

tensor_status fl_lower_int8_max_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    return plan_windows(p, node, (struct pool){.mean = false}, done);
}

/* Volumes too: their pixels are one line. */
tensor_status fl_lower_int8_global_average_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_windows g;
    struct pool pool = {.mean = true, .w = 1, .h = 1};
    TRY(fl_windows_image(&g, node, &fl_plan_in(p, node, 0)->array));
    for (int i = 0; i < g.spatial; i++)
        *(i ? &pool.w : &pool.h) *= g.size[i];
    pool.n = g.batch;
    pool.c = g.channels;
    pool.window = (struct fl_int8_window){.height = pool.h, .width = pool.w};
    return plan_pool(p, node, &pool, done);
}
