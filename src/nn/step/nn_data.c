/* nn_data.c - a data set as bytes on the network's device: a batch consists of indices, and the device computes the
 * rest. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

struct nn_data {
    const nn_graph *graph;
    const data_set *set;
    tensor *images, *labels; /* u8 [count, H, W, C], i32 [count] */
};

static tensor_status check_set(const nn_graph *g, const data_set *set) {
    const int64_t count = data_count(set), *dim = fl_output_of(g, 0)->shape.dim;
    if (dim[1] != data_height(set) || dim[2] != data_width(set) || dim[3] != data_channels(set))
        return fl_fail(TENSOR_E_SHAPE, "nn_data: images of %dx%dx%d, the network takes %lldx%lldx%lld",
                       data_height(set), data_width(set), data_channels(set), (long long)dim[1], (long long)dim[2],
                       (long long)dim[3]);
    if (data_is_text(set) || g->rows != g->batch)
        return fl_fail(TENSOR_E_SHAPE, "nn_data: %s, expected a set of images and one row of logits for each",
                       data_is_text(set) ? "the set is a text" : "the network has several rows of logits an image");
    if (count > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "nn_data: %lld images, expected fewer than 2^31", (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (data_label(set, i) >= g->classes)
            return fl_fail(TENSOR_E_ARGUMENT, "nn_data: label %lld is %d, expected 0 to %d", (long long)i,
                           data_label(set, i), g->classes - 1);
    return TENSOR_OK;
}

static tensor_status put_labels(const nn_data *data, int64_t count) {
    int32_t *labels = fl_alloc((size_t)count * sizeof *labels);
    if (!labels)
        return fl_fail(TENSOR_E_MEMORY, "nn_data: no memory for %lld labels", (long long)count);
    for (int64_t i = 0; i < count; i++)
        labels[i] = data_label(data->set, i);
    const tensor_status status = tensor_load_i32(data->labels, labels, count);
    fl_free(labels);
    return status;
}

static tensor_status bring(nn_graph *g, nn_data *data) {
    const data_set *set = data->set;
    const int64_t count = data_count(set), height = data_height(set), width = data_width(set),
                  channels = data_channels(set);
    if (!(data->images = tensor_new_in(g->device, FMT_U8, TENSOR_SHAPE(count, height, width, channels))) ||
        !(data->labels = tensor_new_in(g->device, FMT_I32, TENSOR_SHAPE(count))))
        return tensor_error_status();
    if (!g->index_buffer && !(g->index_buffer = fl_alloc((size_t)g->batch * sizeof *g->index_buffer)))
        return fl_fail(TENSOR_E_MEMORY, "nn_data: no memory for %d indices", g->batch);
    if (!g->indices && !(g->indices = tensor_new_in(g->device, FMT_I32, TENSOR_SHAPE(g->batch))))
        return tensor_error_status();
    TRY(tensor_load_u8(data->images, data_image(set, 0), tensor_count(data->images)));
    TRY(put_labels(data, count));
    return tensor_device_wait(g->device); /* failures are reported here */
}

nn_data *nn_data_new(nn_graph *g, const data_set *set) {
    if (fl_check_images(g))
        return NULL;
    if (!set) {
        fl_fail(TENSOR_E_ARGUMENT, "nn_data: the set is NULL");
        return NULL;
    }
    if (check_set(g, set))
        return NULL;
    nn_data *data = fl_alloc_zero(sizeof *data);
    if (!data) {
        fl_fail(TENSOR_E_MEMORY, "nn_data: no memory");
        return NULL;
    }
    data->graph = g;
    data->set = set;
    if (bring(g, data)) {
        nn_data_free(data);
        return NULL;
    }
    return data;
}

void nn_data_free(nn_data *data) {
    if (!data)
        return;
    tensor_free(data->images);
    tensor_free(data->labels);
    fl_free(data);
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

bool fl_data_belongs(const nn_data *data, const nn_graph *g) {
    return data->graph == g;
}

tensor_status fl_data_check_indices(const nn_data *data, const char *what, const int64_t *indices, int count) {
    const int64_t images = data_count(data->set);
    for (int i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= images)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: index %d is %lld, expected 0 to %lld", what, i,
                           (long long)indices[i], (long long)images - 1);
    return TENSOR_OK;
}

tensor_status fl_data_put_indices(nn_graph *g, const int64_t *indices, int count) {
    for (int i = 0; i < g->batch; i++)
        g->index_buffer[i] = (int32_t)indices[i < count ? i : 0];
    return tensor_load_i32(g->indices, g->index_buffer, g->batch);
}

tensor_status fl_data_gather(nn_graph *g, const nn_data *data, const tensor_augmentation *how) {
    return tensor_gather_images(g->bytes, g->labels, data->images, data->labels, g->indices, how);
}

const int32_t *fl_data_labels(nn_graph *g, const nn_data *data, const int64_t *indices, int count) {
    for (int i = 0; i < count; i++)
        g->index_buffer[i] = data_label(data->set, indices[i]);
    return g->index_buffer;
}
