/* nn_step.c - one training step, and evaluation of a batch. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include <math.h>
#include <string.h>

static tensor_status check_ready(const nn_graph *g, const float *images, const int32_t *labels) {
    if (!g || !images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: graph, images or labels are NULL");
    if (g->status)
        return fl_fail(g->status, "%s", g->message);
    if (!g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "network: the graph is not compiled");
    return TENSOR_OK;
}

static tensor_status forward(nn_graph *g, const float *images, bool training) {
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        const struct fl_pass *pass = training ? &node->train : &node->evaluate;
        tensor_status status = TENSOR_OK;
        if (!node->layer->inputs)
            status = tensor_load_f32(pass->y, images, tensor_count(pass->y));
        else if (node->layer->forward)
            status = node->layer->forward(node, pass);
        if (status)
            return fl_node_failed(node, status);
    }
    return TENSOR_OK;
}

static tensor_status add_gradients(tensor *sum, const tensor *a, const tensor *b, const tensor *gate) {
    return gate ? tensor_add_relu_grad(sum, a, b, gate) : tensor_add(sum, a, b);
}

static tensor_status backward_node(const nn_graph *g, struct fl_node *node) {
    if (node->layer->backward)
        FL_TRY(node->layer->backward(node, &node->train));
    for (int k = 0; k < node->layer->inputs; k++)
        if (node->sum[k] >= 0)
            FL_TRY(add_gradients(g->values[node->sum[k]].t, g->values[node->addend[k]].t, node->train.dx[k],
                                 node->gate[k] >= 0 ? g->values[node->gate[k]].t : NULL));
    return TENSOR_OK;
}

static tensor_status backward(nn_graph *g) {
    for (int i = g->count - 1; i >= 0; i--) {
        struct fl_node *node = &g->nodes[i];
        tensor_status status = node->learns ? backward_node(g, node) : TENSOR_OK;
        if (status)
            return fl_node_failed(node, status);
    }
    return TENSOR_OK;
}

/* Momentum and weight decay act on every parameter, biases and batch normalisation included (He et al. 2015). */
static tensor_status update_parameter(const nn_graph *g, const struct fl_parameter *p, float rate) {
    FL_TRY(tensor_sgd_momentum(p->v, p->g, p->w, g->momentum, g->weight_decay));
    return tensor_sgd_update(p->w, p->v, rate);
}

static tensor_status update(nn_graph *g, float rate) {
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            tensor_status status = update_parameter(g, &g->nodes[i].parameter[k], rate);
            if (status)
                return fl_node_failed(&g->nodes[i], status);
        }
    return TENSOR_OK;
}

tensor_status nn_train_step(nn_graph *g, const float *images, const int32_t *labels, float rate, double *loss,
                            int *correct) {
    FL_TRY(check_ready(g, images, labels));
    if (!(rate >= 0 && isfinite(rate)))
        return fl_fail(TENSOR_E_ARGUMENT, "learning rate: %g, expected 0 or more", (double)rate);
    const struct fl_node *logits = &g->nodes[g->count - 1];
    double mean_loss;
    FL_TRY(forward(g, images, true));
    FL_TRY(tensor_softmax_cross_entropy(&mean_loss, logits->train.dy, g->predicted, logits->train.y, labels, 1.0));
    FL_TRY(backward(g));
    FL_TRY(update(g, rate));
    if (loss)
        *loss = mean_loss;
    if (correct) {
        *correct = 0;
        for (int i = 0; i < g->batch; i++)
            *correct += g->predicted[i] == labels[i];
    }
    return TENSOR_OK;
}

/* A batch filled up with repetitions of its first image: the graph has one size. */
static float *fill_batch(const nn_graph *g, const float *images, int count) {
    size_t image = (size_t)fl_shape_count(&g->nodes[0].shape) / (size_t)g->batch;
    float *full = fl_alloc((size_t)g->batch * image * sizeof *full);
    if (!full)
        return NULL;
    memcpy(full, images, (size_t)count * image * sizeof *full);
    for (int i = count; i < g->batch; i++)
        memcpy(full + (size_t)i * image, images, image * sizeof *full);
    return full;
}

/* Loss and predictions of the first rows alone. */
static tensor_status evaluate_rows(const nn_graph *g, const int32_t *labels, int count, double *loss,
                                   int32_t *predicted) {
    tensor *all = g->nodes[g->count - 1].evaluate.y;
    tensor *rows =
        tensor_new_on(g->variant->format, TENSOR_SHAPE(count, g->classes), tensor_data(all), tensor_bytes(all));
    if (!rows)
        return tensor_error_status();
    tensor_status status = TENSOR_OK;
    if (tensor_format_is_shared(g->variant->format))
        status = tensor_declare_exponent(rows, tensor_exponent(all));
    if (!status)
        status = tensor_softmax_cross_entropy(loss, NULL, predicted, rows, labels, 1.0);
    tensor_free(rows);
    return status;
}

tensor_status nn_evaluate(nn_graph *g, const float *images, const int32_t *labels, int count, double *loss,
                          int32_t *predicted) {
    FL_TRY(check_ready(g, images, labels));
    if (count < 1 || count > g->batch)
        return fl_fail(TENSOR_E_ARGUMENT, "evaluate: %d images, expected 1 ... %d", count, g->batch);
    float *full = NULL;
    if (count < g->batch && !(full = fill_batch(g, images, count)))
        return fl_fail(TENSOR_E_MEMORY, "evaluate: no memory for a batch of %d images", g->batch);
    double mean_loss;
    tensor_status status = forward(g, full ? full : images, false);
    fl_free(full);
    if (!status)
        status = evaluate_rows(g, labels, count, &mean_loss, predicted);
    if (!status && loss)
        *loss = mean_loss;
    return status;
}
