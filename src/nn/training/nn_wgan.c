/* nn_wgan.c - a generator and its critic in turns.
 *
 * The critic's batch is twice the generator's: generated images, then real ones. In a step of the generator the second
 * half counts nothing. What a step draws depends on the number of steps before it alone, so that the state of the two
 * networks is all there is. */
#include "nn/models/nn_models_wgan.h"
#include "nn/training/nn_training.h"
#include "nn/policies/nn_types.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/sized.h"
#include "core/base/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 256, NOT_COUNTED = -1 };

/* Of a set what a pair is trained with: how many images, and a hash of their pixels. Empty: not known. */
struct identity {
    char text[64];
};

struct nn_wgan {
    nn_wgan_config how;
    nn_graph *generator, *critic;
    int64_t pixels;               /* of `batch` images */
    float *latent, *both;         /* what images are generated from; generated images, then real ones */
    double *numbers;              /* latent numbers, or images, in double */
    int32_t *labels;              /* of both halves */
    struct fl_slot_copies *slots; /* of a device; NULL until the first step */
    nn_nonfinite first;           /* NaN or Inf of either network; step 0: none so far */
    struct identity data;         /* what nn_wgan_train was given last */
    struct identity told;         /* of the files that it goes on from */
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static tensor_status check_between(const char *what, int value, int least, int most) {
    return value >= least && value <= most
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "wgan: %s %d, expected %d to %d", what, value, least, most);
}

static tensor_status check_config(nn_wgan_config *how) {
    how->latent = how->latent ? how->latent : 64;
    how->filters = how->filters ? how->filters : 32;
    how->critic_steps = how->critic_steps ? how->critic_steps : 5;
    how->rate = how->rate != 0 ? how->rate : 5e-5f;
    how->clip = how->clip != 0 ? how->clip : 0.01f;
    TRY(check_between("batch", how->batch, 1, 1 << 20));
    TRY(check_between("side", how->side, 8, MOST_SIDE));
    if (how->side % 8)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: side %d, expected a multiple of 8", how->side);
    TRY(check_between("channels", how->channels, 1, 4));
    TRY(check_between("latent", how->latent, 1, 4096));
    TRY(check_between("filters", how->filters, 1, 1024));
    TRY(check_between("critic_steps", how->critic_steps, 1, 1000));
    if (!(how->rate > 0 && isfinite(how->rate)) || !(how->clip > 0 && isfinite(how->clip)))
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: rate %g, clip %g, expected more than 0", (double)how->rate,
                       (double)how->clip);
    return TENSOR_OK;
}

