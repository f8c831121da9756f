/* trained.c - see trained.h. */
#include "runs/trained.h"
#include "base/failure.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_whole(const char *path, const char *key, int64_t high, int64_t *value) {
    char text[TRAINED_NOTE];
    if (nn_checkpoint_note(text, sizeof text, path, key))
        return text_failed("%s", tensor_error());
    if (text_whole(text, 0, high, value))
        return STATUS_OK;
    return text_failed("%s: '%s' is '%s', expected a whole number", path, key, text);
}

/* Reads one number for each channel, separated by spaces. */
static int read_reals(const char *path, const char *key, int64_t channels, double values[TRAINED_CHANNELS]) {
    char text[TRAINED_NOTE], *rest = text;
    if (nn_checkpoint_note(text, sizeof text, path, key))
        return text_failed("%s", tensor_error());
    int64_t count = 0;
    bool good = true;
    for (char *word; good && (word = strsep(&rest, " ")); count++)
        good = count < channels && text_real(word, 0, 1, &values[count]);
    return good && count == channels
               ? STATUS_OK
               : text_failed("%s: '%s': expected %lld numbers from 0 to 1", path, key, (long long)channels);
}

static int read_text(struct trained *is, const char *path) {
    if (nn_checkpoint_note(is->vocabulary, sizeof is->vocabulary, path, "training.vocabulary"))
        return text_failed("%s", tensor_error());
    int status = read_whole(path, "training.context", 65536, &is->context);
    return status == STATUS_OK && !is->context ? text_failed("%s: 'training.context' is 0", path) : status;
}

/* Of a network in shards, which evaluates as many samples as a shard has. */
static int read_shards(struct trained *is, const char *path) {
    char text[TRAINED_NOTE];
    is->shards = 1;
    if (nn_checkpoint_note(text, sizeof text, path, "network.shards"))
        return STATUS_OK;
    const int status = read_whole(path, "network.shards", 1024, &is->shards);
    if (status == STATUS_OK && (is->shards < 1 || is->batch % is->shards))
        return text_failed("%s: 'network.shards' is %lld, expected a divisor of 'network.batch', %lld", path,
                           (long long)is->shards, (long long)is->batch);
    is->batch /= status == STATUS_OK ? is->shards : 1;
    return status;
}

/* Refuses a file without the notes of `train`, with a message about its possible uses. */
static int refuse_foreign(const char *path) {
    char text[TRAINED_NOTE];
    if (!nn_checkpoint_note(text, sizeof text, path, "flexlab.checkpoint"))
        return text_failed(
            "%s: a network that 'flexlab wgan' or nn_checkpoint_save has written: it does not name its model and its "
            "data ('training.model'), as those of 'flexlab train' do; nn_checkpoint_load reads it",
            path);
    return text_failed(
        "%s: not a network of 'flexlab train', but the safetensors file of another program, such as PyTorch: it has no "
        "'training.model'. 'flexlab eval FILE --model MODEL --data ... --mean ... --std ...' evaluates it, 'flexlab "
        "train --model MODEL --weights FILE' begins with its weights",
        path);
}

int trained_read(struct trained *is, const char *path) {
    if (nn_checkpoint_note(is->model, sizeof is->model, path, "training.model") &&
        tensor_error_status() == TENSOR_E_DATA && strstr(tensor_error(), "metadata have no 'training.model'"))
        return refuse_foreign(path);
    if (nn_checkpoint_note(is->model, sizeof is->model, path, "training.model") ||
        nn_checkpoint_note(is->format, sizeof is->format, path, "network.variant"))
        return text_failed("%s", tensor_error());
    int64_t augment = 0;
    const struct {
        const char *key;
        int64_t high, *value;
    } wholes[] = {{"training.height", 4096, &is->height},
                  {"training.width", 4096, &is->width},
                  {"training.channels", TRAINED_CHANNELS, &is->channels},
                  {"training.classes", 65536, &is->classes},
                  {"network.batch", 65536, &is->batch},
                  {"network.steps", INT64_MAX, &is->steps},
                  {"training.augment", 1, &augment}};
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes && status == STATUS_OK; i++)
        status = read_whole(path, wholes[i].key, wholes[i].high, wholes[i].value);
    is->augment = augment != 0;
    if (status == STATUS_OK)
        status = read_shards(is, path);
    is->text = nn_model_reads_text(is->model);
    if (status == STATUS_OK && is->text)
        return read_text(is, path);
    if (status == STATUS_OK)
        status = read_reals(path, "training.mean", is->channels, is->mean);
    return status == STATUS_OK ? read_reals(path, "training.deviation", is->channels, is->deviation) : status;
}

