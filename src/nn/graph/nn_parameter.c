/* nn_parameter.c - the tensors of a parameter: weight and gradient and, if a policy has them in several formats, the
 * tensors between the one of the passes and the one of the optimiser.
 *
 *     master -> w -> w_forward, w_backward        written by fl_refresh_weight, once an update
 *     g -> g_kept -> g_taken                      written by fl_take_gradient, once a step
 *
 * Each arrow is one rounding; if two formats are the same, there is one tensor. */
#include "nn/graph/nn_graph.h"
#include "core/values/tensor_state.h"

void fl_parameter_clear(struct fl_parameter *p) {
    if (p->w_backward != p->w_forward)
        tensor_free(p->w_backward);
    tensor *const all[] = {p->w_vector, p->g_vector, p->w,         p->g,      p->v,      p->r,
                           p->d,        p->master,   p->w_forward, p->g_kept, p->g_taken};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

int64_t fl_parameter_bytes(const struct fl_parameter *p) {
    const tensor *const all[] = {p->w, p->master, p->w_forward, p->w_backward == p->w_forward ? NULL : p->w_backward};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        bytes += all[i] ? (int64_t)tensor_bytes(all[i]) : 0;
    return bytes;
}

static tensor_status convert(tensor *y, const tensor *x) {
    return y ? tensor_rewrite(y, x) : TENSOR_OK;
}

tensor_status fl_take_gradient(const struct fl_parameter *p) {
    TRY(convert(p->g_kept, p->g));
    return convert(p->g_taken, p->g_kept ? p->g_kept : p->g);
}

tensor_status fl_refresh_weight(const struct fl_parameter *p) {
    if (p->master)
        TRY(tensor_rewrite(p->w, p->master));
    TRY(convert(p->w_forward, p->w));
    return p->w_backward == p->w_forward ? TENSOR_OK : convert(p->w_backward, p->w);
}
