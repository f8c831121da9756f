/* wgan.c - the command `wgan`: a generator of images and its critic, trained in one format or under one policy, with a
 * loss scale each. Curves, samples and both networks go to a folder. */
#include "commands/commands.h"
#include "base/failure.h"
#include "base/lock.h"
#include "options/options.h"
#include "base/output.h"
#include "results/metrics.h"
#include "runs/policy.h"
#include "runs/wgan_pair.h"
#include "base/signals.h"
#include "base/text.h"
#include <cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GAP = 2 }; /* pixels between samples */
enum { CRITIC, GENERATOR, NETWORKS };
static const char *const network_names[NETWORKS] = {"critic", "generator"};

struct gan {
    struct settings s;
    struct series *series;
    int series_count;
    data_set *set;
    struct wgan *pair;
    struct series *parts; /* the resolved policy of each network; NULL: none */
    nn_loss_scale scale[NETWORKS];
    bool starved[NETWORKS]; /* reported for the present sequence of skipped steps */
    bool nonfinite;         /* reported, and in metrics.jsonl */
    struct lock lock;
    struct output_lines metrics;
    char *kept; /* prefix of the networks that this run saved last */
    struct wgan_report last;
    bool stepped; /* this run has made the step of `last` */
    int status;
    bool open;
};

/* --- pictures ----------------------------------------------------------------------------------------------------- */

static unsigned char byte_of(float x) {
    return (unsigned char)fmin(255, fmax(0, floor(((double)x + 1) * 127.5 + 0.5)));
}

/* Writes a grid of images in a format of Netpbm: P5 for grey, P6 for colours. */
static int write_grid(const char *folder, const char *name, const float *images, int count, int side, int channels) {
    const int columns = (int)ceil(sqrt((double)count)), rows = (count + columns - 1) / columns;
    const int width = columns * (side + GAP) - GAP, height = rows * (side + GAP) - GAP, colours = channels >= 3 ? 3 : 1;
    struct output o;
    int status = output_open(&o, folder, name);
    if (status)
        return status;
    fprintf(o.file, "P%d\n%d %d\n255\n", colours == 3 ? 6 : 5, width, height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const int i = y / (side + GAP) * columns + x / (side + GAP), h = y % (side + GAP), w = x % (side + GAP);
            for (int c = 0; c < colours; c++)
                putc(i < count && h < side && w < side ? byte_of(images[((i * side + h) * side + w) * channels + c])
                                                       : 0,
                     o.file);
        }
    return output_commit(&o);
}

static int write_samples(const struct gan *g, int64_t step) {
    const struct settings *s = &g->s;
    const int side = data_height(g->set), channels = data_channels(g->set);
    const int count = (int)(s->samples < s->batch ? s->samples : s->batch);
    float *images = text_alloc((size_t)count * (size_t)(side * side * channels), sizeof *images);
    char *name = text_format("samples-%06lld.%s", (long long)step, channels >= 3 ? "ppm" : "pgm");
    int status = wgan_generate(images, g->pair, (uint64_t)s->seed_base, count)
                     ? text_failed("%s", failure_message())
                     : write_grid(s->out, name, images, count, side, channels);
    free(images);
    free(name);
    return status;
}

/* --- loss scales -------------------------------------------------------------------------------------------------- */

static const nn_graph *network(const struct gan *g, int i) {
    return i == CRITIC ? wgan_critic(g->pair) : wgan_generator(g->pair);
}

static bool is_scaled(const struct gan *g) {
    return strcmp(g->series->loss_scale, "none") != 0;
}

/* Whether a network makes no update because of a NaN or Inf in a forward pass, which no scale can prevent. Images pass
 * from the generator to the critic, and gradients back, so it is in the gradients of both. */
static bool is_forward(const struct gan *g) {
    const struct wgan_nonfinite *found = wgan_nonfinite(g->pair);
    return found && nonfinite_is_forward(found->of.pass);
}

/* Reads the loss scales, and prints a message if a network makes no progress. */
static int read_scales(struct gan *g, int64_t step) {
    for (int i = 0; i < NETWORKS; i++) {
        nn_loss_scale *now = &g->scale[i];
        if (nn_loss_scale_of(now, network(g, i)))
            return text_failed("%s", tensor_error());
        if (now->in_a_row >= NN_STARVED && !g->starved[i])
            text_note("WARNING: the last %lld steps of the %s made no update, up to step %lld: its gradients %s "
                      "to loss scale %g",
                      (long long)now->in_a_row, network_names[i], (long long)step,
                      is_forward(g) ? "are not finite" : "overflow", now->scale);
        g->starved[i] = now->in_a_row >= NN_STARVED;
    }
    return STATUS_OK;
}