/* A file names its network and may name one that is far too large for it: each layer occupies hundreds of bytes, and
 * each weight at least one. */
enum { LAYER_BYTES = 300 };

static int check_size(const struct trained *is, const nn_graph *g, const char *path) {
    struct stat about;
    if (stat(path, &about))
        return text_failed("%s: %s", path, strerror(errno));
    const bool residual = !strncmp(is->model, "resnet", 6);
    const double layers = residual ? strtod(is->model + 6, NULL) : 0;
    if (layers > (double)about.st_size / LAYER_BYTES || (g && nn_parameter_count(g) > about.st_size))
        return is->text
                   ? text_failed("%s: '%s' on %lld tokens of a vocabulary of %lld has more weights than a file of %lld "
                                 "bytes",
                                 path, is->model, (long long)is->context, (long long)is->classes,
                                 (long long)about.st_size)
                   : text_failed("%s: '%s' on images of %lldx%lldx%lld has more weights than a file of %lld bytes",
                                 path, is->model, (long long)is->height, (long long)is->width, (long long)is->channels,
                                 (long long)about.st_size);
    return STATUS_OK;
}

/* Refuses a network of the file that needs too much memory, naming the option that allows it. */
static int refuse_network(const struct settings *s) {
    char *why = failure_text(s->memory);
    const int status = strcmp(why, tensor_error()) ? text_failed("%s: %s", s->checkpoint, why) : text_failed("%s", why);
    free(why);
    return status;
}

/* Reads a note that must be there. */
static int read_note(char text[TRAINED_NOTE], const char *path, const char *key) {
    return nn_checkpoint_note(text, TRAINED_NOTE, path, key) ? text_failed("%s", tensor_error()) : STATUS_OK;
}

/* A graph with the formats and the loss of the file, for another batch. Rules of a policy would have to be read from
 * the file as rules, which the library does for its own batch alone. */
static int other_graph(nn_graph **g, const struct settings *s, const struct trained *is) {
    char predictor[TRAINED_NOTE], master[TRAINED_NOTE], scale[TRAINED_NOTE], smoothing[TRAINED_NOTE], policy[1];
    const char *const path = s->checkpoint;
    if (nn_checkpoint_note(policy, sizeof policy, path, "network.policy") != TENSOR_E_DATA) /* there is one */
        return text_usage("--batch %lld: the network of %s has a policy and is computed with its own batch, %lld",
                          (long long)s->batch, path, (long long)is->batch);
    int status = read_note(predictor, path, "network.predictor");
    if (status == STATUS_OK)
        status = read_note(master, path, "network.master");
    if (status != STATUS_OK)
        return status;
    const bool scaled = !nn_checkpoint_note(scale, sizeof scale, path, "network.loss_scale.state") ||
                        !nn_checkpoint_note(scale, sizeof scale, path, "network.loss_scale");
    const bool smoothed = !nn_checkpoint_note(smoothing, sizeof smoothing, path, "network.label_smoothing");
    scale[strcspn(scale, " ")] = 0; /* a state begins with the scale */
    const nn_config config = {.variant = is->format,
                              .predictor = strcmp(predictor, "none") != 0 ? predictor : NULL,
                              .no_master = !strcmp(master, "none"),
                              .batch = (int)s->batch,
                              .label_smoothing = smoothed ? strtof(smoothing, NULL) : 0,
                              .loss_scale = scaled ? scale : NULL,
                              .device = s->device};
    *g = nn_graph_new(&config);
    return *g ? STATUS_OK : text_failed("%s", tensor_error());
}