static nn_graph *new_graph(const nn_wgan_config *how, bool critic) {
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

/* The critic has the policy as the generator has read it: a file may change. */
static tensor_status new_graphs(nn_wgan *w) {
    nn_wgan_config how = w->how;
    if (!(w->generator = new_graph(&how, false)))
        return tensor_error_status();
    if (nn_graph_policy(w->generator)) {
        how.policy = nn_graph_policy(w->generator);
        how.variant = how.layer_formats = NULL;
    }
    w->critic = new_graph(&how, true);
    return w->critic ? TENSOR_OK : tensor_error_status();
}

static tensor_status build(nn_wgan *w) {
    const nn_wgan_config *how = &w->how;
    TRY(new_graphs(w));
    const nn_node image = fl_wgan_generator(w->generator, how->side, how->channels, how->latent, how->filters),
                  score = fl_wgan_critic(w->critic, how->side, how->channels, how->filters);
    TRY(fl_resolve_pair(w->generator, w->critic));
    TRY(nn_compile(w->generator, image));
    TRY(nn_compile(w->critic, score));
    TRY(nn_clip_weights(w->critic, how->clip));
    w->pixels = (int64_t)how->batch * how->side * how->side * how->channels;
    const int64_t latent = (int64_t)how->batch * how->latent, most = latent > w->pixels ? latent : w->pixels;
    w->latent = fl_alloc((size_t)latent * sizeof *w->latent);
    w->both = fl_alloc(2 * (size_t)w->pixels * sizeof *w->both);
    w->numbers = fl_alloc((size_t)most * sizeof *w->numbers);
    w->labels = fl_alloc(2 * (size_t)how->batch * sizeof *w->labels);
    return w->latent && w->both && w->numbers && w->labels
               ? TENSOR_OK
               : fl_fail(TENSOR_E_MEMORY, "wgan: no memory for batches of %d images", how->batch);
}

nn_wgan *nn_wgan_new_sized(const nn_wgan_config *given, size_t config_size) {
    nn_wgan_config how;
    if (!given) {
        fl_fail(TENSOR_E_ARGUMENT, "wgan: config is NULL");
        return NULL;
    }
    if (fl_take_sized(&how, sizeof how, given, config_size, "wgan: nn_wgan_config") || check_config(&how))
        return NULL;
    nn_wgan *w = fl_alloc_zero(sizeof *w);
    if (!w) {
        fl_fail(TENSOR_E_MEMORY, "wgan: no memory");
        return NULL;
    }
    w->how = how;
    if (!build(w))
        return w;
    nn_wgan_free(w);
    return NULL;
}

void nn_wgan_free(nn_wgan *w) {
    if (!w)
        return;
    if (w->slots)
        fl_slot_copies_free(w->critic->device, w->slots);
    nn_graph_free(w->generator);
    nn_graph_free(w->critic);
    fl_free(w->latent);
    fl_free(w->both);
    fl_free(w->numbers);
    fl_free(w->labels);
    fl_free(w);
}

nn_graph *nn_wgan_generator(const nn_wgan *w) {
    return w ? w->generator : NULL;
}
nn_graph *nn_wgan_critic(const nn_wgan *w) {
    return w ? w->critic : NULL;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Standard normal numbers of a seed and a purpose. */
static void draw_latent(nn_wgan *w, uint64_t seed, const char *what, uint64_t number) {
    const int64_t count = (int64_t)w->how.batch * w->how.latent;
    char name[64];
    snprintf(name, sizeof name, "latent.%s.%llu", what, (unsigned long long)number);
    fl_init_values(w->numbers, count, FL_INIT_NORMAL, 1, fl_name_key(seed, name));
    for (int64_t i = 0; i < count; i++)
        w->latent[i] = (float)w->numbers[i];
}

/* A training pass of the generator; its images are the first half of both. */
static tensor_status generate(nn_wgan *w, const char *what, uint64_t number) {
    draw_latent(w, w->how.seed, what, number);
    TRY(nn_forward_images(w->generator, w->latent));
    const tensor *images = nn_output(w->generator);
    return images ? tensor_store_f32(images, w->both, w->pixels) : tensor_error_status();
}

static void set_labels(nn_wgan *w, int32_t generated, int32_t real) {
    for (int i = 0; i < w->how.batch; i++) {
        w->labels[i] = generated;
        w->labels[w->how.batch + i] = real;
    }
}

/* --- the first NaN or Inf ----------------------------------------------------------------------------------------- */

/* The loss of each step is waited for: so are the slots. */
static tensor_status take_slots(nn_wgan *w) {
    nn_graph *g = w->critic;
    if (g->device == tensor_device_list(0))
        return TENSOR_OK;
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &w->slots)));
    return fl_taken(g, fl_slot_copies_end(g->device, w->slots));
}

/* `stepping` makes the step, and its loss scale leaves it out or not. Where only some parts of the step are asked for,
 * the others are looked at later. */
static tensor_status look(nn_wgan *w, nn_graph *g, const nn_graph *stepping, unsigned parts) {
    struct fl_first first;
    TRY(fl_find_first(g, w->slots, true, &first));
    if (!fl_counts(stepping, &first) || !(parts >> first.part & 1))
        return TENSOR_OK;
    TRY(fl_tell_first(g, w->slots, &first, &w->first));
    w->first.network = g == w->critic ? "critic" : "generator";
    if (g != stepping)
        w->first.step = (int64_t)nn_steps(stepping);
    return TENSOR_OK;
}

enum { FORWARD_PARTS = 1u << FL_PART_INPUT | 1u << FL_PART_FORWARD, ALL_PARTS = ~0u };