static void print_scales(const struct gan *g) {
    for (int i = 0; i < NETWORKS; i++)
        printf("%s%s %g after %lld steps, %lld of them without an update", i ? "; " : "loss scale: ", network_names[i],
               g->scale[i].scale, (long long)nn_steps(network(g, i)), (long long)g->scale[i].skipped);
    putchar('\n');
}

/* Checks the losses of a finished training. A step that a loss scale skipped may have any loss. */
static int check_losses(const struct gan *g) {
    for (int i = 0; i < NETWORKS; i++)
        if (g->scale[i].in_a_row)
            return STATUS_OK;
    if (!g->stepped || (isfinite(g->last.estimate) && isfinite(g->last.loss)))
        return STATUS_OK;
    return text_failed("DIVERGED: the distance of step %lld is %g, the loss of the generator %g, expected finite "
                       "numbers",
                       (long long)g->last.step, g->last.estimate, g->last.loss);
}

/* Checks the loss scales of a finished training. */
static int check_scales(const struct gan *g) {
    for (int i = 0; i < NETWORKS; i++)
        if (g->scale[i].in_a_row >= NN_STARVED)
            return text_failed("diverged: the last %lld steps of the %s made no update, because its gradients %s down "
                               "to loss scale %g",
                               (long long)g->scale[i].in_a_row, network_names[i],
                               is_forward(g) ? "were not finite" : "overflowed", g->scale[i].scale);
    return STATUS_OK;
}

/* --- lines of metrics.jsonl --------------------------------------------------------------------------------------- */

static int add_line(struct gan *g, cJSON *line) {
    char *text = line ? cJSON_PrintUnformatted(line) : NULL;
    const int status = text ? output_lines_add(&g->metrics, text) : text_failed("no memory for a line of metrics");
    cJSON_free(text);
    cJSON_Delete(line);
    return status;
}

/* Adds a text as UTF-8, which JSON expects; NULL adds nothing. */
static void add_text(cJSON *line, const char *key, const char *text) {
    char *valid = text ? text_valid(text) : NULL;
    if (valid)
        cJSON_AddStringToObject(line, key, valid);
    free(valid);
}

static int add_config(struct gan *g) {
    const struct settings *s = &g->s;
    cJSON *line = cJSON_CreateObject();
    add_text(line, "type", "wgan");
    add_text(line, "data", s->data);
    add_text(line, "format", g->series->label);
    add_text(line, "loss_scale", g->series->loss_scale);
    add_text(line, "policy", g->series->policy);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"batch", (double)s->batch},
                   {"seed", (double)s->seed_base},
                   {"latent", (double)s->latent},
                   {"filters", (double)s->filters},
                   {"critic_steps", (double)s->critic_steps},
                   {"rate", s->rate},
                   {"clip", s->clip},
                   {"steps", (double)s->gan_steps},
                   {"from_step", (double)nn_steps(wgan_generator(g->pair))},
                   {"generator_parameters", (double)nn_parameter_count(wgan_generator(g->pair))},
                   {"critic_parameters", (double)nn_parameter_count(wgan_critic(g->pair))}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(line, numbers[i].name, numbers[i].value);
    return add_line(g, line);
}

static int add_step(struct gan *g, const struct wgan_report *r) {
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "type", "step");
    cJSON_AddNumberToObject(line, "step", (double)r->step);
    cJSON_AddNumberToObject(line, "estimate", r->estimate); /* null if it is not finite */
    cJSON_AddNumberToObject(line, "generator_loss", r->loss);
    for (int i = 0; i < NETWORKS && is_scaled(g); i++) {
        const struct {
            const char *what;
            double value;
        } numbers[] = {{"scale", g->scale[i].scale}, {"skipped", (double)g->scale[i].skipped}};
        for (int k = 0; k < 2; k++) {
            char *key = text_format("%s_%s", network_names[i], numbers[k].what);
            cJSON_AddNumberToObject(line, key, numbers[k].value);
            free(key);
        }
    }
    return add_line(g, line);
}

