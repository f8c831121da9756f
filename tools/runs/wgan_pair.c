/* wgan_pair.c - a generator and its critic, trained alternately. The networks are those of DCGAN (Radford et al. 2016):
 * four convolutions each, of which the generator's are transposed.
 *
 * The critic's batch is twice the generator's: generated images, then real ones. In a step of the generator the
 * second half does not count. The random numbers of a step depend only on the number of steps before it, so that the
 * states of the two networks are the whole state. */
#include "runs/wgan_pair.h"
#include "base/failure.h"
#include "base/text.h"
#include "core/base/files.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVIATION 0.02 /* of the generator's weights at first */
#define SLOPE 0.2f     /* of the critic's leaky relu below zero */

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const tensor_status try_status = (call);                                                                       \
        if (try_status)                                                                                                \
            return try_status;                                                                                         \
    } while (0)

enum { MOST_SIDE = 256, NOT_COUNTED = -1 };

/* The images on which a pair is trained: their number, and a hash of their pixels. Empty: not known. */
struct identity {
    char text[64];
};

struct wgan {
    struct wgan_config how;
    nn_graph *generator, *critic;
    int64_t pixels;              /* of `batch` images */
    float *latent, *both;        /* inputs of the generator; generated images, then real ones */
    double *numbers;             /* latent numbers, or images, in double */
    int32_t *labels;             /* of both halves */
    struct wgan_nonfinite first; /* NaN or Inf of either network; step 0: none so far */
    struct identity data;        /* that of the last wgan_train */
    struct identity recorded;    /* in the files that it resumes from */
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static tensor_status check_between(const char *what, int value, int least, int most) {
    return value >= least && value <= most
               ? TENSOR_OK
               : failure_set(TENSOR_E_ARGUMENT, "wgan: %s %d, expected %d to %d", what, value, least, most);
}

static tensor_status check_config(struct wgan_config *how) {
    how->latent = how->latent ? how->latent : 64;
    how->filters = how->filters ? how->filters : 32;
    how->critic_steps = how->critic_steps ? how->critic_steps : 5;
    how->rate = how->rate != 0 ? how->rate : 5e-5f;
    how->clip = how->clip != 0 ? how->clip : 0.01f;
    TRY(check_between("batch", how->batch, 1, 1 << 20));
    TRY(check_between("side", how->side, 8, MOST_SIDE));
    if (how->side % 8)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: side %d, expected a multiple of 8", how->side);
    TRY(check_between("channels", how->channels, 1, 4));
    TRY(check_between("latent", how->latent, 1, 4096));
    TRY(check_between("filters", how->filters, 1, 1024));
    TRY(check_between("critic_steps", how->critic_steps, 1, 1000));
    if (!(how->rate > 0 && isfinite(how->rate)) || !(how->clip > 0 && isfinite(how->clip)))
        return failure_set(TENSOR_E_ARGUMENT, "wgan: rate %g, clip %g, expected more than 0", (double)how->rate,
                           (double)how->clip);
    return TENSOR_OK;
}

static nn_graph *new_graph(const struct wgan_config *how, bool critic) {
    return nn_graph_new(&(nn_config){.variant = how->variant,
                                     .policy = how->policy,
                                     .layer_formats = how->layer_formats,
                                     .predictor = how->predictor,
                                     .device = how->device,
                                     .no_master = how->no_master != 0,
                                     .batch = critic ? 2 * how->batch : how->batch,
                                     .seed = how->seed,
                                     .optimiser = "rmsprop",
                                     .loss_scale = how->loss_scale,
                                     .loss = critic ? "wasserstein" : "none",
                                     .ignores = critic,
                                     .ignored_label = critic ? NOT_COUNTED : 0,
                                     .input_gradient = critic});
}

/* The critic has the policy as the generator has read it, because a file may change. */
static tensor_status new_graphs(struct wgan *w) {
    struct wgan_config how = w->how;
    if (!(w->generator = new_graph(&how, false)))
        return tensor_error_status();
    if (nn_graph_policy(w->generator)) {
        how.policy = nn_graph_policy(w->generator);
        how.variant = how.layer_formats = NULL;
    }
    w->critic = new_graph(&how, true);
    return w->critic ? TENSOR_OK : tensor_error_status();
}

static nn_node transposed(nn_graph *g, const char *name, nn_node x, int channels, int window, int stride, int padding) {
    return nn_conv_transpose2d(g, name, x, channels, window,
                               &(nn_conv2d_options){.stride = stride, .padding = padding, .deviation = DEVIATION});
}

static nn_node build_generator(nn_graph *g, const struct wgan_config *how) {
    const nn_batchnorm_options relu = {.relu = true};
    nn_node x = nn_input(g, 1, 1, how->latent);
    x = transposed(g, "up1", x, 4 * how->filters, how->side / 8, 1, 0); /* a linear layer */
    x = nn_batchnorm(g, "bn1", x, &relu);
    x = nn_batchnorm(g, "bn2", transposed(g, "up2", x, 2 * how->filters, 4, 2, 1), &relu);
    x = nn_batchnorm(g, "bn3", transposed(g, "up3", x, how->filters, 4, 2, 1), &relu);
    return nn_activation(g, "image", transposed(g, "up4", x, how->channels, 4, 2, 1), "tanh");
}

static nn_node build_critic(nn_graph *g, const struct wgan_config *how) {
    const nn_conv2d_options down = {.stride = 2, .padding = 1};
    nn_node x = nn_input(g, how->side, how->side, how->channels);
    x = nn_leaky_relu(g, "leaky1", nn_conv2d(g, "down1", x, how->filters, 4, &down), SLOPE);
    x = nn_leaky_relu(g, "leaky2", nn_conv2d(g, "down2", x, 2 * how->filters, 4, &down), SLOPE);
    x = nn_leaky_relu(g, "leaky3", nn_conv2d(g, "down3", x, 4 * how->filters, 4, &down), SLOPE);
    return nn_conv2d(g, "score", x, 1, how->side / 8, NULL);
}

static tensor_status build(struct wgan *w) {
    const struct wgan_config *how = &w->how;
    TRY(new_graphs(w));
    const nn_node image = build_generator(w->generator, how), score = build_critic(w->critic, how);
    TRY(nn_share_policy(w->generator, w->critic));
    TRY(nn_compile(w->generator, image));
    TRY(nn_compile(w->critic, score));
    TRY(nn_clip_weights(w->critic, how->clip));
    w->pixels = (int64_t)how->batch * how->side * how->side * how->channels;
    const int64_t latent = (int64_t)how->batch * how->latent, most = latent > w->pixels ? latent : w->pixels;
    w->latent = text_alloc((size_t)latent, sizeof *w->latent);
    w->both = text_alloc(2 * (size_t)w->pixels, sizeof *w->both);
    w->numbers = text_alloc((size_t)most, sizeof *w->numbers);
    w->labels = text_alloc(2 * (size_t)how->batch, sizeof *w->labels);
    return TENSOR_OK;
}

struct wgan *wgan_new(const struct wgan_config *config) {
    if (!config) {
        failure_set(TENSOR_E_ARGUMENT, "wgan: config is NULL");
        return NULL;
    }
    struct wgan_config how = *config;
    if (check_config(&how))
        return NULL;
    struct wgan *w = text_alloc(1, sizeof *w);
    w->how = how;
    if (!build(w))
        return w;
    wgan_free(w);
    return NULL;
}

void wgan_free(struct wgan *w) {
    if (!w)
        return;
    nn_graph_free(w->generator);
    nn_graph_free(w->critic);
    free(w->latent);
    free(w->both);
    free(w->numbers);
    free(w->labels);
    free(w);
}

nn_graph *wgan_generator(const struct wgan *w) {
    return w ? w->generator : NULL;
}
nn_graph *wgan_critic(const struct wgan *w) {
    return w ? w->critic : NULL;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Draws standard normal numbers for a seed and a purpose. */
static tensor_status draw_latent(struct wgan *w, uint64_t seed, const char *what, uint64_t number) {
    const int64_t count = (int64_t)w->how.batch * w->how.latent;
    char name[64];
    snprintf(name, sizeof name, "latent.%s.%llu", what, (unsigned long long)number);
    TRY(nn_normal_numbers(w->numbers, count, seed, name));
    for (int64_t i = 0; i < count; i++)
        w->latent[i] = (float)w->numbers[i];
    return TENSOR_OK;
}

/* Makes a training pass of the generator; its images are the first half of `both`. */
static tensor_status generate(struct wgan *w, const char *what, uint64_t number) {
    TRY(draw_latent(w, w->how.seed, what, number));
    TRY(nn_forward(w->generator, &(nn_batch){.images = w->latent}));
    const tensor *images = nn_output(w->generator);
    return images ? tensor_store_f32(images, w->both, w->pixels) : tensor_error_status();
}

static void set_labels(struct wgan *w, int32_t generated, int32_t real) {
    for (int i = 0; i < w->how.batch; i++) {
        w->labels[i] = generated;
        w->labels[w->how.batch + i] = real;
    }
}

/* --- the first NaN or Inf ----------------------------------------------------------------------------------------- */

static bool is_in(const char *pass, const char *a, const char *b) {
    return !strcmp(pass, a) || !strcmp(pass, b);
}

/* Looks for a NaN or Inf in g after a step of `stepping`, whose loss scale may leave out the step: such gradients are
 * how a dynamic scale finds its value. forward_alone: the other passes of this network are examined later. */
static tensor_status look(struct wgan *w, nn_graph *g, const nn_graph *stepping, bool forward_alone) {
    const nn_nonfinite *found;
    nn_loss_scale scaling;
    TRY(nn_find_nonfinite(&found, g));
    TRY(nn_loss_scale_of(&scaling, stepping));
    if (!found || (forward_alone && !is_in(found->pass, "input", "forward")) ||
        (!strcmp(found->pass, "backward") && scaling.in_a_row && scaling.in_a_row < NN_STARVED))
        return TENSOR_OK;
    w->first = (struct wgan_nonfinite){*found, g == w->critic ? "critic" : "generator"};
    if (g != stepping)
        w->first.of.step = (int64_t)nn_steps(stepping);
    return TENSOR_OK;
}

/* After a step of the critic. Half of its batch are images from a forward pass of the generator, which counts with the
 * generator's next step. */
static tensor_status look_at_critic(struct wgan *w) {
    if (w->first.of.step)
        return TENSOR_OK;
    TRY(look(w, w->generator, w->generator, false));
    return w->first.of.step ? TENSOR_OK : look(w, w->critic, w->critic, false);
}

/* After a step of the generator: forward through the critic, then back to the generator. */
static tensor_status look_at_generator(struct wgan *w) {
    if (w->first.of.step)
        return TENSOR_OK;
    TRY(look(w, w->generator, w->generator, true));
    if (!w->first.of.step)
        TRY(look(w, w->critic, w->generator, false));
    return w->first.of.step ? TENSOR_OK : look(w, w->generator, w->generator, false);
}

const struct wgan_nonfinite *wgan_nonfinite(const struct wgan *w) {
    return w && w->first.of.step ? &w->first : NULL;
}

/* --- a step of each ----------------------------------------------------------------------------------------------- */

tensor_status wgan_train_critic(double *estimate, struct wgan *w, const float *images) {
    double loss;
    nn_loss_scale scaling;
    if (!w || !images)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: %s is NULL", w ? "images" : "the pair of networks");
    TRY(generate(w, "critic", nn_steps(w->critic)));
    memcpy(w->both + w->pixels, images, (size_t)w->pixels * sizeof *images);
    set_labels(w, 0, 1);
    TRY(nn_forward(w->critic, &(nn_batch){.images = w->both, .labels = w->labels}));
    TRY(nn_backward(w->critic));
    TRY(nn_update(w->critic, w->how.rate));
    TRY(look_at_critic(w)); /* before an infinite weight is clipped */
    TRY(nn_loss_scale_of(&scaling, w->critic));
    if (!scaling.in_a_row) /* else the step was left out, and no weight was written */
        TRY(nn_clip_weights(w->critic, w->how.clip));
    if (!estimate)
        return TENSOR_OK;
    TRY(nn_loss(&loss, NULL, w->critic));
    *estimate = -loss;
    return TENSOR_OK;
}

/* The generated images also fill the other half, so that exponents depend on nothing else. The loss is the generator's,
 * and so is its scale all the way back through the critic. */
tensor_status wgan_train_generator(double *loss, struct wgan *w) {
    if (!w)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    TRY(generate(w, "generator", nn_steps(w->generator)));
    memcpy(w->both + w->pixels, w->both, (size_t)w->pixels * sizeof *w->both);
    set_labels(w, 1, NOT_COUNTED);
    TRY(nn_forward_scaled_by(w->critic, &(nn_batch){.images = w->both, .labels = w->labels}, w->generator));
    TRY(nn_backward(w->critic));
    if (loss)
        TRY(nn_loss(loss, NULL, w->critic));
    const tensor *gradient = nn_input_gradient(w->critic);
    if (!gradient)
        return tensor_error_status();
    TRY(nn_backward_from(w->generator, gradient)); /* the first half, that of the generated images */
    TRY(nn_update_through(w->generator, w->how.rate, w->critic));
    return look_at_generator(w);
}

tensor_status wgan_generate(float *images, struct wgan *w, uint64_t seed, int count) {
    if (!w || !images)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: %s is NULL", w ? "images" : "the pair of networks");
    TRY(check_between("images", count, 1, w->how.batch));
    const size_t bytes = nn_state_bytes(w->generator);
    void *state = text_alloc(bytes, 1);
    tensor_status status = draw_latent(w, seed, "sample", 0);
    if (!status)
        status = nn_state_save(state, bytes, w->generator);
    if (!status)
        status = nn_predict(w->numbers, w->generator, &(nn_batch){.images = w->latent, .count = count});
    for (int64_t i = 0; i < w->pixels / w->how.batch * count && !status; i++)
        images[i] = (float)w->numbers[i];
    if (!status)
        status = nn_state_restore(w->generator, state,
                                  bytes); /* undoes changes of exponents and their histories by the evaluation */
    free(state);
    return status;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static tensor_status open_images(const struct wgan *w, const data_set *set, data_loader **loader) {
    static const double mean[4] = {0.5, 0.5, 0.5, 0.5}; /* and deviation: bytes become -1 ... 1 */
    const struct wgan_config *how = &w->how;
    if (!set || data_is_text(set))
        return failure_set(TENSOR_E_ARGUMENT, "wgan: the set is %s, expected images", set ? "a text" : "NULL");
    if (data_height(set) != how->side || data_width(set) != how->side || data_channels(set) != how->channels)
        return failure_set(TENSOR_E_SHAPE, "wgan: images of %dx%dx%d, expected %dx%dx%d", data_height(set),
                           data_width(set), data_channels(set), how->side, how->side, how->channels);
    if (data_count(set) < how->batch)
        return failure_set(TENSOR_E_SHAPE, "wgan: batches of %d, but only %lld images", how->batch,
                           (long long)data_count(set));
    *loader = data_loader_new(set, &(data_loader_config){.batch = how->batch,
                                                         .seed = how->seed,
                                                         .shuffle = true,
                                                         .drop_last = true,
                                                         .mean = mean,
                                                         .deviation = mean});
    return *loader ? TENSOR_OK : tensor_error_status();
}

/* A resumed training needs the images recorded in its files, in the same order: others would give another training.
 */
static tensor_status know_images(struct wgan *w, const data_set *set) {
    struct identity data;
    snprintf(data.text, sizeof data.text, "%lld images (%016llx)", (long long)data_count(set),
             (unsigned long long)data_hash(set, false));
    if (*w->recorded.text && strcmp(w->recorded.text, data.text) != 0)
        return failure_set(TENSOR_E_DATA,
                           "wgan: the pair was trained with %s, this set has %s: expected the same, in the same order",
                           w->recorded.text, data.text);
    w->data = data;
    return TENSOR_OK;
}

/* Makes the critic's steps before one of the generator; *estimate: their mean. */
static tensor_status train_critic(struct wgan *w, data_loader *loader, double *estimate) {
    const uint64_t batches = (uint64_t)data_loader_batches(loader);
    *estimate = 0;
    for (int i = 0; i < w->how.critic_steps; i++) {
        data_batch batch;
        double one;
        const uint64_t step = nn_steps(w->critic);
        if (step % batches == 0 && step / batches > INT32_MAX)
            return failure_set(TENSOR_E_ARGUMENT, "wgan: more than 2^31 passes over the set");
        if (step % batches == 0)
            TRY(data_loader_start(loader, (int)(step / batches)));
        TRY(data_loader_next(&batch, loader));
        TRY(wgan_train_critic(&one, w, batch.images));
        *estimate += one / w->how.critic_steps;
    }
    return TENSOR_OK;
}

static tensor_status train(struct wgan *w, data_loader *loader, int64_t steps,
                           int (*report)(void *context, const struct wgan_report *report), void *context) {
    const uint64_t batches = (uint64_t)data_loader_batches(loader), at = nn_steps(w->critic);
    TRY(data_loader_seek(loader, (int)(at / batches % INT32_MAX), (int64_t)(at % batches)));
    while (nn_steps(w->generator) < (uint64_t)steps) {
        struct wgan_report r = {.step = (int64_t)nn_steps(w->generator) + 1};
        TRY(train_critic(w, loader, &r.estimate));
        TRY(wgan_train_generator(&r.loss, w));
        if (report && report(context, &r))
            break;
    }
    return TENSOR_OK;
}

tensor_status wgan_train(struct wgan *w, const data_set *set, int64_t steps,
                         int (*report)(void *context, const struct wgan_report *report), void *context) {
    data_loader *loader = NULL;
    if (!w || steps < 0)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: %s", w ? "steps below 0" : "the pair of networks is NULL");
    TRY(open_images(w, set, &loader));
    tensor_status status = know_images(w, set);
    if (!status)
        status = train(w, loader, steps, report, context);
    data_loader_free(loader);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char place_key[] = "wgan.steps"; /* of the critic, of the generator */
static const char settings_key[] = "wgan.settings";
static const char data_key[] = "wgan.data";
enum { SETTINGS_ROOM = 120 };

/* The settings of a pair that its networks do not record. */
static void settings_text(const struct wgan *w, char text[SETTINGS_ROOM]) {
    snprintf(text, SETTINGS_ROOM, "critic_steps=%d rate=%.9g clip=%.9g", w->how.critic_steps, (double)w->how.rate,
             (double)w->how.clip);
}

/* Files from before there were settings have none. */
static tensor_status check_settings(const struct wgan *w, const char *critic) {
    char own[SETTINGS_ROOM], found[SETTINGS_ROOM];
    settings_text(w, own);
    const tensor_status status = nn_checkpoint_note(found, sizeof found, critic, settings_key);
    if (status == TENSOR_E_DATA)
        return TENSOR_OK;
    TRY(status);
    return !strcmp(own, found) ? TENSOR_OK
                               : failure_set(TENSOR_E_DATA, "wgan: %s: the pair was trained with %s, this one has %s",
                                             critic, found, own);
}

/* The first NaN or Inf so far; missing if there is none. */
static const char nonfinite_key[] = "wgan.nonfinite";

/* Writes 1 for the critic or 0 for the generator, then the text of the library; an empty text if there is none. */
static tensor_status nonfinite_note(const struct wgan *w, char text[SETTINGS_ROOM]) {
    const bool critic = w->first.network && !strcmp(w->first.network, "critic");
    text[0] = 0;
    if (!w->first.of.step)
        return TENSOR_OK;
    snprintf(text, SETTINGS_ROOM, "%d ", critic);
    return nn_nonfinite_save(text + 2, SETTINGS_ROOM - 2, critic ? w->critic : w->generator, &w->first.of);
}

/* The larger number of steps of the two networks in the files. */
static tensor_status read_steps(const char *critic, const char *generator, int64_t *steps) {
    char text[2][32];
    TRY(nn_checkpoint_note(text[0], sizeof text[0], critic, "network.steps"));
    TRY(nn_checkpoint_note(text[1], sizeof text[1], generator, "network.steps"));
    const int64_t a = strtoll(text[0], NULL, 10), b = strtoll(text[1], NULL, 10);
    *steps = a > b ? a : b;
    return TENSOR_OK;
}

/* Reads the first NaN or Inf from the files before they are loaded. Its step may be that of the other network, and
 * unfinished. */
static tensor_status read_nonfinite(struct wgan *w, const char *critic, const char *generator,
                                    struct wgan_nonfinite *first) {
    char text[SETTINGS_ROOM];
    int64_t steps;
    const tensor_status status = nn_checkpoint_note(text, sizeof text, critic, nonfinite_key);
    *first = (struct wgan_nonfinite){.network = NULL};
    if (status)
        return status == TENSOR_E_DATA ? TENSOR_OK : status;
    if ((text[0] != '0' && text[0] != '1') || text[1] != ' ')
        return failure_set(TENSOR_E_DATA, "wgan: %s: '%s' is '%s', expected 0 or 1, then what was found", critic,
                           nonfinite_key, text);
    const bool of_critic = text[0] == '1';
    TRY(read_steps(critic, generator, &steps));
    TRY(nn_nonfinite_restore(&first->of, of_critic ? w->critic : w->generator, steps < INT64_MAX ? steps + 1 : steps,
                             text + 2, critic));
    first->network = of_critic ? "critic" : "generator";
    return TENSOR_OK;
}

static tensor_status path_of(const char *prefix, const char *network, char **path) {
    if (!prefix)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: the prefix of its files is NULL");
    *path = text_format("%s.%s.safetensors", prefix, network);
    return TENSOR_OK;
}

static tensor_status save_network(const struct wgan *w, const nn_graph *g, const char *path, const char *place) {
    char settings[SETTINGS_ROOM], nonfinite[SETTINGS_ROOM];
    settings_text(w, settings);
    TRY(nonfinite_note(w, nonfinite));
    const struct identity *data = *w->data.text ? &w->data : &w->recorded;
    nn_note notes[4] = {{place_key, place}, {settings_key, settings}};
    int count = 2;
    if (*data->text)
        notes[count++] = (nn_note){data_key, data->text};
    if (*nonfinite)
        notes[count++] = (nn_note){nonfinite_key, nonfinite};
    return nn_checkpoint_save(g, path, notes, count);
}

/* Writes the networks beside their files, so that no file changes before both can. */
static tensor_status save_pair(const struct wgan *w, char *const path[2], char *const beside[2], const char *place) {
    const nn_graph *networks[] = {w->critic, w->generator};
    char why[FL_FILE_WHY];
    for (int i = 0; i < 2; i++)
        if (!fl_file_may_take(path[i], why))
            return failure_set(TENSOR_E_IO, "wgan: %s", why);
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = save_network(w, networks[i], beside[i], place);
    for (int i = 0; i < 2 && !status; i++)
        if (!fl_file_publish(beside[i], path[i], why))
            status = failure_set(TENSOR_E_IO, "wgan: %s", why);
    for (int i = 0; i < 2 && status; i++)
        unlink(beside[i]);
    return status;
}

tensor_status wgan_save(const struct wgan *w, const char *prefix) {
    static const char *const names[] = {"critic", "generator"};
    char place[64], *path[2] = {NULL, NULL}, *beside[2];
    if (!w)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    snprintf(place, sizeof place, "%llu %llu", (unsigned long long)nn_steps(w->critic),
             (unsigned long long)nn_steps(w->generator));
    for (int i = 0; i < 2; i++) {
        TRY(path_of(prefix, names[i], &path[i]));
        beside[i] = text_format("%s.part", path[i]);
    }
    const tensor_status status = save_pair(w, path, beside, place);
    for (int i = 0; i < 2; i++) {
        free(path[i]);
        free(beside[i]);
    }
    return status;
}

/* Older files, and pairs that are trained step by step, have none. */
static tensor_status read_identity(const char *critic, struct identity *data) {
    const tensor_status status = nn_checkpoint_note(data->text, sizeof data->text, critic, data_key);
    if (status == TENSOR_E_DATA)
        *data = (struct identity){""};
    return status == TENSOR_E_DATA ? TENSOR_OK : status;
}

/* Loads both networks, or changes nothing; they must be of one step. The second of two good files may still be of
 * another network. */
static tensor_status load_both(struct wgan *w, const char *critic, const char *generator) {
    char places[2][64];
    struct identity recorded;
    struct wgan_nonfinite first;
    TRY(nn_checkpoint_note(places[0], sizeof places[0], critic, place_key));
    TRY(nn_checkpoint_note(places[1], sizeof places[1], generator, place_key));
    if (strcmp(places[0], places[1]) != 0)
        return failure_set(TENSOR_E_DATA, "wgan: %s is of step '%s', %s of '%s'", critic, places[0], generator,
                           places[1]);
    TRY(check_settings(w, critic));
    TRY(read_identity(critic, &recorded));
    TRY(read_nonfinite(w, critic, generator, &first));
    const size_t bytes = nn_state_bytes(w->generator);
    void *before = text_alloc(bytes, 1);
    tensor_status status = nn_state_save(before, bytes, w->generator);
    /* the generator first: a message about another batch has the number that was given, not the critic's, twice that */
    if (!status && !(status = nn_checkpoint_load(w->generator, generator)) &&
        (status = nn_checkpoint_load(w->critic, critic))) {
        char why[400];
        snprintf(why, sizeof why, "%s", failure_message());
        if (!nn_state_restore(w->generator, before, bytes))
            status = failure_set(status, "%s", why);
    }
    free(before);
    if (!status) {
        w->first = first;
        w->recorded = recorded;
        w->data = (struct identity){""};
    }
    return status;
}

tensor_status wgan_load(struct wgan *w, const char *prefix) {
    char *critic = NULL, *generator = NULL;
    if (!w)
        return failure_set(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    TRY(path_of(prefix, "critic", &critic));
    tensor_status status = path_of(prefix, "generator", &generator);
    if (!status)
        status = load_both(w, critic, generator);
    free(critic);
    free(generator);
    return status;
}
