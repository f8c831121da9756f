/* The first NaN or Inf of a step: overflows caused in the data, forward, in the loss, backward and in the update, at a
 * known step of a small network, whose elements are inspected one by one while they exist. The suggested policy rule is
 * tried; telemetry, trainings, their checkpoints and a device report the same. */
#include "toy_device.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include "nn/training/nn_training.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 4, INPUTS = 4, CLASSES = 3, BAD = 3 /* the step */, MOST = 200, AGAIN = 40 };

/* --- networks and their overflows --------------------------------------------------------------------------------- */

struct scene {
    const char *name, *variant, *policy, *loss_scale, *loss;
    bool no_master;
    const char *set; /* a weight that has `value` everywhere from the bad step on; NULL: none */
    double value;
    float images;                               /* everywhere in the bad step; 0: as usual */
    float rate;                                 /* of the bad step; 0: as usual */
    float target;                               /* a target of the squared error in the bad step */
    const char *pass, *tensor, *layer, *remedy; /* expected; pass NULL: all is finite */
};

static const struct scene scenes[] = {
    {.name = "finite", .variant = "fp16"},
    {.name = "data beyond fp16",
     .variant = "fp16",
     .images = 70000,
     .pass = "input",
     .tensor = "input",
     .layer = "input",
     .remedy = "input format=fp32; a format=fp32"},
    {.name = "data of Inf",
     .variant = "fp32",
     .images = INFINITY,
     .pass = "input",
     .tensor = "input",
     .layer = "input"},
    {.name = "data of NaN", .variant = "bf16", .images = NAN, .pass = "input", .tensor = "input", .layer = "input"},
    {.name = "forward",
     .variant = "fp16",
     .set = "b.weight",
     .value = 60000,
     .images = 20,
     .pass = "forward",
     .tensor = "b.product",
     .layer = "b",
     .remedy = "b format=fp32; bend format=fp32; c format=fp32"},
    {.name = "forward in binary32",
     .variant = "fp32",
     .set = "b.weight",
     .value = 3e38,
     .images = 1e3,
     .pass = "forward",
     .tensor = "b.product",
     .layer = "b"},
    {.name = "a conversion",
     .variant = "fp32",
     .policy = "b format=fp16",
     .set = "a.weight",
     .value = 1e5,
     .images = 1,
     .pass = "forward",
     .tensor = "gate.fp16",
     .layer = "gate",
     .remedy = "b format=fp32"},
    {.name = "the loss",
     .variant = "fp32",
     .loss = "squared_error",
     .target = NAN,
     .pass = "loss",
     .tensor = "loss",
     .layer = "loss"},
    {.name = "a loss of finite gradients",
     .variant = "fp32",
     .loss = "huber",
     .target = INFINITY,
     .pass = "loss",
     .tensor = "loss",
     .layer = "loss"},
    {.name = "the gradient of the loss",
     .variant = "fp16",
     .loss_scale = "2^4",
     .loss = "squared_error",
     .target = 30000,
     .pass = "backward",
     .tensor = "c.grad",
     .layer = "loss",
     .remedy = "loss-scale dynamic"},
    {.name = "a gradient of an activation",
     .variant = "fp16",
     .loss_scale = "2^14",
     .set = "c.weight",
     .value = 600,
     .pass = "backward",
     .tensor = "bend.grad",
     .layer = "c",
     .remedy = "loss-scale dynamic"},
    {.name = "a gradient of a weight",
     .variant = "fp16",
     .loss_scale = "2^12",
     .set = "a.weight",
     .value = 1e-4,
     .images = 30000,
     .pass = "backward",
     .tensor = "a.weight.grad",
     .layer = "a",
     .remedy = "loss-scale dynamic"},
    {.name = "a weight in fp16",
     .variant = "fp16",
     .no_master = true,
     .rate = 1e7f,
     .images = 8,
     .pass = "update",
     .tensor = "a.weight",
     .layer = "a",
     .remedy = "a format=fp32"},
    {.name = "a weight in binary32",
     .variant = "fp32",
     .loss = "squared_error",
     .target = 30000,
     .rate = 3e38f,
     .images = 8,
     .pass = "update",
     .tensor = "a.weight",
     .layer = "a"},
    {.name = "a shared exponent", .variant = "flex16+5", .set = "b.weight", .value = 30000, .images = 30000},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static nn_graph *network(const struct scene *s, const char *policy, const char *loss_scale, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = s->variant,
                                            .policy = policy,
                                            .loss_scale = loss_scale,
                                            .no_master = s->no_master,
                                            .loss = s->loss,
                                            .batch = BATCH,
                                            .seed = 2,
                                            .device = device});
    CHECK(g, "%s: %s: %s", s->name, policy ? policy : "no policy", tensor_error());
    nn_node x = nn_input(g, 1, 1, INPUTS);
    x = nn_linear(g, "a", x, 6, false);
    x = nn_relu(g, "gate", x);
    x = nn_linear(g, "b", x, 6, false);
    x = nn_activation(g, "bend", x, "tanh");
    x = nn_linear(g, "c", x, CLASSES, false);
    CHECK(!nn_compile(g, x), "%s: %s: %s", s->name, policy ? policy : "no policy", tensor_error());
    return g;
}