int trained_network(nn_graph **g, const struct settings *s, const struct trained *is) {
    const bool other = s->batch && s->batch != is->batch;
    int status = check_size(is, NULL, s->checkpoint); /* before the layers are made */
    if (status == STATUS_OK && other)
        status = other_graph(g, s, is);
    else if (status == STATUS_OK && !(*g = nn_checkpoint_graph(s->checkpoint, s->device)))
        status = text_failed("%s", tensor_error());
    if (status != STATUS_OK)
        return status;
    const nn_node logits =
        is->text ? nn_model_text(*g, is->model, (int)is->context, (int)is->classes)
                 : nn_model(*g, is->model, (int)is->height, (int)is->width, (int)is->channels, (int)is->classes);
    if (logits >= 0)
        status = check_size(is, *g, s->checkpoint);
    if (status == STATUS_OK && (nn_graph_limit(*g, s->memory << 30) || nn_compile(*g, logits) ||
                                (other ? nn_weights_load(*g, s->checkpoint) : nn_checkpoint_load(*g, s->checkpoint))))
        status = refuse_network(s);
    return status;
}

static int check_text(const data_set *set, const struct settings *s, const struct trained *is) {
    char own[24];
    snprintf(own, sizeof own, "%016llx", (unsigned long long)data_vocabulary(set));
    if (strcmp(own, is->vocabulary) != 0 || data_classes(set) != is->classes)
        return text_failed("--data '%s': the tokens of this text, %d of them, are not those of the network, %lld: "
                           "characters are numbered as they occur",
                           s->data, data_classes(set), (long long)is->classes);
    return data_count(set) > is->context ? STATUS_OK
                                         : text_usage("--data '%s': %lld tokens, expected more than a sequence of %lld",
                                                      s->data, (long long)data_count(set), (long long)is->context);
}

/* Images may lack classes that the network knows, but have no other. */
static int check_labels(const data_set *set, const struct settings *s, const struct trained *is) {
    for (int64_t i = 0; data_classes(set) > is->classes && i < data_count(set); i++)
        if (data_label(set, i) >= is->classes)
            return text_failed("--data '%s': image %lld has label %d, the network of %s has %lld classes", s->data,
                               (long long)i, data_label(set, i), s->checkpoint, (long long)is->classes);
    return STATUS_OK;
}

int trained_data(data_set **set, const struct settings *s, const struct trained *is) {
    failure_forget();
    *set = data_open(s->data, strcmp(s->split, "train") ? DATA_TEST : DATA_TRAIN);
    if (!*set) {
        char *kind = text_format("%.*s", (int)strcspn(s->data, ":"), s->data);
        int status = failure_is_usage() ? text_usage("--data '%s': %s%s", s->data, tensor_error(),
                                                     text_did_you_mean(kind, options_data_kind))
                                        : text_failed("--data '%s': %s", s->data, tensor_error());
        free(kind);
        return status;
    }
    if (data_is_text(*set) != is->text)
        return text_usage("--data '%s': %s, but %s, the model of %s, reads %s", s->data, is->text ? "images" : "a text",
                          is->model, s->checkpoint, is->text ? "texts (text:FILE)" : "images");
    if (s->test_limit > data_count(*set))
        return text_usage("--test-limit %lld: there are %lld %s", (long long)s->test_limit, (long long)data_count(*set),
                          is->text ? "tokens" : "images");
    if (s->test_limit && data_limit(*set, s->test_limit))
        return text_failed("%s", tensor_error());
    if (is->text)
        return check_text(*set, s, is);
    if (data_height(*set) != is->height || data_width(*set) != is->width || data_channels(*set) != is->channels)
        return text_failed("--data '%s': images of %dx%dx%d, the network takes %lldx%lldx%lld", s->data,
                           data_height(*set), data_width(*set), data_channels(*set), (long long)is->height,
                           (long long)is->width, (long long)is->channels);
    return check_labels(*set, s, is);
}