/* Half of its batch are images of the generator, which has gone forward for them in the step that it is about to make.
 */
static tensor_status look_at_critic(nn_wgan *w) {
    if (w->first.step)
        return TENSOR_OK;
    TRY(take_slots(w));
    TRY(look(w, w->generator, w->generator, ALL_PARTS));
    return w->first.step ? TENSOR_OK : look(w, w->critic, w->critic, ALL_PARTS);
}

/* Images of the generator, through the critic and back, to the generator. */
static tensor_status look_at_generator(nn_wgan *w) {
    if (w->first.step)
        return TENSOR_OK;
    TRY(take_slots(w));
    TRY(look(w, w->generator, w->generator, FORWARD_PARTS));
    if (!w->first.step)
        TRY(look(w, w->critic, w->generator, ALL_PARTS));
    return w->first.step ? TENSOR_OK : look(w, w->generator, w->generator, ALL_PARTS);
}

const nn_nonfinite *nn_wgan_nonfinite(const nn_wgan *w) {
    return w && w->first.step ? &w->first : NULL;
}

/* --- a step of each ----------------------------------------------------------------------------------------------- */

tensor_status nn_wgan_train_critic(nn_wgan *w, const float *images, double *estimate) {
    double loss;
    if (!w || !images)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: %s is NULL", w ? "images" : "the pair of networks");
    TRY(generate(w, "critic", nn_steps(w->critic)));
    memcpy(w->both + w->pixels, images, (size_t)w->pixels * sizeof *images);
    set_labels(w, 0, 1);
    TRY(nn_forward(w->critic, w->both, w->labels));
    TRY(nn_backward(w->critic));
    TRY(nn_update(w->critic, w->how.rate));
    TRY(look_at_critic(w));               /* before an infinite weight is clipped */
    if (!w->critic->scaling.now.in_a_row) /* else the step was left out, and no weight is written */
        TRY(nn_clip_weights(w->critic, w->how.clip));
    if (!estimate)
        return TENSOR_OK;
    TRY(nn_loss(w->critic, &loss, NULL));
    *estimate = -loss;
    return TENSOR_OK;
}

/* The generated images stand in the other half as well, so that exponents see nothing else. The loss is the
 * generator's, and so is its scale all the way back through the critic. */
tensor_status nn_wgan_train_generator(nn_wgan *w, double *loss) {
    if (!w)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    TRY(generate(w, "generator", nn_steps(w->generator)));
    memcpy(w->both + w->pixels, w->both, (size_t)w->pixels * sizeof *w->both);
    set_labels(w, 1, NOT_COUNTED);
    fl_loss_scale_lend(w->critic, w->generator);
    const tensor_status status = nn_forward(w->critic, w->both, w->labels);
    fl_loss_scale_lend(w->critic, NULL);
    TRY(status);
    TRY(nn_backward(w->critic));
    if (loss)
        TRY(nn_loss(w->critic, loss, NULL));
    const tensor *gradient = nn_input_gradient(w->critic);
    if (!gradient)
        return tensor_error_status();
    TRY(nn_backward_from(w->generator, gradient)); /* its first half, of the generated images */
    TRY(fl_update_through(w->generator, w->how.rate, w->critic));
    return look_at_generator(w);
}