/* A policy of rules, as nn_config reads them; to be freed. */
static char *policy_of(const char *first, const char *second) {
    char *text = malloc(2000);
    snprintf(text, 2000, "%s%s%s;", first ? first : "", first && second ? "; " : "", second ? second : "");
    return text;
}

static void set_weight(nn_graph *g, const char *name, double value) {
    double values[INPUTS * 6 + 6 * 6];
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        const int64_t count = tensor_count(info.t);
        if (strcmp(info.name, name) != 0)
            continue;
        /* of the last layer such that it is sure of class 0 */
        for (int64_t k = 0; k < count; k++)
            values[k] = *name == 'c' && k % CLASSES ? -value : value;
        CHECK(!nn_weight_set(g, name, values, count), "%s", tensor_error());
    }
}

static float rate_of(const struct scene *s, int step) {
    return step >= BAD && s->rate > 0 ? s->rate : 0.01f;
}

static tensor_status forward(nn_graph *g, const struct scene *s, int step) {
    float images[BATCH * INPUTS], targets[BATCH * CLASSES];
    int32_t labels[BATCH];
    uint64_t state = (uint64_t)step * 991;
    for (int i = 0; i < BATCH * INPUTS; i++) {
        images[i] = (float)((double)(int64_t)check_random(&state) / 9223372036854775808.0);
        images[i] = step >= BAD && s->images != 0 ? s->images : images[i];
    }
    for (int i = 0; i < BATCH * CLASSES; i++)
        targets[i] = step >= BAD ? s->target : 0;
    for (int i = 0; i < BATCH; i++)
        labels[i] = 1 + i % 2;
    if (step == BAD && s->set)
        set_weight(g, s->set, s->value);
    return s->loss ? nn_forward(g, &(nn_batch){.images = images, .targets = targets})
                   : nn_forward(g, &(nn_batch){.images = images, .labels = labels});
}

/* --- what a watcher observes -------------------------------------------------------------------------------------- */

/* Every tensor of a step, in the order in which they are shown, with the number of its NaN and Inf elements. */
static struct {
    struct {
        const char *name, *role;
        int64_t bad;
    } of[MOST];
    int count;
} seen;

static void watch(const nn_tensor_info *info, void *context) {
    double values[512];
    const int64_t count = tensor_count(info->t);
    (void)context;
    CHECK(seen.count < MOST && count <= 512 && !tensor_store_f64(info->t, values, count), "%s: %s", info->name,
          tensor_error());
    seen.of[seen.count].name = info->name;
    seen.of[seen.count].role = info->role;
    seen.of[seen.count].bad = 0;
    for (int64_t i = 0; i < count; i++)
        seen.of[seen.count].bad += !isfinite(values[i]);
    seen.count++;
}

/* In a forward pass nothing before it is bad; the part of the step to which it is attributed is the first with any. */
static void compare_with_seen(const struct scene *s, const nn_nonfinite *found) {
    const bool of_update = !strcmp(found->pass, "update");
    int at = -1;
    for (int i = 0; i < seen.count; i++) {
        const char *role = seen.of[i].role;
        const bool forward = !strcmp(role, "activation"),
                   backward = !strcmp(role, "gradient") || !strcmp(role, "weight gradient");
        if (!strcmp(seen.of[i].name, found->tensor))
            at = i;
        if (at < 0 && forward)
            CHECK(!seen.of[i].bad || !strcmp(found->pass, "loss"), "%s: %s is bad before %s", s->name, seen.of[i].name,
                  found->tensor);
        if (forward && (!strcmp(found->pass, "backward") || of_update || !strcmp(found->pass, "loss")))
            CHECK(!seen.of[i].bad, "%s: pass %s, but %s is bad", s->name, found->pass, seen.of[i].name);
        if (backward && of_update)
            CHECK(!seen.of[i].bad, "%s: pass %s, but %s is bad", s->name, found->pass, seen.of[i].name);
    }
    if (strcmp(found->pass, "loss") != 0)
        CHECK(at >= 0 && seen.of[at].bad == found->nonfinite, "%s: %lld of %s are bad, %lld were found", s->name,
              at >= 0 ? (long long)seen.of[at].bad : -1, found->tensor, (long long)found->nonfinite);
}