/* Adds the first NaN or Inf, once: when it appears, or at the beginning for a pair that is resumed after it. */
static int add_nonfinite(struct gan *g) {
    const struct wgan_nonfinite *found = wgan_nonfinite(g->pair);
    if (!found || g->nonfinite)
        return STATUS_OK;
    g->nonfinite = true;
    struct nonfinite first = nonfinite_of(&found->of);
    char *what = nonfinite_sentence(&first, &g->s);
    text_note("step %lld of the %s: the first NaN or Inf, %s", (long long)first.step, found->network, what);
    free(what);
    cJSON *line = cJSON_CreateObject();
    add_text(line, "type", "nonfinite");
    add_text(line, "network", found->network);
    cJSON_AddNumberToObject(line, "step", (double)first.step);
    const struct {
        const char *name, *text;
    } texts[] = {{"pass", first.pass},   {"tensor", first.tensor}, {"role", first.role},
                 {"layer", first.layer}, {"format", first.format}, {"remedy", first.remedy}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_text(line, texts[i].name, texts[i].text);
    cJSON_AddNumberToObject(line, "count", (double)first.count);
    cJSON_AddNumberToObject(line, "elements", (double)first.elements);
    nonfinite_clear(&first);
    return add_line(g, line);
}

static int add_roles(struct gan *g) {
    int status = STATUS_OK;
    for (int i = 0; i < NETWORKS && g->parts; i++)
        for (int k = 0; k < g->parts[i].role_count && status == STATUS_OK; k++)
            status = metrics_roles(&g->metrics, g->series, network_names[i], &g->parts[i].roles[k]);
    return status;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static int remove_pair(const char *prefix) {
    for (int i = 0; i < NETWORKS; i++) {
        char *path = text_format("%s.%s.safetensors", prefix, network_names[i]);
        unlink(path);
        free(path);
    }
    return STATUS_OK;
}

/* Writes the pair under the name of its step, then removes the earlier pair. */
static int keep_networks(struct gan *g) {
    char *prefix = text_format("%s/wgan-%06lld", g->s.out, (long long)nn_steps(wgan_generator(g->pair)));
    if (wgan_save(g->pair, prefix)) {
        free(prefix);
        return text_failed("%s", failure_message());
    }
    if (g->kept && strcmp(g->kept, prefix) != 0)
        remove_pair(g->kept);
    free(g->kept);
    g->kept = prefix;
    return STATUS_OK;
}

static int on_step(void *context, const struct wgan_report *r) {
    struct gan *g = context;
    const struct settings *s = &g->s;
    g->last = *r;
    g->stepped = true;
    g->status = read_scales(g, r->step);
    if (g->status == STATUS_OK)
        g->status = add_nonfinite(g);
    if (g->status == STATUS_OK)
        g->status = add_step(g, r);
    if (!s->quiet && (r->step % 10 == 0 || r->step == s->gan_steps))
        printf("step %lld of %lld  distance %.6g  generator %.6g\n", (long long)r->step, (long long)s->gan_steps,
               r->estimate, r->loss);
    if (g->status == STATUS_OK && s->sample_every && r->step % s->sample_every == 0 && r->step < s->gan_steps)
        g->status = write_samples(g, r->step);
    if (g->status == STATUS_OK && s->checkpoint_every && r->step % s->checkpoint_every == 0)
        g->status = keep_networks(g);
    return g->status != STATUS_OK || signals_received();
}

static int train(struct gan *g) {
    signals_catch();
    if (wgan_train(g->pair, g->set, g->s.gan_steps, on_step, g))
        return text_failed("%s", failure_message());
    if (g->status == STATUS_OK)
        g->status = keep_networks(g);
    if (g->status == STATUS_OK)
        g->status = write_samples(g, (int64_t)nn_steps(wgan_generator(g->pair)));
    if (g->status == STATUS_OK)
        g->status = output_lines_commit(&g->metrics);
    g->open = g->open && g->status != STATUS_OK;
    if (g->status == STATUS_OK && !g->s.quiet && is_scaled(g))
        print_scales(g);
    if (g->status == STATUS_OK && !g->s.quiet)
        printf("networks: %s.*.safetensors; flexlab wgan --resume %s resumes\n", g->kept, g->kept);
    if (g->status == STATUS_OK)
        g->status = check_scales(g);
    if (g->status == STATUS_OK)
        g->status = check_losses(g);
    return g->status == STATUS_OK && signals_received() ? 128 + signals_received() : g->status;
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static int open_set(struct gan *g) {
    failure_forget();
    g->set = data_open(g->s.data, DATA_TRAIN);
    if (!g->set)
        return failure_is_usage() ? text_usage("--data '%s': %s", g->s.data, tensor_error())
                                  : text_failed("--data '%s': %s", g->s.data, tensor_error());
    if (data_is_text(g->set))
        return text_usage("--data '%s': a text, expected images", g->s.data);
    if (data_height(g->set) != data_width(g->set))
        return text_usage("--data '%s': images of %dx%d, expected square ones", g->s.data, data_height(g->set),
                          data_width(g->set));
    return STATUS_OK;
}

static struct wgan *new_pair(const struct gan *g, const nn_config *network) {
    const struct settings *s = &g->s;
    return wgan_new(&(struct wgan_config){.variant = network->variant,
                                          .policy = network->policy,
                                          .layer_formats = network->layer_formats,
                                          .predictor = network->predictor,
                                          .device = network->device,
                                          .loss_scale = network->loss_scale,
                                          .no_master = network->no_master,
                                          .seed = (uint64_t)s->seed_base,
                                          .batch = (int)s->batch,
                                          .side = data_height(g->set),
                                          .channels = data_channels(g->set),
                                          .latent = (int)s->latent,
                                          .filters = (int)s->filters,
                                          .critic_steps = (int)s->critic_steps,
                                          .rate = (float)s->rate,
                                          .clip = (float)s->clip});
}

static int open_pair(struct gan *g) {
    const struct settings *s = &g->s;
    failure_forget();
    const nn_config network = series_network(s, g->series);
    g->pair = new_pair(g, &network);
    if (!g->pair) { /* a policy is stored as one line: only the policy as given has line numbers for the message */
        char *first_message = text_format("%s", failure_message());
        const nn_config asked = series_asked(s, g->series);
        struct wgan *given = new_pair(g, &asked);
        const char *what = given ? first_message : failure_message();
        const int status = failure_is_usage() ? text_usage("%s: %s", g->series->label, what)
                                              : text_failed("%s: %s", g->series->label, what);
        wgan_free(given);
        free(first_message);
        return status;
    }
    if (s->checkpoint && wgan_load(g->pair, s->checkpoint))
        return text_failed("%s", failure_message());
    if (s->checkpoint && wgan_train(g->pair, g->set, 0, NULL, NULL)) /* no step: a check of the data */
        return text_failed("--resume '%s', --data '%s': %s", s->checkpoint, s->data, failure_message());
    const int64_t made = (int64_t)nn_steps(wgan_generator(g->pair));
    if (made && made >= s->gan_steps)
        return text_usage("--steps %lld: the pair of --resume has made %lld steps, expected more",
                          (long long)s->gan_steps, (long long)made);
    return read_scales(g, (int64_t)nn_steps(wgan_generator(g->pair)));
}

static void take_policy(struct gan *g) {
    if (g->series->plain)
        return;
    g->parts = text_alloc(NETWORKS, sizeof *g->parts);
    policy_take_rows(&g->parts[CRITIC], wgan_critic(g->pair));
    policy_take_rows(&g->parts[GENERATOR], wgan_generator(g->pair));
}

static void print_beginning(const struct gan *g) {
    if (g->parts)
        policy_print_text(g->series);
    for (int i = 0; i < NETWORKS && g->parts; i++) {
        printf("%s\n", network_names[i]);
        policy_print_rows(&g->parts[i]);
    }
    if (is_scaled(g))
        printf("loss scale: %s; the critic has a scaler of its own, and so has the generator\n", g->series->loss_scale);
    fflush(stdout);
}

static int open_folder(struct gan *g) {
    if (mkdir(g->s.out, 0777) && errno != EEXIST)
        return text_failed("--out %s: %s", g->s.out, strerror(errno));
    int status = lock_take(&g->lock, g->s.out, "--out ");
    char *path = text_format("%s/metrics.jsonl", g->s.out);
    if (status == STATUS_OK && !g->s.force && !access(path, F_OK))
        status = text_failed("--out %s: there are results already; --force replaces them", g->s.out);
    free(path);
    if (status == STATUS_OK)
        status = output_lines_open(&g->metrics, g->s.out, "metrics.jsonl");
    g->open = status == STATUS_OK;
    return status;
}

static int run(struct gan *g) {
    const struct settings *s = &g->s;
    if (s->threads && tensor_set_threads((int)s->threads))
        return text_usage("--threads: %s", tensor_error());
    int status = lock_check(s->out, "--out "); /* before data is read */
    if (status == STATUS_OK)
        status = series_read(s, &g->series, &g->series_count);
    if (status == STATUS_OK && g->series_count != 1)
        status = text_usage("--format %s: expected one format", s->formats);
    if (status == STATUS_OK)
        status = open_set(g);
    if (status == STATUS_OK)
        status = open_pair(g);
    if (status == STATUS_OK)
        status = open_folder(g);
    if (status == STATUS_OK)
        status = add_config(g);
    if (status == STATUS_OK)
        take_policy(g);
    if (status == STATUS_OK)
        status = add_roles(g);
    if (status == STATUS_OK)
        status = add_nonfinite(g);
    if (status == STATUS_OK && !s->quiet)
        print_beginning(g);
    return status == STATUS_OK ? train(g) : status;
}

int command_wgan(int argc, char **argv) {
    struct gan g = {.lock = {.descriptor = -1}};
    failure_watch();
    int status = options_parse(&g.s, COMMAND_WGAN, argc, argv);
    if (status == STATUS_OK && g.s.help) {
        options_help(COMMAND_WGAN, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = run(&g);
    if (g.open)
        output_lines_discard(&g.metrics);
    lock_release(&g.lock);
    wgan_free(g.pair);
    data_free(g.set);
    series_free(g.series, g.series_count);
    series_free(g.parts, g.parts ? NETWORKS : 0);
    free(g.kept);
    return status;
}