tensor_status nn_wgan_generate(nn_wgan *w, uint64_t seed, int count, float *images) {
    if (!w || !images)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: %s is NULL", w ? "images" : "the pair of networks");
    TRY(check_between("images", count, 1, w->how.batch));
    const size_t bytes = nn_state_bytes(w->generator);
    void *state = fl_alloc(bytes);
    if (!state)
        return fl_fail(TENSOR_E_MEMORY, "wgan: no memory for %zu bytes, the state to restore after drawing pictures",
                       bytes);
    draw_latent(w, seed, "sample", 0);
    tensor_status status = nn_state_get(w->generator, state, bytes);
    if (!status)
        status = nn_predict(w->generator, w->latent, count, w->numbers);
    for (int64_t i = 0; i < w->pixels / w->how.batch * count && !status; i++)
        images[i] = (float)w->numbers[i];
    if (!status)
        status = nn_state_set(w->generator, state, bytes); /* the exponents of an evaluation, and their histories */
    fl_free(state);
    return status;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static tensor_status open_images(const nn_wgan *w, const data_set *set, data_loader **loader) {
    static const double mean[4] = {0.5, 0.5, 0.5, 0.5}; /* and deviation: bytes become -1 ... 1 */
    const nn_wgan_config *how = &w->how;
    if (!set || data_is_text(set))
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: the set is %s, expected images", set ? "a text" : "NULL");
    if (data_height(set) != how->side || data_width(set) != how->side || data_channels(set) != how->channels)
        return fl_fail(TENSOR_E_SHAPE, "wgan: images of %dx%dx%d, expected %dx%dx%d", data_height(set), data_width(set),
                       data_channels(set), how->side, how->side, how->channels);
    if (data_count(set) < how->batch)
        return fl_fail(TENSOR_E_SHAPE, "wgan: batches of %d, but only %lld images", how->batch,
                       (long long)data_count(set));
    *loader = data_loader_new(set, &(data_loader_config){.batch = how->batch,
                                                         .seed = how->seed,
                                                         .shuffle = true,
                                                         .drop_last = true,
                                                         .mean = mean,
                                                         .deviation = mean});
    return *loader ? TENSOR_OK : tensor_error_status();
}

/* It goes on with the images that the files tell of, in their order; what other ones would lead to is another training.
 */
static tensor_status know_images(nn_wgan *w, const data_set *set) {
    struct identity data;
    snprintf(data.text, sizeof data.text, "%lld images (%016llx)", (long long)data_count(set),
             (unsigned long long)fl_data_hash(set, false));
    if (*w->told.text && strcmp(w->told.text, data.text) != 0)
        return fl_fail(TENSOR_E_DATA,
                       "wgan: the pair was trained with %s, this set has %s: expected the same, in the same order",
                       w->told.text, data.text);
    w->data = data;
    return TENSOR_OK;
}

/* The critic's steps before one of the generator; *estimate: their mean. */
static tensor_status train_critic(nn_wgan *w, data_loader *loader, double *estimate) {
    const uint64_t batches = (uint64_t)data_loader_batches(loader);
    *estimate = 0;
    for (int i = 0; i < w->how.critic_steps; i++) {
        data_batch batch;
        double one;
        const uint64_t step = nn_steps(w->critic);
        if (step % batches == 0 && step / batches > INT32_MAX)
            return fl_fail(TENSOR_E_ARGUMENT, "wgan: more than 2^31 passes over the set");
        if (step % batches == 0)
            TRY(data_loader_start(loader, (int)(step / batches)));
        TRY(data_loader_next(loader, &batch));
        TRY(nn_wgan_train_critic(w, batch.images, &one));
        *estimate += one / w->how.critic_steps;
    }
    return TENSOR_OK;
}

static tensor_status train(nn_wgan *w, data_loader *loader, int64_t steps,
                           int (*report)(void *context, const nn_wgan_report *report), void *context) {
    const uint64_t batches = (uint64_t)data_loader_batches(loader), at = nn_steps(w->critic);
    TRY(data_loader_seek(loader, (int)(at / batches % INT32_MAX), (int64_t)(at % batches)));
    while (nn_steps(w->generator) < (uint64_t)steps) {
        nn_wgan_report r = {.step = (int64_t)nn_steps(w->generator) + 1};
        TRY(train_critic(w, loader, &r.estimate));
        TRY(nn_wgan_train_generator(w, &r.loss));
        if (report && report(context, &r))
            break;
    }
    return TENSOR_OK;
}

tensor_status nn_wgan_train(nn_wgan *w, const data_set *set, int64_t steps,
                            int (*report)(void *context, const nn_wgan_report *report), void *context) {
    data_loader *loader = NULL;
    if (!w || steps < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: %s", w ? "steps below 0" : "the pair of networks is NULL");
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

static void format(char text[SETTINGS_ROOM], const char *how, ...) {
    va_list arguments;
    va_start(arguments, how);
    fl_format(text, SETTINGS_ROOM, how, arguments);
    va_end(arguments);
}

/* What a pair is trained with beside what its networks know. */
static void settings_text(const nn_wgan *w, char text[SETTINGS_ROOM]) {
    format(text, "critic_steps=%d rate=%.9g clip=%.9g", w->how.critic_steps, (double)w->how.rate, (double)w->how.clip);
}

/* Files of before there were settings have none. */
static tensor_status check_settings(const nn_wgan *w, const char *critic) {
    char own[SETTINGS_ROOM], found[SETTINGS_ROOM];
    settings_text(w, own);
    const tensor_status status = nn_checkpoint_note(critic, settings_key, found, sizeof found);
    if (status == TENSOR_E_DATA)
        return TENSOR_OK;
    TRY(status);
    return !strcmp(own, found)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA, "wgan: %s: the pair was trained with %s, this one has %s", critic, found, own);
}

/* The first NaN or Inf so far; nothing where there is none. */
static const char nonfinite_key[] = "wgan.nonfinite";
/* Whole numbers in the note, then the maximum. */
enum { OF_CRITIC, STEP, PASS, TENSOR, NONFINITE, ELEMENTS, HAS_REMEDY, WHOLE };

static bool nonfinite_note(const nn_wgan *w, char text[SETTINGS_ROOM]) {
    const nn_nonfinite *first = &w->first;
    const bool critic = first->network && !strcmp(first->network, "critic");
    if (!first->step)
        return false;
    format(text, "%d %lld %d %d %lld %lld %d %.17g", critic, (long long)first->step, fl_pass_number(first->pass),
           fl_number_of(critic ? w->critic : w->generator, first->tensor), (long long)first->nonfinite,
           (long long)first->elements, first->remedy != NULL, first->maximum);
    return true;
}

static bool read_numbers(const char *text, int64_t whole[WHOLE], double *maximum) {
    char *end;
    for (int i = 0; i < WHOLE; i++, text = end) {
        whole[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
    }
    *maximum = fl_to_real(text, &end);
    return end != text && !*end && *maximum >= 0 && (whole[OF_CRITIC] == 0 || whole[OF_CRITIC] == 1);
}

/* The more of what the two networks of the files have made. */
static tensor_status read_steps(const char *critic, const char *generator, int64_t *steps) {
    char text[2][32];
    TRY(nn_checkpoint_note(critic, "network.steps", text[0], sizeof text[0]));
    TRY(nn_checkpoint_note(generator, "network.steps", text[1], sizeof text[1]));
    const int64_t a = strtoll(text[0], NULL, 10), b = strtoll(text[1], NULL, 10);
    *steps = a > b ? a : b;
    return TENSOR_OK;
}

/* Of the files, which are still to be loaded. A step may be the other network's, and that under way. */
static tensor_status read_nonfinite(nn_wgan *w, const char *critic, const char *generator, nn_nonfinite *first) {
    char text[SETTINGS_ROOM];
    int64_t n[WHOLE], steps;
    double maximum;
    const tensor_status status = nn_checkpoint_note(critic, nonfinite_key, text, sizeof text);
    *first = (nn_nonfinite){.step = 0};
    if (status)
        return status == TENSOR_E_DATA ? TENSOR_OK : status;
    if (!read_numbers(text, n, &maximum))
        return fl_fail(TENSOR_E_DATA,
                       "wgan: %s: '%s' is '%s', expected 0 or 1, then six whole numbers and a size of 0 or more",
                       critic, nonfinite_key, text);
    TRY(read_steps(critic, generator, &steps));
    const struct fl_recalled kept = {
        n[STEP], steps < INT64_MAX ? steps + 1 : steps, n[PASS], n[TENSOR], n[NONFINITE], n[ELEMENTS], n[HAS_REMEDY]};
    TRY(fl_recall_first(n[OF_CRITIC] ? w->critic : w->generator, critic, &kept, first));
    first->maximum = maximum;
    first->network = n[OF_CRITIC] ? "critic" : "generator";
    return TENSOR_OK;
}

static tensor_status path_of(const char *prefix, const char *network, char **path) {
    if (!prefix)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: the prefix of its files is NULL");
    const size_t room = strlen(prefix) + strlen(network) + sizeof ".safetensors" + 1;
    if (!(*path = fl_alloc(room)))
        return fl_fail(TENSOR_E_MEMORY, "wgan: no memory for a path");
    snprintf(*path, room, "%s.%s.safetensors", prefix, network);
    return TENSOR_OK;
}

static tensor_status save_network(const nn_wgan *w, const nn_graph *g, const char *prefix, const char *network,
                                  const char *place) {
    char *path, settings[SETTINGS_ROOM], nonfinite[SETTINGS_ROOM];
    settings_text(w, settings);
    TRY(path_of(prefix, network, &path));
    const struct identity *data = *w->data.text ? &w->data : &w->told;
    nn_note notes[4] = {{place_key, place}, {settings_key, settings}};
    int count = 2;
    if (*data->text)
        notes[count++] = (nn_note){data_key, data->text};
    if (nonfinite_note(w, nonfinite))
        notes[count++] = (nn_note){nonfinite_key, nonfinite};
    const tensor_status status = nn_checkpoint_save(g, path, notes, count);
    fl_free(path);
    return status;
}

tensor_status nn_wgan_save(const nn_wgan *w, const char *prefix) {
    char place[64];
    if (!w)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    snprintf(place, sizeof place, "%llu %llu", (unsigned long long)nn_steps(w->critic),
             (unsigned long long)nn_steps(w->generator));
    TRY(save_network(w, w->critic, prefix, "critic", place));
    return save_network(w, w->generator, prefix, "generator", place);
}

/* Files of before it was kept, and pairs that are trained by steps, have none. */
static tensor_status read_identity(const char *critic, struct identity *data) {
    const tensor_status status = nn_checkpoint_note(critic, data_key, data->text, sizeof data->text);
    if (status == TENSOR_E_DATA)
        *data = (struct identity){""};
    return status == TENSOR_E_DATA ? TENSOR_OK : status;
}

/* Both of one step, or nothing has changed: the second of two good files may still be of another network. */
static tensor_status load_both(nn_wgan *w, const char *critic, const char *generator) {
    char places[2][64];
    struct identity told;
    nn_nonfinite first;
    TRY(nn_checkpoint_note(critic, place_key, places[0], sizeof places[0]));
    TRY(nn_checkpoint_note(generator, place_key, places[1], sizeof places[1]));
    if (strcmp(places[0], places[1]) != 0)
        return fl_fail(TENSOR_E_DATA, "wgan: %s is of step '%s', %s of '%s'", critic, places[0], generator, places[1]);
    TRY(check_settings(w, critic));
    TRY(read_identity(critic, &told));
    TRY(read_nonfinite(w, critic, generator, &first));
    const size_t bytes = nn_state_bytes(w->critic);
    void *before = fl_alloc(bytes);
    tensor_status status = before ? nn_state_get(w->critic, before, bytes)
                                  : fl_fail(TENSOR_E_MEMORY, "wgan: no memory for %zu bytes", bytes);
    if (!status && !(status = nn_checkpoint_load(w->critic, critic)) &&
        (status = nn_checkpoint_load(w->generator, generator))) {
        char why[400];
        snprintf(why, sizeof why, "%s", tensor_error());
        if (!nn_state_set(w->critic, before, bytes))
            status = fl_fail(status, "%s", why);
    }
    fl_free(before);
    if (!status) {
        w->first = first;
        w->told = told;
        w->data = (struct identity){""};
    }
    return status;
}

tensor_status nn_wgan_load(nn_wgan *w, const char *prefix) {
    char *critic = NULL, *generator = NULL;
    if (!w)
        return fl_fail(TENSOR_E_ARGUMENT, "wgan: the pair of networks is NULL");
    TRY(path_of(prefix, "critic", &critic));
    tensor_status status = path_of(prefix, "generator", &generator);
    if (!status)
        status = load_both(w, critic, generator);
    fl_free(critic);
    fl_free(generator);
    return status;
}