/* --- scenes ------------------------------------------------------------------------------------------------------- */

static bool is_text(const char *a, const char *b) {
    return !a || !b ? a == b : !strcmp(a, b);
}

static void check_found(const struct scene *s, const char *when, const nn_nonfinite *found) {
    CHECK(!found == !s->pass, "%s, %s: found %s", s->name, when, found ? found->tensor : "nothing");
    if (!found || !s->pass)
        return;
    CHECK(found->step == BAD && is_text(found->pass, s->pass) && is_text(found->tensor, s->tensor) &&
              is_text(found->layer, s->layer) && is_text(found->remedy, s->remedy),
          "%s, %s: step %lld, %s, %s, layer %s, remedy %s; expected %d, %s, %s, %s, %s", s->name, when,
          (long long)found->step, found->pass, found->tensor, found->layer, found->remedy ? found->remedy : "none", BAD,
          s->pass, s->tensor, s->layer, s->remedy ? s->remedy : "none");
    CHECK(found->nonfinite > 0 && found->nonfinite <= found->elements && !found->before,
          "%s, %s: %lld of %lld elements", s->name, when, (long long)found->nonfinite, (long long)found->elements);
}

static const nn_nonfinite *find(nn_graph *g) {
    const nn_nonfinite *found;
    CHECK(!nn_find_nonfinite(&found, g), "%s", tensor_error());
    return found;
}

/* Compares after each part of each step, and with telemetry beside it. */
static void play(const struct scene *s) {
    char *policy = s->policy ? policy_of(s->policy, NULL) : NULL;
    nn_graph *g = network(s, policy, s->loss_scale, NULL), *t = network(s, policy, s->loss_scale, NULL);
    nn_telemetry *telemetry = nn_telemetry_new(t, &(nn_telemetry_config){.every = 1});
    CHECK(telemetry && !nn_watch(g, watch, NULL) && !find(g), "%s: %s", s->name, tensor_error());
    CHECK(g->writes.count == g->info_count, "%s: %d of %d tensors in the order of writes", s->name, g->writes.count,
          g->info_count);
    const bool before_gradients =
                   s->pass && (!strcmp(s->pass, "input") || !strcmp(s->pass, "forward") || !strcmp(s->pass, "loss")),
               before_update = before_gradients || (s->pass && !strcmp(s->pass, "backward"));
    for (int step = 1; step <= BAD; step++) {
        seen.count = 0;
        const bool bad = step == BAD;
        CHECK(!forward(g, s, step), "%s", tensor_error());
        if (bad && before_gradients)
            check_found(s, "after forward", find(g));
        else
            CHECK(!find(g), "%s, step %d after forward: %s", s->name, step, g->writes.found.tensor);
        CHECK(!nn_backward(g), "%s", tensor_error());
        if (bad && before_update)
            check_found(s, "after backward", find(g));
        else
            CHECK(!find(g), "%s, step %d after backward: %s", s->name, step, g->writes.found.tensor);
        CHECK(!nn_update(g, rate_of(s, step)), "%s", tensor_error());
        CHECK(!forward(t, s, step) && !nn_backward(t) && !nn_update(t, rate_of(s, step)) &&
                  !nn_telemetry_step(telemetry),
              "%s", tensor_error());
        if (!bad)
            CHECK(!find(g) && !nn_telemetry_nonfinite(telemetry), "%s, step %d: %s", s->name, step,
                  g->writes.found.tensor);
    }
    const nn_nonfinite *found = find(g), *told = nn_telemetry_nonfinite(telemetry);
    check_found(s, "after the step", found);
    CHECK(!told == !found, "%s: telemetry found %s", s->name, told ? told->tensor : "nothing");
    if (found && told)
        CHECK(told->step == found->step && !strcmp(told->tensor, found->tensor) && !strcmp(told->pass, found->pass) &&
                  told->nonfinite == found->nonfinite && told->before_count == NN_NONFINITE_BEFORE &&
                  is_text(told->remedy, found->remedy),
              "%s: telemetry found %s, %s, with %lld writes before it", s->name, told->pass, told->tensor,
              (long long)told->before_count);
    if (found)
        compare_with_seen(s, found);
    nn_telemetry_free(telemetry);
    nn_graph_free(g);
    nn_graph_free(t);
    free(policy);
}

