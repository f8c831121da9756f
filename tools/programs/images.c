/* images.c - see images.h. */
#include "programs/images.h"
#include "base/text.h"
#include "options/options.h"
#include <stdlib.h>
#include <string.h>

enum { USUAL_BATCH = 64 };

/* A number for each channel, or one for all. */
static int read_list(double values[MOST_CHANNELS], const char *option, const char *text, int channels, double low) {
    if (!text)
        return text_usage("expected --mean and --std, the normalisation that the network was trained with: numbers for "
                          "%d channels, or one for all; --mean 0 --std 1 are pixels / 255",
                          channels);
    char *copy = text_format("%s", text), *rest = copy, *word;
    int count = 0;
    bool good = true;
    while (good && (word = strsep(&rest, ",")))
        good = count < MOST_CHANNELS && text_real(word, low, 1e6, &values[count++]);
    free(copy);
    if (!good || (count != 1 && count != channels))
        return text_usage("--%s '%s': expected %d numbers from %.7g to 1000000 with commas between them, or one",
                          option, text, channels, low);
    for (int c = 1; c < channels && count == 1; c++)
        values[c] = values[0];
    return STATUS_OK;
}

static bool fits(const program_port *port, const data_set *set, bool channels_first) {
    const int sizes[] = {data_channels(set), data_height(set), data_width(set)};
    const int place[2][3] = {{3, 1, 2}, {1, 2, 3}};
    for (int k = 0; k < 3; k++) {
        const int64_t size = port->shape[place[channels_first][k]];
        if (size >= 0 && size != sizes[k])
            return false;
    }
    return true;
}

static int find_layout(struct images *e) {
    const program_port *const port = &e->network->inputs[0];
    const char *const layout = e->settings->layout;
    char *const shape = network_port_shape(port);
    int status = STATUS_OK;
    if (e->network->input_count != 1 || !network_takes_reals(port) || port->ndim != 4) {
        status = text_failed("%s: expected one input of images with four dimensions, in float32 or in 8-bit integers "
                             "with a scale; it has %d, the first is '%s', %s %s: 'flexlab run' runs any network",
                             e->network->path, e->network->input_count, e->network->input_count ? port->name : "",
                             e->network->input_count ? network_type_name(port->type) : "", shape);
    } else {
        const bool first = fits(port, e->set, true), last = fits(port, e->set, false);
        e->channels_first = layout ? !strcmp(layout, "nchw") : first;
        if (layout ? !(e->channels_first ? first : last) : !first && !last)
            status = text_failed("%s: images of %dx%dx%d (height, width, channels) do not fit the input '%s' %s%s%s",
                                 e->specification, data_height(e->set), data_width(e->set), data_channels(e->set),
                                 port->name, shape, layout ? " as " : "", layout ? layout : "");
        else if (!layout && first && last)
            status = text_usage("%s: the input '%s' %s says no layout, expected --layout nchw or nhwc",
                                e->network->path, port->name, shape);
    }
    free(shape);
    return status;
}

int images_open_set(data_set **set, const char *option, const char *specification, data_split split) {
    *set = data_open(specification, split);
    if (!*set)
        return text_failed("--%s '%s': %s", option, specification, tensor_error());
    if (data_is_text(*set))
        return text_usage("--%s '%s': a text, expected images", option, specification);
    return STATUS_OK;
}

static int open_images(struct images *e, data_split split) {
    const struct settings *const s = e->settings;
    int status = images_open_set(&e->set, e->option, e->specification, split);
    if (status != STATUS_OK)
        return status;
    if (s->test_limit > data_count(e->set))
        return text_usage("--test-limit %lld: there are %lld images", (long long)s->test_limit,
                          (long long)data_count(e->set));
    if (s->test_limit && data_limit(e->set, s->test_limit))
        return text_failed("%s", tensor_error());
    status = read_list(e->mean, "mean", s->mean ? s->mean : e->network->mean, data_channels(e->set), -1e6);
    return status == STATUS_OK ? read_list(e->deviation, "std", s->deviation ? s->deviation : e->network->deviation,
                                           data_channels(e->set), 1e-6)
                               : status;
}

/* As many images as the network states, or as the user wants. */
static int make_input(struct images *e) {
    const program_port *const port = &e->network->inputs[0];
    const int64_t wanted = e->settings->batch, h = data_height(e->set), w = data_width(e->set),
                  c = data_channels(e->set);
    if (wanted && port->shape[0] >= 0 && wanted != port->shape[0])
        return text_usage("--batch %lld: the input '%s' takes %lld at a time", (long long)wanted, port->name,
                          (long long)port->shape[0]);
    const int64_t batch = port->shape[0] >= 0 ? port->shape[0] : wanted ? wanted : USUAL_BATCH;
    e->input = (program_array){port->type, 4, {batch, h, w, c}, NULL};
    if (e->channels_first)
        e->input = (program_array){port->type, 4, {batch, c, h, w}, NULL};
    if (batch < 1 || batch > 65536)
        return text_failed("%s: a batch of %lld, expected 1 to 65536", e->network->path, (long long)batch);
    e->floats = text_alloc((size_t)network_elements(&e->input), sizeof *e->floats);
    e->input.data = text_alloc((size_t)network_elements(&e->input), network_type_bytes(port->type));
    return STATUS_OK;
}

void images_take(struct images *e, const data_batch *batch) {
    const int64_t pixels = (int64_t)data_height(e->set) * data_width(e->set), channels = data_channels(e->set);
    for (int64_t n = 0; n < e->input.shape[0]; n++) {
        const float *const from = batch->images + (n < batch->count ? n : 0) * pixels * channels;
        float *const to = e->floats + n * pixels * channels;
        if (!e->channels_first)
            memcpy(to, from, (size_t)(pixels * channels) * sizeof *to);
        for (int64_t i = 0; i < pixels && e->channels_first; i++)
            for (int64_t c = 0; c < channels; c++)
                to[c * pixels + i] = from[i * channels + c];
    }
    network_from_reals(&e->input, e->floats, &e->network->inputs[0]);
}

data_loader *images_load(const struct images *e, const data_set *set) {
    const data_loader_config how = {.batch = (int)e->input.shape[0], .mean = e->mean, .deviation = e->deviation};
    return data_loader_new(set, &how);
}

int images_open(struct images *e, data_split split) {
    int status = open_images(e, split);
    if (status == STATUS_OK)
        status = find_layout(e);
    return status == STATUS_OK ? make_input(e) : status;
}

void images_close(struct images *e) {
    free(e->input.data);
    free(e->floats);
    data_free(e->set);
    e->floats = NULL;
    e->input.data = NULL;
    e->set = NULL;
}
