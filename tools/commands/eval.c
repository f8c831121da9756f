/* eval.c - the command `eval`: loss and accuracy of a network that `train` has written. */
#include "commands/commands.h"
#include "base/failure.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "options/options.h"
#include "programs/networks.h"
#include "base/text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHANNELS = 4, NOTE_ROOM = 200 };

/* The properties, from the file, of the images or the text that its network reads. */
struct images {
    char model[NOTE_ROOM], format[NOTE_ROOM], vocabulary[NOTE_ROOM];
    bool text;
    int64_t height, width, channels, classes, batch, steps, context;
    double mean[CHANNELS], deviation[CHANNELS];
};

static int read_whole(const char *path, const char *key, int64_t high, int64_t *value) {
    char text[NOTE_ROOM];
    if (nn_checkpoint_note(text, sizeof text, path, key))
        return text_failed("%s", tensor_error());
    if (text_whole(text, 0, high, value))
        return STATUS_OK;
    return text_failed("%s: '%s' is '%s', expected a whole number", path, key, text);
}

/* Reads one number for each channel, separated by spaces. */
static int read_reals(const char *path, const char *key, int64_t channels, double values[CHANNELS]) {
    char text[NOTE_ROOM], *rest = text;
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

static int read_text(struct images *is, const char *path) {
    if (nn_checkpoint_note(is->vocabulary, sizeof is->vocabulary, path, "training.vocabulary"))
        return text_failed("%s", tensor_error());
    int status = read_whole(path, "training.context", 65536, &is->context);
    return status == STATUS_OK && !is->context ? text_failed("%s: 'training.context' is 0", path) : status;
}

/* Refuses a file without the notes of `train`, with a message about its possible uses. */
static int refuse_foreign(const char *path) {
    char text[NOTE_ROOM];
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

static int read_images(struct images *is, const char *path) {
    if (nn_checkpoint_note(is->model, sizeof is->model, path, "training.model") &&
        tensor_error_status() == TENSOR_E_DATA && strstr(tensor_error(), "metadata have no 'training.model'"))
        return refuse_foreign(path);
    if (nn_checkpoint_note(is->model, sizeof is->model, path, "training.model") ||
        nn_checkpoint_note(is->format, sizeof is->format, path, "network.variant"))
        return text_failed("%s", tensor_error());
    const struct {
        const char *key;
        int64_t high, *value;
    } wholes[] = {{"training.height", 4096, &is->height},         {"training.width", 4096, &is->width},
                  {"training.channels", CHANNELS, &is->channels}, {"training.classes", 65536, &is->classes},
                  {"network.batch", 65536, &is->batch},           {"network.steps", INT64_MAX, &is->steps}};
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes && status == STATUS_OK; i++)
        status = read_whole(path, wholes[i].key, wholes[i].high, wholes[i].value);
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

static int check_size(const struct images *is, const nn_graph *g, const char *path) {
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

static int open_network(nn_graph **g, const struct settings *s, const struct images *is) {
    int status = check_size(is, NULL, s->checkpoint); /* before the layers are made */
    if (status)
        return status;
    *g = nn_checkpoint_graph(s->checkpoint, s->device);
    if (!*g)
        return text_failed("%s", tensor_error());
    const nn_node logits =
        is->text ? nn_model_text(*g, is->model, (int)is->context, (int)is->classes)
                 : nn_model(*g, is->model, (int)is->height, (int)is->width, (int)is->channels, (int)is->classes);
    if (logits >= 0)
        status = check_size(is, *g, s->checkpoint);
    if (status == STATUS_OK &&
        (nn_graph_limit(*g, s->memory << 30) || nn_compile(*g, logits) || nn_checkpoint_load(*g, s->checkpoint)))
        status = refuse_network(s);
    return status;
}

static int check_text(const data_set *set, const struct settings *s, const struct images *is) {
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
static int check_labels(const data_set *set, const struct settings *s, const struct images *is) {
    for (int64_t i = 0; data_classes(set) > is->classes && i < data_count(set); i++)
        if (data_label(set, i) >= is->classes)
            return text_failed("--data '%s': image %lld has label %d, the network of %s has %lld classes", s->data,
                               (long long)i, data_label(set, i), s->checkpoint, (long long)is->classes);
    return STATUS_OK;
}

static int open_data(data_set **set, const struct settings *s, const struct images *is) {
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

/* Evaluates all batches, with `each` labels for each sample, and sums as nn_train does, so that the numbers are the
 * same bits. */
static tensor_status evaluate(nn_graph *g, data_loader *loader, int64_t each, int32_t *predicted, double *loss,
                              int64_t *correct, int64_t *done) {
    tensor_status status = data_loader_start(loader, 0);
    data_batch batch;
    *loss = 0;
    *correct = *done = 0;
    while (!status && !(status = data_loader_next(&batch, loader)) && batch.count) {
        double mean;
        const int64_t labels = batch.count * each;
        const int32_t *expected = batch.tokens ? batch.targets : batch.labels;
        status = batch.tokens
                     ? nn_evaluate(&mean, predicted, g,
                                   &(nn_batch){.tokens = batch.tokens, .labels = batch.targets, .count = batch.count})
                     : nn_evaluate(&mean, predicted, g,
                                   &(nn_batch){.images = batch.images, .labels = batch.labels, .count = batch.count});
        for (int64_t i = 0; i < labels && !status; i++)
            *correct += predicted[i] == expected[i];
        *loss += status ? 0 : mean * (double)labels;
        *done += labels;
    }
    return status;
}

static void print_result(const struct settings *s, const struct images *is, double loss, int64_t correct,
                         int64_t done) {
    char *shown = text_shown(s->checkpoint);
    printf("%s: %s in %s after %lld steps, on %lld %s\n", shown, is->model, is->format, (long long)is->steps,
           (long long)done, is->text ? "tokens" : "images");
    printf("loss      %.9g\naccuracy  %.9g\n", loss, (double)correct / (double)done);
    if (is->text)
        printf("bits      %.9g\nperplexity %.9g\n", loss / log(2), exp(loss));
    free(shown);
}

static int evaluate_all(const struct settings *s, const struct images *is, nn_graph *g, const data_set *set) {
    const data_loader_config how = {.batch = (int)is->batch,
                                    .mean = is->text ? NULL : is->mean,
                                    .deviation = is->text ? NULL : is->deviation,
                                    .context = (int)is->context};
    data_loader *loader = data_loader_new(set, &how);
    int32_t *predicted = text_alloc((size_t)nn_label_count(g), sizeof *predicted);
    double loss = 0;
    int64_t correct = 0, done = 0;
    int status = STATUS_OK;
    if (!loader || evaluate(g, loader, nn_label_count(g) / is->batch, predicted, &loss, &correct, &done))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK)
        print_result(s, is, loss / (double)done, correct, done);
    if (status == STATUS_OK && !isfinite(loss))
        status = text_failed("%s: the loss is %s: the network computes no numbers on these %s", s->checkpoint,
                             isnan(loss) ? "NaN" : "infinite", is->text ? "tokens" : "images");
    free(predicted);
    data_loader_free(loader);
    return status;
}

/* A network of `train`, or of another program. */
static int check_file(const struct settings *s) {
    const char *const only = s->formats         ? "formats"
                             : s->mean          ? "mean"
                             : s->deviation     ? "std"
                             : s->layout        ? "layout"
                             : s->rounding      ? "rounding"
                             : s->batch         ? "batch"
                             : s->calibration   ? "calibrate"
                             : s->network_model ? "model"
                             : s->weight_layout ? "weight-layout"
                             : s->image_size    ? "image"
                                                : NULL;
    if (s->checkpoint && s->folder_count)
        return text_usage("unexpected argument '%s' beside --checkpoint", s->folders[0]);
    if (!s->checkpoint && !s->folder_count)
        return text_usage("expected --checkpoint FILE, or the file of a network; see --help");
    if (s->checkpoint && only)
        return text_usage("--%s: not with --checkpoint, whose file says it", only);
    if (s->folder_count && s->device)
        return text_usage("--device: only with --checkpoint");
    return STATUS_OK;
}

int command_eval(int argc, char **argv) {
    struct settings settings;
    struct images images = {0};
    nn_graph *g = NULL;
    data_set *set = NULL;
    failure_watch();
    int status = options_parse(&settings, COMMAND_EVAL, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_EVAL, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = check_file(&settings);
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK && settings.folder_count)
        return network_eval(&settings);
    if (status == STATUS_OK)
        status = read_images(&images, settings.checkpoint);
    if (status == STATUS_OK)
        status = open_data(&set, &settings, &images);
    if (status == STATUS_OK)
        status = open_network(&g, &settings, &images);
    if (status == STATUS_OK)
        status = evaluate_all(&settings, &images, g, set);
    nn_graph_free(g);
    data_free(set);
    return status;
}