/* Repeats the scene with the suggested rule. A dynamic scale is found on the way: the bad step is repeated. */
static void try_remedy(const struct scene *s) {
    const bool scales = !strncmp(s->remedy, "loss-scale", 10);
    char *policy = policy_of(s->policy, s->remedy);
    nn_graph *g = network(s, policy, NULL, NULL);
    nn_loss_scale now = {.in_a_row = 0};
    for (int step = 1; step <= (scales ? BAD + AGAIN : BAD); step++) {
        CHECK(!forward(g, s, step) && !nn_backward(g) && !nn_update(g, rate_of(s, step)) && !nn_loss_scale_of(&now, g),
              "%s: %s", s->name, tensor_error());
        if (scales && step >= BAD && !now.in_a_row)
            break;
    }
    const nn_nonfinite *found = find(g);
    const bool other = found && !strcmp(s->pass, "update") && strcmp(found->layer, s->layer) != 0; /* at such a rate */
    CHECK((!found || other) && !now.in_a_row, "%s: with '%s' %s is not finite, %lld steps in a row", s->name, s->remedy,
          found ? found->tensor : "nothing", (long long)now.in_a_row);
    nn_graph_free(g);
    free(policy);
}

static void play_on_device(const struct scene *s) {
    if (s->policy || s->loss) /* which it has not */
        return;
    nn_graph *g = network(s, NULL, s->loss_scale, "toy");
    for (int step = 1; step <= BAD; step++) {
        CHECK(!forward(g, s, step) && !nn_backward(g) && !nn_update(g, rate_of(s, step)), "%s", tensor_error());
        if (step < BAD)
            CHECK(!find(g), "%s on a device, step %d: %s", s->name, step, g->writes.found.tensor);
    }
    check_found(s, "on a device", find(g));
    nn_graph_free(g);
}

/* --- a state that no step has made -------------------------------------------------------------------------------- */

/* Weights that the caller wrote, or that a state contains, are attributed to the update. */
static void weights_from_elsewhere(void) {
    const struct scene *s = &scenes[0];
    nn_graph *g = network(s, NULL, NULL, NULL), *h = network(s, NULL, NULL, NULL);
    const float bad[CLASSES] = {1, INFINITY, 2};
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, "c.bias"))
            CHECK(!tensor_load_f32(nn_tensor_at(g, i).t, bad, CLASSES), "%s", tensor_error());
    const nn_nonfinite *found = find(g);
    CHECK(found && !strcmp(found->pass, "update") && !strcmp(found->tensor, "c.bias") && found->step == 0 &&
              found->nonfinite == 1,
          "before the first step %s", found ? found->tensor : "nothing");
    CHECK(!forward(g, s, 1), "%s", tensor_error());
    found = find(g);
    CHECK(found && !strcmp(found->tensor, "c.bias") && found->step == 1, "in the first step %s",
          found ? found->tensor : "nothing");
    const size_t bytes = nn_state_bytes(g);
    void *state = malloc(bytes);
    CHECK(!nn_state_save(state, bytes, g) && !nn_state_restore(h, state, bytes), "%s", tensor_error());
    found = find(h);
    CHECK(found && !strcmp(found->tensor, "c.bias"), "of a state %s", found ? found->tensor : "nothing");
    free(state);
    CHECK(nn_find_nonfinite(&found, NULL) == TENSOR_E_ARGUMENT && nn_find_nonfinite(NULL, g) == TENSOR_E_ARGUMENT,
          "NULL");
    nn_graph_free(g);
    nn_graph_free(h);
}

/* Every model's tensors have a position in the order of writes, forward before backward before the update. */
static void orders(void) {
    static const char *const policies[] = {NULL, "O1", "O2", "dfp16", "variant flex16+5; *.bias weights=fp32;"};
    static const char *const optimisers[] = {"sgd", "lamb", "adam", "rmsprop", "adagrad"};
    for (int m = 0; nn_model_at(m) || m < 100; m++) {
        const char *model = nn_model_at(m) ? nn_model_at(m) : m == 99 ? "gpt2x32" : NULL;
        if (!model || strstr(model, "alexnet") || strstr(model, "vgg16")) /* large */
            continue;
        nn_graph *g = nn_graph_new(&(nn_config){.variant = policies[m % 5] ? NULL : "fp16",
                                                .policy = policies[m % 5],
                                                .optimiser = optimisers[m % 5],
                                                .clip_norm = 1,
                                                .batch = 2,
                                                .seed = 1});
        CHECK(g, "%s: %s", model, tensor_error());
        if (nn_compile(g, m == 99 ? nn_model_text(g, model, 16, 20) : nn_model(g, model, 32, 32, 3, 10))) {
            CHECK(!strcmp(model, "resnetD") || strchr(model, 'D') || strchr(model, 'L') || strchr(model, 'K'), "%s: %s",
                  model, tensor_error());
            nn_graph_free(g);
            continue;
        }
        CHECK(g->writes.count == g->info_count, "%s: %d of %d", model, g->writes.count, g->info_count);
        for (int i = 1; i < g->writes.count; i++)
            CHECK(g->writes.list[i].part >= g->writes.list[i - 1].part, "%s: write %d", model, i);
        nn_graph_free(g);
    }
}

/* --- trainings ---------------------------------------------------------------------------------------------------- */

struct events {
    int told, reports;
    int64_t step, before;
    char pass[20], tensor[100], remedy[200];
    int64_t nonfinite_reports, first_report; /* steps whose report has a pass */
    bool other_pass;
};

static void on_nonfinite(void *context, const nn_nonfinite *first) {
    struct events *e = context;
    e->told++;
    e->step = first->step;
    e->before = first->before_count;
    snprintf(e->pass, sizeof e->pass, "%s", first->pass);
    snprintf(e->tensor, sizeof e->tensor, "%s", first->tensor);
    snprintf(e->remedy, sizeof e->remedy, "%s", first->remedy ? first->remedy : "");
}

static int on_step(void *context, const nn_step_report *report) {
    struct events *e = context;
    e->reports++;
    if (report->nonfinite && !e->nonfinite_reports++)
        e->first_report = report->step;
    return 0;
}

struct training {
    const char *variant, *loss_scale, *device, *checkpoint, *resume;
    int64_t telemetry, stop, max_steps;
    double rate;
};

static struct events train(struct training how, nn_train_result *result, char *kept) {
    data_set *set = data_open("synthetic:train=64,test=16", DATA_TRAIN);
    struct events e = {.told = 0};
    const nn_train_config config = {
        .network = {.variant = how.variant, .loss_scale = how.loss_scale, .batch = 8, .seed = 4, .device = how.device},
        .model = "mlp3x24",
        .epochs = 3,
        .rate = how.rate,
        .schedule = "constant",
        .max_steps = how.max_steps,
        .telemetry_every = how.telemetry,
        .checkpoint = how.checkpoint,
        .checkpoint_every = 5,
        .resume = how.resume,
        .stop_on_nonfinite = how.stop};
    const nn_train_events events = {.step = on_step, .context = &e, .nonfinite = on_nonfinite};
    nn_trainer *t = nn_trainer_new(&config, set, NULL, &events);
    CHECK(set && t && !nn_trainer_advance(NULL, t, INT64_MAX), "%s", tensor_error());
    const nn_nonfinite *first = nn_trainer_nonfinite(t);
    snprintf(kept, 200, "%s", "");
    if (first)
        snprintf(kept, 200, "%lld %s %s %s %s %lld", (long long)first->step, first->pass, first->tensor, first->format,
                 first->remedy ? first->remedy : "-", (long long)first->nonfinite);
    CHECK(!nn_trainer_finish(result, t), "%s", tensor_error());
    nn_trainer_free(t);
    data_free(set);
    return e;
}

/* The training whose weights grow until fp16 can no longer represent its activations: with a dynamic scale, which
 * leaves those steps out, and without. */
static void trainings(const char *loss_scale) {
    const struct training plain = {.variant = "fp16", .loss_scale = loss_scale, .rate = 60};
    char kept[200], again[200], folder[] = "/tmp/flexlab-nonfinite-XXXXXX", file[100];
    nn_train_result r = {0}, s = {0};
    struct training how = plain;
    const struct events a = train(how, &r, kept);
    CHECK(a.told == 1 && a.step > 1 && a.step < 20 && !strcmp(a.pass, "forward") && a.remedy[0] && !a.before &&
              a.reports == 24 && a.first_report <= a.step,
          "%s: told %d times, %s", loss_scale, a.told, kept);
    how.telemetry = 1;
    const struct events b = train(how, &s, again);
    CHECK(b.told == 1 && !strcmp(kept, again) && b.before == NN_NONFINITE_BEFORE, "with telemetry %s, without %s",
          again, kept);
    how = plain;
    how.stop = 1;
    const struct events c = train(how, &s, again);
    CHECK(c.told == 1 && s.stopped && s.steps == a.step && c.reports == a.step && !strcmp(kept, again),
          "stopped after %lld steps, expected %lld", (long long)s.steps, (long long)a.step);
    /* stopped there, it resumes after it, and still reports it */
    CHECK(mkdtemp(folder), "no folder");
    snprintf(file, sizeof file, "%s/resume.safetensors", folder);
    how.checkpoint = folder;
    CHECK(train(how, &s, again).told == 1 && s.stopped, "it does not stop");
    how.resume = file;
    const struct events d = train(how, &s, again);
    CHECK(!d.told && !s.stopped && s.steps == 24 && !strcmp(kept, again), "goes on: told %d times, %lld steps, %s",
          d.told, (long long)s.steps, again);
    static const char *const names[] = {"resume", "best", "last"};
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s.safetensors", folder, names[i]);
        (void)unlink(file);
    }
    CHECK(!rmdir(folder), "%s is not empty", folder);
    /* on a device */
    how = plain;
    how.device = "toy";
    const struct events e = train(how, &s, again);
    if (strcmp(loss_scale, "none") != 0)
        CHECK(e.told == 1 && !strcmp(kept, again), "on a device %s, expected %s", again, kept);
    else
        CHECK(e.told == 1 && !strcmp(e.pass, "unknown") && !*e.tensor && e.step >= a.step, "on a device %s", again);
    how.stop = 1;
    const struct events f = train(how, &s, again);
    CHECK(f.told == 1 && s.stopped && !strcmp(kept, again), "stopped on a device: %s, expected %s", again, kept);
}

/* A loss that arrives after its step. If the inspected tensors were finite, it is in the loss; otherwise its origin is
 * unknown. */
static void late_losses(void) {
    static const char *const passes[] = {"unknown", "loss"};
    nn_graph *g = network(&scenes[0], NULL, NULL, NULL);
    for (int looked_at = 0; looked_at < 2; looked_at++) {
        struct events e = {.told = 0};
        const nn_train_events events = {.context = &e, .nonfinite = on_nonfinite};
        nn_train_result result = {.steps = 7};
        struct fl_looked_step steps[3] = {{NULL, false}, {NULL, looked_at}, {NULL, false}};
        struct run run = {.g = g, .events = &events, .result = &result, .begun = 9, .looked = steps, .looked_size = 3};
        fl_training_see_loss(&run, 1e300);
        CHECK(!e.told && !run.first.step, "of a finite loss %s is told", e.pass);
        fl_training_see_loss(&run, looked_at ? INFINITY : NAN);
        CHECK(e.told == 1 && e.step == 7 && !strcmp(e.pass, passes[looked_at]) && run.first.step == 7 &&
                  !strcmp(run.first.tensor, looked_at ? "loss" : "") &&
                  is_text(steps[1].nonfinite, looked_at ? "loss" : NULL),
              "told %d times, step %lld, %s, expected step 7, %s", e.told, (long long)e.step, e.pass,
              passes[looked_at]);
    }
    nn_graph_free(g);
}

/* The search for a scale is not reported: gradients overflow in steps that are left out. */
static void search(void) {
    char kept[200];
    nn_train_result r = {0};
    const struct events e =
        train((struct training){.variant = "fp16", .loss_scale = "dynamic:init=16777216", .rate = 0.01}, &r, kept);
    CHECK(!e.told && r.skipped > 0 && r.skipped < NN_STARVED && e.nonfinite_reports == r.skipped && !*kept,
          "%lld steps left out: %s", (long long)r.skipped, kept);
}

int main(void) {
    if (!toy_begin((size_t)1 << 31))
        return check_skip("no memory that is out of reach");
    for (int i = 0; i < SCENES; i++) {
        play(&scenes[i]);
        if (scenes[i].remedy)
            try_remedy(&scenes[i]);
        play_on_device(&scenes[i]);
    }
    weights_from_elsewhere();
    orders();
    trainings("none");
    trainings("dynamic");
    search();
    late_losses();
    return check_summary();
}
