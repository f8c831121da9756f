/* options.c - the options of the commands: one table for parsing, limits and help. */
#include "options.h"
#include "failure.h"
#include "flexlab/autoflex.h"
#include "text.h"
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_NAME, KIND_WHOLE, KIND_REAL, KIND_SWITCH };
enum { BOTH = COMMAND_COMPARE | COMMAND_TRAIN, ALL = BOTH | COMMAND_REPORT };
/* An option of `train` that may stand beside --resume: it is no property of the training. */
enum { GOING_ON = 1 << 8 };
/* ... which stays as it was where it is not given anew. */
enum { KEPT = 1 << 9 };

const char *options_model_name(int i) {
    int images = 0;
    while (nn_model_list(images))
        images++;
    return i < images ? nn_model_list(i) : nn_text_model_list(i - images);
}

const char *options_variant_name(int i) {
    const nn_variant *variant = nn_variant_list(i);
    return variant ? variant->name : NULL;
}

const char *options_predictor_name(int i) {
    return autoflex_name(autoflex_list(i));
}

const char *options_data_kind(int i) {
    static const char *const kinds[] = {"synthetic", "cifar10", "cifar100", "idx", "npy", "npz", "images", "text"};
    return i < (int)(sizeof kinds / sizeof *kinds) ? kinds[i] : NULL;
}

static const char *schedule_name(int i) {
    static const char *const names[] = {"linear", "cosine", "step", "constant", "linear:END", "cosine:END"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *split_name(int i) {
    static const char *const names[] = {"test", "train"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *master_name(int i) {
    static const char *const names[] = {"default", "none"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *decay_name(int i) {
    static const char *const names[] = {"all", "weights"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

/* A row with a section begins a new heading of the help text. */
static const struct option_row {
    const char *name, *placeholder;
    int commands;
    enum kind kind;
    size_t offset;
    double low, high;            /* KIND_WHOLE, KIND_REAL: inclusive */
    const char *(*names)(int i); /* KIND_NAME; "NAME:END" is NAME, a colon and a number from low to high */
    int value;                   /* KIND_SWITCH */
    const char *section;
    const char *help;
} rows[] = {
#define FIELD(name) offsetof(struct settings, name)
    {"model", "NAME", BOTH, KIND_TEXT, FIELD(model), .section = "What is trained",
     .help =
         "mlp2, cnn6, resnet20 or resnetD with D = 6n + 2, vgg11, mobilenet, ...; of texts\ngpt, gptLxW with L layers "
         "of width W (flexlab info lists them; cnn6)"},
    {"data", "SPEC", BOTH, KIND_TEXT, FIELD(data),
     .help =
         "synthetic[:train=N][,test=N][,seed=S] (generated images, nothing to\nfetch; the default), cifar10:DIR, "
         "cifar100:DIR[,labels=fine|coarse],\nidx:DIR, npy:IMAGES,LABELS,TEST_IMAGES,TEST_LABELS, "
         "npz:FILE[,TEST_FILE],\nor images:DIR[,resize=HxW][,channels=N] with PNG and JPEG files\nDIR/train/CLASS/... "
         "and DIR/test/CLASS/...; text:FILE[,TEST_FILE]\n[,unit=bytes|characters][,test=PERCENT]; see 'flexlab info'"},
    {"context", "N", BOTH, KIND_WHOLE, FIELD(context), 1, 65536, .help = "tokens of a sequence, of texts alone (128)"},
    {"formats", "LIST", COMMAND_COMPARE, KIND_TEXT, FIELD(formats),
     .help =
         "comma-separated variants, see 'flexlab info'\n(fp32,fp16,bf16,flex16+5,dfp16). Suffixes: ':nomaster' "
         "leaves out\n"
         "the wide copy of the weights, ':noscale' the loss scaling, ':paper',\n':ngraph', ... chooses the exponent "
         "predictor; for example\nfp16,fp16:noscale,fp16:nomaster,flex16+5:ngraph.\n"
         "policy:NAME and policy:FILE are policies: see --policy.\n"
         "'@DEVICE' at the end chooses where it trains: flex16+5@cuda,flex16+5@cpu"},
    {"format", "NAME", COMMAND_TRAIN, KIND_TEXT, FIELD(formats),
     .help =
         "the variant, see 'flexlab info' (flex16+5); suffixes ':nomaster',\n':noscale', ':PREDICTOR' and '@DEVICE' as "
         "for compare"},
    {"policy", "LIST", COMMAND_COMPARE, KIND_TEXT, FIELD(policy),
     .help = "policies to compare beside the formats, comma-separated: names\n(O0, O1, O2, O3, O1:bf16, dfp16, ...: "
             "'flexlab info') and files,\nwhich say what format each layer has in each role (docs/policies.md)"},
    {"policy", "NAME|FILE", COMMAND_TRAIN, KIND_TEXT, FIELD(policy),
     .help =
         "what format each layer has in each role: a name (O0, O1, O2, O3,\nO1:bf16, dfp16, ...: 'flexlab info') or "
         "a file (docs/policies.md);\nwith --format, a file's rules begin from that variant"},
    {"layer-format", "RULES", BOTH, KIND_TEXT, FIELD(layer_format),
     .help = "layers in other variants, comma-separated PATTERN=VARIANT such as\n'fc*=bf16,@norm=fp32'; after the "
             "rules of a policy, in each format"},
    {"train-limit", "N", BOTH, KIND_WHOLE, FIELD(train_limit), 1, INT_MAX,
     .help = "use only the first N training images, or tokens"},
    {"test-limit", "N", BOTH, KIND_WHOLE, FIELD(test_limit), 1, INT_MAX,
     .help = "use only the first N test images, or tokens"},

    {"epochs", "N", BOTH, KIND_WHOLE, FIELD(epochs), 1, MOST_EPOCHS, .section = "How it is trained",
     .help = "passes over the training set (10)"},
    {"batch", "B", BOTH, KIND_WHOLE, FIELD(batch), 1, 65536, .help = "images a step (128), or sequences (32)"},
    {"seeds", "S", BOTH, KIND_WHOLE, FIELD(seeds), 1, MOST_SEEDS,
     .help = "runs of each format, with seeds 1 ... S (1); runs with one seed\nshare initial weights, batches and "
             "augmentation"},
    {"seed-base", "K", BOTH, KIND_WHOLE, FIELD(seed_base), 0, 1e15, .help = "the first seed (1)"},
    {"lr", "RATE", BOTH, KIND_REAL, FIELD(rate), 1e-30, 1000,
     .help = "peak learning rate (sgd 0.1, on mlp2 0.01; adagrad, lamb 0.01;\nothers 0.001)"},
    {"schedule", "NAME", BOTH, KIND_NAME, FIELD(schedule), 0, 1, .names = schedule_name,
     .help = "linear (to zero; default), cosine, step (x 0.1 at 1/2 and 3/4),\nconstant; linear:END, cosine:END end at "
             "that share of the peak"},
    {"warmup", "EPOCHS", BOTH, KIND_REAL, FIELD(warmup), 0, MOST_EPOCHS,
     .help = "linear warm-up from zero, may be a fraction (0)"},
    {"optimizer", "NAME", BOTH, KIND_NAME, FIELD(optimiser), .names = nn_optimiser_list,
     .help = "sgd (default; on texts adamw), adam, adamw, rmsprop, adagrad, lamb"},
    {"momentum", "M", BOTH, KIND_REAL, FIELD(momentum), 0, 0.999999, .help = "momentum of sgd (0.9) and rmsprop (0)"},
    {"nesterov", NULL, BOTH, KIND_SWITCH, FIELD(nesterov), .value = 1, .help = "sgd with Nesterov's momentum"},
    {"beta1", "B", BOTH, KIND_REAL, FIELD(beta1), 1e-9, 0.9999999,
     .help = "decay of the mean gradient: adam, adamw, lamb (0.9)"},
    {"beta2", "B", BOTH, KIND_REAL, FIELD(beta2), 1e-9, 0.9999999,
     .help = "decay of the mean square: adam, adamw, lamb (0.999), rmsprop (0.99)"},
    {"epsilon", "E", BOTH, KIND_REAL, FIELD(epsilon), 1e-30, 1,
     .help = "added to the root of the mean square (1e-8; lamb 1e-6, adagrad 1e-10)"},
    {"weight-decay", "W", BOTH, KIND_REAL, FIELD(weight_decay), 0, 1,
     .help = "of sgd an L2 penalty (1e-4), of adamw and lamb apart from the\ngradient (0.01), of the others an L2 "
             "penalty (0)"},
    {"decay", "WHAT", BOTH, KIND_NAME, FIELD(decay), .names = decay_name,
     .help = "what decays: all, or weights without biases and normalisations\n(adamw, lamb: weights; others: all)"},
    {"clip-value", "C", BOTH, KIND_REAL, FIELD(clip_value), 1e-30, 1e30,
     .help = "each element of a gradient counts as at most C (as it is)"},
    {"clip-norm", "C", BOTH, KIND_REAL, FIELD(clip_norm), 1e-30, 1e30,
     .help = "all gradients together are scaled down to the norm C (as they are)"},
    {"loss-scale", "SCALE", BOTH, KIND_TEXT, FIELD(loss_scale),
     .help =
         "none; dynamic, which halves and skips the step where gradients overflow\nand doubles after a window of "
         "good steps; a power of two such as 1024;\ndynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216 "
         "with\nany of these (fp16: dynamic, other formats: none)"},
    {"narrow-state", NULL, BOTH, KIND_SWITCH, FIELD(narrow_state), .value = 1,
     .help = "16-bit optimiser state by stochastic rounding; shared exponents"},
    {"label-smoothing", "S", BOTH, KIND_REAL, FIELD(label_smoothing), 0, 1,
     .help = "this part of a label counts for all classes alike (0)"},
    {"augment", NULL, BOTH, KIND_SWITCH, FIELD(augment), .value = 1,
     .help = "random crops and flips, of texts where the sequences of an epoch\nbegin; the same for every format "
             "(default for cifar10, cifar100, text)"},
    {"no-augment", NULL, BOTH, KIND_SWITCH, FIELD(augment), .value = 0,
     .help = "images as they are (default for all other data)"},
    {"master", "KIND", BOTH, KIND_NAME, FIELD(master), .names = master_name,
     .help = "default: as the variant says; none: no format keeps a wide copy\nof its weights (':nomaster' on each)"},
    {"predictor", "NAME", BOTH, KIND_NAME, FIELD(predictor), .names = options_predictor_name,
     .help = "exponent predictor of all shared-exponent formats (their own)"},
    {"max-steps", "N", BOTH, KIND_WHOLE, FIELD(max_steps), 1, INT_MAX,
     .help = "stop each run after N steps; the schedule still spans all epochs"},
    {"device", "NAME", BOTH | GOING_ON | KEPT, KIND_TEXT, FIELD(device),
     .help = "where all formats train that name no device: cpu, cuda, cuda:1, ...\n(cpu); results do not depend on it"},
    {"threads", "T", BOTH | GOING_ON, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},

    {"one-by-one", NULL, COMMAND_COMPARE, KIND_SWITCH, FIELD(one_by_one), .value = 1,
     .help = "train one format after the other, instead of all formats of a seed in\nturns of half a second: less "
             "memory, and times of steps that compare less"},

    {"checkpoint-every", "N", COMMAND_TRAIN | GOING_ON | KEPT, KIND_WHOLE, FIELD(checkpoint_every), 1, INT_MAX,
     .section = "Checkpoints",
     .help =
         "steps between checkpoints, which a training that was stopped or\nkilled goes on from (one after each epoch)"},
    {"no-checkpoint", NULL, COMMAND_TRAIN | GOING_ON, KIND_SWITCH, FIELD(no_checkpoint), .value = 1,
     .help = "keep no checkpoints, and no networks with the results"},
    {"resume", "PATH", COMMAND_TRAIN | GOING_ON, KIND_TEXT, FIELD(resume),
     .help = "go on with the training whose results go to the folder PATH, or from\nthe file PATH "
             "(resume.safetensors), with the "
             "options that it was\nbegun with; --out (PATH), --device, --threads, --force, "
             "--quiet,\n--checkpoint-every and "
             "--allow-divergence may be given anew"},

    {"out", "DIR", BOTH | GOING_ON, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of the results, made if missing (flexlab-results)"},
    {"out", "DIR", COMMAND_REPORT, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of the report, made if missing (in place)"},
    {"force", NULL, ALL | GOING_ON, KIND_SWITCH, FIELD(force), .value = 1,
     .help = "replace results that are already there"},
    {"average-last", "N", BOTH, KIND_WHOLE, FIELD(average_last), 1, INT_MAX,
     .help = "steps averaged for the last loss (100)"},
    {"trace-every", "K", BOTH, KIND_WHOLE, FIELD(trace_every), 1, INT_MAX,
     .help = "steps between rows of the exponent traces\n(so that a run has about 500)"},
    {"trace-tensors", "GLOBS", ALL, KIND_TEXT, FIELD(trace_tensors),
     .help =
         "tensors in the figure of exponents, comma-separated patterns such\nas 'conv1*,*.weight' (one of each role)"},
    {"telemetry", "EVERY[:GLOBS]", BOTH, KIND_TEXT, FIELD(telemetry),
     .help = "every EVERY steps all about the elements of every tensor, or of those\nwhose names match, such as "
             "'10:conv1*,*.weight' (docs/telemetry.md)"},
    {"shadow", "LIST", BOTH, KIND_TEXT, FIELD(shadow),
     .help = "beside it what other formats would have done to the same values,\nsuch as fp16,flex16+5:ngraph; every "
             "10 steps without --telemetry"},
    {"step-loss", NULL, BOTH, KIND_SWITCH, FIELD(step_loss), .value = 1,
     .help = "also write the loss of every step to metrics.jsonl"},
    {"no-trace", NULL, BOTH, KIND_SWITCH, FIELD(no_trace), .value = 1, .help = "write no exponent traces"},
    {"no-trace", NULL, COMMAND_REPORT, KIND_SWITCH, FIELD(no_trace), .value = 1,
     .help = "read no exponent traces and leave out their figure"},
    {"allow-divergence", NULL, BOTH | GOING_ON | KEPT, KIND_SWITCH, FIELD(allow_divergence), .value = 1,
     .help = "a run that diverges is no failure (it is named all the same)"},
    {"quiet", NULL, BOTH | GOING_ON, KIND_SWITCH, FIELD(quiet), .value = 1,
     .help = "no progress, only the table at the end"},
    {"quiet", NULL, COMMAND_REPORT, KIND_SWITCH, FIELD(quiet), .value = 1, .help = "no table"},

    {"checkpoint", "FILE", COMMAND_EVAL, KIND_TEXT, FIELD(checkpoint), .section = "What is evaluated",
     .help = "a network that 'flexlab train' has written: best.safetensors,\nlast.safetensors, resume.safetensors"},
    {"data", "SPEC", COMMAND_EVAL, KIND_TEXT, FIELD(data),
     .help = "data of any kind that 'flexlab train' takes, see 'flexlab info'\n(synthetic)"},
    {"split", "NAME", COMMAND_EVAL, KIND_NAME, FIELD(split), .names = split_name,
     .help = "test or train: which part of it (test)"},
    {"test-limit", "N", COMMAND_EVAL, KIND_WHOLE, FIELD(test_limit), 1, INT_MAX,
     .help = "use only the first N of them"},
    {"device", "NAME", COMMAND_EVAL, KIND_TEXT, FIELD(device), .help = "where: cpu, cuda, cuda:1, ... (cpu)"},
    {"threads", "T", COMMAND_EVAL, KIND_WHOLE, FIELD(threads), 1, 256, .help = "threads (all)"},
    {"data", "SPEC", COMMAND_WGAN, KIND_TEXT, FIELD(data), .section = "What is trained",
     .help = "square images whose side is a multiple of 8, of any kind that\n'flexlab train' takes; their labels do "
             "not count (synthetic)"},
    {"format", "NAME", COMMAND_WGAN, KIND_TEXT, FIELD(formats),
     .help = "the variant of both networks, with ':PREDICTOR' and '@DEVICE' as\nfor compare (flex16+5)"},
    {"latent", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(latent), 1, 4096,
     .help = "numbers that an image is generated from (64)"},
    {"filters", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(filters), 1, 1024,
     .help = "of the first layer of the critic; deeper ones have two and four\ntimes as many (32)"},
    {"steps", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(gan_steps), 1, INT_MAX, .section = "How it is trained",
     .help = "of the generator, from the first on (1000)"},
    {"critic-steps", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(critic_steps), 1, 1000,
     .help = "of the critic for each of the generator (5)"},
    {"batch", "B", COMMAND_WGAN, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "real images, and as many generated ones, a step (64)"},
    {"lr", "RATE", COMMAND_WGAN, KIND_REAL, FIELD(rate), 1e-30, 1000, .help = "learning rate of RMSProp (5e-5)"},
    {"clip", "C", COMMAND_WGAN, KIND_REAL, FIELD(clip), 1e-30, 1000,
     .help = "the critic's weights lie within +-C after each step (0.01)"},
    {"seed", "K", COMMAND_WGAN, KIND_WHOLE, FIELD(seed_base), 0, 1e15,
     .help = "of weights, latent numbers and order of the images (1)"},
    {"device", "NAME", COMMAND_WGAN, KIND_TEXT, FIELD(device), .help = "where: cpu, cuda, cuda:1, ... (cpu)"},
    {"threads", "T", COMMAND_WGAN, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"resume", "PREFIX", COMMAND_WGAN, KIND_TEXT, FIELD(checkpoint),
     .help = "go on from PREFIX.critic.safetensors and PREFIX.generator.safetensors,\nwith the same options: to the "
             "same bits as in one go"},
    {"out", "DIR", COMMAND_WGAN, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of metrics.jsonl, samples and networks (flexlab-results)"},
    {"force", NULL, COMMAND_WGAN, KIND_SWITCH, FIELD(force), .value = 1, .help = "write to a folder that has results"},
    {"samples", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(samples), 1, 65536,
     .help = "images in a picture of samples, at most those of a batch (64)"},
    {"sample-every", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(sample_every), 1, INT_MAX,
     .help = "steps between pictures (one at the end)"},
    {"checkpoint-every", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(checkpoint_every), 1, INT_MAX,
     .help = "steps after which both networks are kept (at the end)"},
    {"quiet", NULL, COMMAND_WGAN, KIND_SWITCH, FIELD(quiet), .value = 1, .help = "no progress"},
    {"help", NULL, ALL | COMMAND_EVAL | COMMAND_WGAN | GOING_ON, KIND_SWITCH, FIELD(help), .value = 1,
     .help = "this text"},
#undef FIELD
};
enum { ROWS = sizeof rows / sizeof rows[0] };
enum { UNSET = -1 }; /* of a number that is 0 or more */

static int current_command;

static const char *option_name(int i) {
    for (int r = 0; r < ROWS; r++)
        if (rows[r].commands & current_command && i-- == 0)
            return rows[r].name;
    return NULL;
}

/* `what` is freed. */
static int refuse_name(char *what, const char *name, const char *(*known)(int i)) {
    char *names = text_names(known);
    int status = text_usage("%s: expected one of %s%s", what, names, text_did_you_mean(name, known));
    free(names);
    free(what);
    return status;
}

static int store(struct settings *settings, const struct option_row *row, const char *text) {
    void *field = (char *)settings + row->offset;
    switch (row->kind) {
    case KIND_TEXT:
        if (!text[0])
            return text_usage("--%s '': expected %s", row->name, row->placeholder);
        *(const char **)field = text;
        return STATUS_OK;
    case KIND_NAME:
        for (int i = 0; row->names(i); i++) {
            const char *name = row->names(i);
            const size_t words = strcspn(name, ":");
            double number;
            if (name[words] && !strncmp(name, text, words + 1)) {
                if (!text_real(text + words + 1, row->low, row->high, &number))
                    return text_usage("--%s '%s': expected %s with a number from %g to %g", row->name, text, name,
                                      row->low, row->high);
            } else if (strcmp(name, text) != 0) {
                continue;
            }
            *(const char **)field = text;
            return STATUS_OK;
        }
        return refuse_name(text_format("--%s '%s'", row->name, text), text, row->names);
    case KIND_WHOLE:
        if (text_whole(text, (int64_t)row->low, (int64_t)row->high, field))
            return STATUS_OK;
        return text_usage("--%s '%s': expected a whole number from %.0f to %.0f", row->name, text, row->low, row->high);
    case KIND_REAL:
        if (text_real(text, row->low, row->high, field))
            return STATUS_OK;
        return text_usage("--%s '%s': expected a number from %.10g to %.10g", row->name, text, row->low, row->high);
    case KIND_SWITCH:
        *(int *)field = row->value;
        return STATUS_OK;
    }
    return STATUS_USAGE;
}

/* The word that getopt_long refused, without its value. */
static int refuse(const char *word) {
    size_t dashes = strspn(word, "-");
    char *name = text_format("%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    const char *hint = text_did_you_mean(name, option_name);
    int ambiguous = 0;
    for (int i = 0; dashes == 2 && name[0] && option_name(i); i++)
        ambiguous += !strncmp(name, option_name(i), strlen(name));
    int status;
    if (ambiguous > 1)
        status = text_usage("option '--%s' is ambiguous; see --help", name);
    else if (ambiguous == 1)
        status = text_usage("option '%s' takes no value", word);
    else
        status =
            text_usage("unknown option '%.*s%s'%s%s", (int)dashes, word, name, hint, hint[0] ? "" : "; see --help");
    free(name);
    return status;
}

/* What is not given follows from what the model reads. */
static void resolve_model(struct settings *s) {
    const bool text = nn_model_reads_text(s->model);
    s->optimiser = s->optimiser ? s->optimiser : text ? "adamw" : "sgd";
    s->batch = s->batch ? s->batch : text ? 32 : 128;
}

/* Numbers that follow from the optimiser, and how all of it is told. */
static void resolve_optimiser(struct settings *s) {
    const bool descent = !strcmp(s->optimiser, "sgd"),
               apart = !strcmp(s->optimiser, "adamw") || !strcmp(s->optimiser, "lamb");
    if (s->momentum < 0)
        s->momentum = descent ? 0.9 : 0;
    if (s->weight_decay < 0)
        s->weight_decay = descent ? 1e-4 : apart ? 0.01 : 0;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"beta1", s->beta1},           {"beta2", s->beta2},         {"epsilon", s->epsilon},
                   {"clip-value", s->clip_value}, {"clip-norm", s->clip_norm}, {"label-smoothing", s->label_smoothing}};
    char *text = s->optimiser_text;
    const size_t room = sizeof s->optimiser_text;
    snprintf(text, room, "%s%s%s", s->optimiser, s->nesterov ? " nesterov" : "",
             s->narrow_state ? " narrow-state" : "");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value > 0)
            snprintf(text + strlen(text), room - strlen(text), " %s=%.9g", numbers[i].name, numbers[i].value);
    if (s->decay)
        snprintf(text + strlen(text), room - strlen(text), " decay=%s", s->decay);
}

enum { TELEMETRY_EVERY = 10 };

/* EVERY[:GLOBS]; shadows alone come with it. */
static int resolve_telemetry(struct settings *s) {
    char *end = NULL;
    if (s->shadow)
        s->telemetry_every = TELEMETRY_EVERY;
    if (!s->telemetry)
        return STATUS_OK;
    errno = 0;
    const long every = isdigit((unsigned char)*s->telemetry) ? strtol(s->telemetry, &end, 10) : 0;
    if (every < 1 || every > INT_MAX || errno || (*end && *end != ':') || (*end && !end[1]))
        return text_usage("--telemetry '%s': expected steps between rows, 1 to %d, then ':' and patterns of names or "
                          "nothing, such as '10:conv1*,*.weight'",
                          s->telemetry, INT_MAX);
    s->telemetry_every = every;
    s->telemetry_pattern = *end ? end + 1 : NULL;
    return STATUS_OK;
}

/* What a shadow names must be known: else the first run would find out. */
static int check_shadows(const struct settings *s) {
    for (const char *at = s->shadow; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *one = text_format("%.*s", (int)strcspn(at, ","), at), *colon = strchr(one, ':');
        tensor_format format;
        if (colon)
            *colon = 0;
        const int status =
            tensor_format_find(&format, one) ? text_usage("--shadow '%s': %s", s->shadow, tensor_error())
            : colon && (!tensor_format_is_shared(format) || !autoflex_find(colon + 1))
                ? text_usage("--shadow '%s': '%s' %s", s->shadow, colon + 1,
                             tensor_format_is_shared(format) ? "is no predictor of exponents"
                                                             : "follows a format without a shared exponent")
                : STATUS_OK;
        free(one);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* A policy alone says all; beside it, --format is what its rules begin from. */
static void resolve_formats(struct settings *s, enum command command) {
    static const char usual[] = "fp32,fp16,bf16,flex16+5,dfp16";
    if (!s->formats && !(command == COMMAND_TRAIN && s->policy))
        s->formats = command == COMMAND_COMPARE ? usual : "flex16+5";
}

/* The command's rows as getopt_long wants them, numbered from 256. */
static void list_known(enum command command, struct option known[ROWS + 1]) {
    int count = 0;
    memset(known, 0, (ROWS + 1) * sizeof *known);
    for (int r = 0; r < ROWS; r++)
        if (rows[r].commands & (int)command)
            known[count++] =
                (struct option){rows[r].name, rows[r].placeholder ? required_argument : no_argument, NULL, 256 + r};
}

int options_parse(struct settings *settings, enum command command, int argc, char **argv) {
    const char *not_going_on = NULL;
    *settings = (struct settings){.model = "cnn6",
                                  .data = "synthetic",
                                  .schedule = "linear",
                                  .master = "default",
                                  .split = "test",
                                  .epochs = 10,
                                  .batch = command == COMMAND_WGAN ? 64 : 0,
                                  .gan_steps = 1000,
                                  .latent = 64,
                                  .filters = 32,
                                  .critic_steps = 5,
                                  .samples = 64,
                                  .clip = 0.01,
                                  .rate = command == COMMAND_WGAN ? 5e-5 : 0,
                                  .seeds = 1,
                                  .seed_base = 1,
                                  .average_last = 100,
                                  .momentum = UNSET,
                                  .weight_decay = UNSET,
                                  .augment = SWITCH_UNSET};
    struct option known[ROWS + 1];
    list_known(command, known);
    current_command = command;
    opterr = 0;
    optind = 0; /* anew: with 1, getopt_long goes on within the last word of an earlier call */
    for (int found; (found = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (found == 'h')
            settings->help = 1;
        else if (found == ':')
            return text_usage("option '%s' needs a value", word);
        else if (found == '?')
            return refuse(word);
        else {
            const struct option_row *row = &rows[found - 256];
            int status = store(settings, row, optarg);
            if (status)
                return status;
            if (!(row->commands & GOING_ON))
                not_going_on = row->name;
        }
        if (settings->help)
            return STATUS_OK;
    }
    resolve_model(settings);
    resolve_optimiser(settings);
    resolve_formats(settings, command);
    settings->folders = argv + optind; /* getopt_long has moved them to the end */
    settings->folder_count = argc - optind;
    if (command == COMMAND_REPORT)
        return STATUS_OK;
    if (optind < argc)
        return text_usage("unexpected argument '%s'; options begin with --, see --help", argv[optind]);
    if (!settings->out && !settings->resume)
        settings->out = "flexlab-results"; /* else where the training that goes on has its results */
    if (settings->resume && not_going_on)
        return text_usage("--%s: not with --resume, which goes on with the options that the training was begun with",
                          not_going_on);
    if (settings->resume && settings->no_checkpoint)
        return text_usage("--no-checkpoint: not with --resume");
    if (settings->checkpoint_every && (settings->no_checkpoint || settings->seeds > 1))
        return text_usage("--checkpoint-every: not with %s", settings->no_checkpoint ? "--no-checkpoint" : "--seeds");
    if (settings->warmup >= (double)settings->epochs)
        return text_usage("--warmup %g: expected less than the %lld epochs of the training", settings->warmup,
                          (long long)settings->epochs);
    const int status = resolve_telemetry(settings);
    return status ? status : check_shadows(settings);
}

/* --- what a training that goes on is told again --------------------------------------------------------------------
 */

static const char plain_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,.:/@";

static char *add_kept(char *kept, const char *word) {
    char *longer = text_alloc(strlen(kept) + 3 * strlen(word) + 2, 1), *to = stpcpy(longer, kept);
    if (*kept)
        *to++ = ' ';
    for (const char *p = word; *p; p++)
        if (strchr(plain_characters, *p))
            *to++ = *p;
        else
            to += sprintf(to, "%%%02X", (unsigned char)*p);
    free(kept);
    return longer;
}

/* One option of a command line. */
struct given {
    const struct option_row *row;
    const char *value;
};

/* Behind the others, and of several of one name only the last. */
static int add_given(struct given list[ROWS], int count, const struct option_row *row, const char *value) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (list[i].row != row)
            list[kept++] = list[i];
    list[kept++] = (struct given){row, value};
    return kept;
}

char *options_kept(int argc, char **argv) {
    struct option known[ROWS + 1];
    struct given list[ROWS];
    int count = 0;
    list_known(COMMAND_TRAIN, known);
    char *kept = text_format("%s", "");
    optind = 0;
    for (int found; (found = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        const struct option_row *row = found >= 256 && found < 256 + ROWS ? &rows[found - 256] : NULL;
        if (row && (!(row->commands & GOING_ON) || row->commands & KEPT))
            count = add_given(list, count, row, optarg);
    }
    for (int i = 0; i < count; i++) {
        const struct option_row *row = list[i].row;
        char *word =
            text_format("--%s%s%s", row->name, row->placeholder ? "=" : "", row->placeholder ? list[i].value : "");
        kept = add_kept(kept, word);
        free(word);
    }
    return kept;
}

char **options_kept_words(const char *kept, int *argc) {
    static const char digits[] = "0123456789ABCDEF";
    const size_t length = strlen(kept), most = length / 2 + 3;
    char **words = text_alloc(1, most * sizeof *words + sizeof "train" + length + 1);
    char *to = (char *)(words + most);
    words[0] = strcpy(to, "train");
    to += sizeof "train";
    *argc = 1;
    for (const char *p = kept; *p; p++) {
        if (p == kept || p[-1] == ' ')
            words[(*argc)++] = to;
        const char *high = *p == '%' && p[1] ? strchr(digits, p[1]) : NULL,
                   *low = high && p[2] ? strchr(digits, p[2]) : NULL;
        if (*p == ' ')
            *to++ = 0;
        else if (low && (high != digits || low != digits)) {
            *to++ = (char)((high - digits) * 16 + (low - digits));
            p += 2;
        } else if (strchr(plain_characters, *p))
            *to++ = *p;
        else {
            free(words);
            return NULL;
        }
    }
    return words;
}

static const char *suffix_name(int i) {
    return i > 1 ? options_predictor_name(i - 2) : i ? "noscale" : "nomaster";
}

/* fp16 as it is practised (Micikevicius et al. 2018); formats that hold the exponents of gradients need nothing. */
static const char *default_loss_scale(const struct series *series) {
    return !strcmp(tensor_format_name(series->variant->format), "fp16") ? "dynamic" : "none";
}

static int choose_loss_scale(const struct settings *settings, struct series *series) {
    enum { ROOM = 256 };
    const char *given = series->no_scale       ? "none"
                        : settings->loss_scale ? settings->loss_scale
                        : series->loss_scale   ? series->loss_scale
                                               : default_loss_scale(series);
    char *text = text_alloc(ROOM, 1);
    const tensor_status bad = nn_loss_scale_text(given, text, ROOM);
    free(series->loss_scale);
    series->loss_scale = text;
    return bad ? text_usage("--loss-scale: %s", tensor_error()) : STATUS_OK;
}

/* Where a format trains, by the name in the list or the setting. */
static int find_device(struct series *series, const char *option, const char *name) {
    failure_forget();
    const tensor_device *device = tensor_device_find(name);
    if (!device)
        return failure_is_usage() ? text_usage("--%s: %s", option, tensor_error())
                                  : text_failed("--%s: %s", option, tensor_error());
    series->device = text_format("%s", tensor_device_name(device));
    return STATUS_OK;
}

static void note_backend(struct series *series) {
    const char *row = tensor_kernel_backend(series->variant->format, "matmul"),
               *backend = strcmp(series->device, "cpu") != 0 ? series->device
                          : row                              ? row
                                                             : "-";
    series->backend = text_format("%s", backend);
}

/* "policy:NAME", or "policy:" and the name of a file without its folders. */
static char *policy_label(const char *policy) {
    const char *slash = strrchr(policy, '/');
    return text_format("policy:%s", strpbrk(policy, ";\n") ? "text" : slash && slash[1] ? slash + 1 : policy);
}

/* Reads the policy, of which only what it says is kept: the file may change while runs go on. variant NULL: its own. */
static int take_policy(const struct settings *s, struct series *series, const char *policy, const char *variant) {
    const nn_config config = {.variant = s->resumed_policy ? NULL : variant,
                              .policy = s->resumed_policy ? s->resumed_policy : policy,
                              .layer_formats = s->resumed_policy ? NULL : s->layer_format,
                              .predictor = s->predictor,
                              .no_master = !strcmp(s->master, "none"),
                              .batch = 1};
    failure_forget();
    nn_graph *g = nn_graph_new(&config);
    const char *option = policy ? "policy" : "layer-format";
    if (!g)
        return failure_is_usage() ? text_usage("--%s: %s", option, tensor_error())
                                  : text_failed("--%s: %s", option, tensor_error());
    series->policy = text_format("%s", nn_graph_policy(g));
    const char *scale = nn_policy_loss_scale(g);
    if (scale || policy)
        series->loss_scale = text_format("%s", scale ? scale : "none"); /* what --loss-scale may change */
    nn_graph_free(g);
    char *name = text_format("%.*s", (int)strcspn(series->policy, ";") - 8, series->policy + 8); /* "variant NAME;" */
    series->variant = nn_variant_find(name);
    free(name);
    for (int i = 0; tensor_format_list(i); i++) {
        const tensor_format format = tensor_format_list(i);
        series->shared =
            series->shared || (tensor_format_is_shared(format) && strstr(series->policy, tensor_format_name(format)));
    }
    return STATUS_OK;
}

static int parse_policy(const struct settings *settings, struct series *series, const char *policy) {
    const char *base = policy == settings->policy ? settings->formats : NULL; /* of `train` */
    const int status = take_policy(settings, series, policy, base);
    if (status)
        return status;
    series->predictor = series->shared && settings->predictor ? settings->predictor : NULL;
    series->no_master = !strcmp(settings->master, "none");
    note_backend(series);
    series->label = policy_label(policy);
    return choose_loss_scale(settings, series);
}

/* One item of the list, "VARIANT[:nomaster][:noscale][:PREDICTOR][@DEVICE]" or "policy:POLICY[@DEVICE]". */
static int parse_series(const struct settings *settings, struct series *series, char *item) {
    const char *option = strchr(settings->formats, ',') ? "formats" : "format";
    char *at = strchr(item, '@');
    if (at)
        *at++ = 0;
    const char *elsewhere = settings->device ? settings->device : "cpu";
    const int status = at ? find_device(series, option, at) : find_device(series, "device", elsewhere);
    if (status)
        return status;
    if (!strncmp(item, "policy:", 7)) {
        const int taken = parse_policy(settings, series, item + 7);
        if (taken == STATUS_OK && at) {
            char *label = text_format("%s@%s", series->label, series->device);
            free(series->label);
            series->label = label;
        }
        return taken;
    }
    char *rest = item, *name = strsep(&rest, ":");
    series->variant = nn_variant_find(name);
    if (!series->variant)
        return refuse_name(text_format("--%s: unknown format '%s'", option, name), name, options_variant_name);
    series->shared = tensor_format_is_shared(series->variant->format);
    series->predictor = series->shared && settings->predictor ? settings->predictor : series->variant->predictor;
    series->no_master = series->variant->wide && !strcmp(settings->master, "none");
    bool has_predictor = false;
    for (char *suffix; (suffix = strsep(&rest, ":"));) {
        if (!strcmp(suffix, "nomaster")) {
            if (!series->variant->wide)
                return text_usage("--%s: '%s:nomaster': %s keeps no wide copy of its weights anyway", option, name,
                                  name);
            series->no_master = true;
        } else if (!strcmp(suffix, "noscale")) {
            if (!settings->loss_scale && !strcmp(default_loss_scale(series), "none"))
                return text_usage("--%s: '%s:noscale': the loss of %s is not scaled anyway", option, name, name);
            series->no_scale = true;
        } else if (autoflex_find(suffix)) {
            if (!series->shared)
                return text_usage("--%s: '%s:%s': %s has no shared exponent to predict", option, name, suffix, name);
            series->predictor = autoflex_name(autoflex_find(suffix));
            has_predictor = true;
        } else {
            return refuse_name(text_format("--%s: unknown suffix '%s' of '%s'", option, suffix, name), suffix,
                               suffix_name);
        }
    }
    const bool shared = series->shared;
    if (settings->layer_format) {
        const int taken = take_policy(settings, series, NULL, series->variant->name);
        if (taken)
            return taken;
    }
    series->shared = series->shared || shared;
    note_backend(series);
    series->label = text_format("%s%s%s%s%s%s%s", name, series->no_master ? ":nomaster" : "",
                                series->no_scale ? ":noscale" : "", has_predictor ? ":" : "",
                                has_predictor ? series->predictor : "", at ? "@" : "", at ? series->device : "");
    return choose_loss_scale(settings, series);
}

/* "flex16+5:ngraph" under --layer-format: asked for, of all its shared exponents. */
static bool has_own_predictor(const struct series *series) {
    return series->predictor && series->predictor != series->variant->predictor;
}

nn_config options_network(const struct settings *s, const struct series *series) {
    return (nn_config){.variant = series->variant->name,
                       .policy = series->policy,
                       .predictor =
                           series->policy && !s->predictor && !has_own_predictor(series) ? NULL : series->predictor,
                       .no_master = series->no_master,
                       .device = series->device,
                       .batch = (int)s->batch,
                       .momentum = (float)s->momentum,
                       .weight_decay = (float)s->weight_decay,
                       .optimiser = s->optimiser,
                       .decay = s->decay,
                       .beta1 = (float)s->beta1,
                       .beta2 = (float)s->beta2,
                       .epsilon = (float)s->epsilon,
                       .clip_value = (float)s->clip_value,
                       .clip_norm = (float)s->clip_norm,
                       .nesterov = s->nesterov,
                       .label_smoothing = (float)s->label_smoothing,
                       .narrow_state = s->narrow_state,
                       .loss_scale = series->loss_scale};
}

/* What options do not suit each other, or the format, the library knows. */
static int check_network(const struct settings *settings, const struct series *series) {
    failure_forget();
    const nn_config config = options_network(settings, series);
    nn_graph *g = nn_graph_new(&config);
    const int status = g                    ? STATUS_OK
                       : failure_is_usage() ? text_usage("%s: %s", series->label, tensor_error())
                                            : text_failed("%s: %s", series->label, tensor_error());
    nn_graph_free(g);
    return status;
}

/* The formats, then the policies. */
static char *list_of_series(const struct settings *s) {
    char *list = text_format("%s", s->formats ? s->formats : "policy"), *policies, *rest;
    if (current_command != COMMAND_COMPARE || !s->policy)
        return list;
    policies = rest = text_format("%s", s->policy);
    for (char *item; (item = strsep(&rest, ","));) {
        char *longer = text_format("%s,policy:%s", list, item);
        free(list);
        list = longer;
    }
    free(policies);
    return list;
}

/* The policy of `train`, where the device is that of all. */
static int parse_alone(const struct settings *settings, struct series *series, const char *policy) {
    const int status = find_device(series, "device", settings->device ? settings->device : "cpu");
    if (status == STATUS_OK && settings->formats && strpbrk(settings->formats, ",:@"))
        return text_usage("--format '%s': beside --policy expected a variant as it is", settings->formats);
    return status == STATUS_OK ? parse_policy(settings, series, policy) : status;
}

int options_series(const struct settings *settings, struct series **series, int *count) {
    char *copy = list_of_series(settings), *rest = copy;
    int status = STATUS_OK, shared = 0;
    *series = NULL;
    *count = 0;
    for (char *item; status == STATUS_OK && (item = strsep(&rest, ","));) {
        *series = text_realloc(*series, (size_t)*count + 1, sizeof **series);
        struct series *s = &(*series)[*count];
        *s = (struct series){0};
        status = current_command == COMMAND_TRAIN && settings->policy ? parse_alone(settings, s, settings->policy)
                                                                      : parse_series(settings, s, item);
        if (status == STATUS_OK)
            status = check_network(settings, s);
        for (int i = 0; status == STATUS_OK && i < *count; i++)
            if (!strcmp((*series)[i].label, s->label))
                status = text_usage("--formats: '%s' is listed twice", s->label);
        shared += s->shared;
        ++*count;
    }
    free(copy);
    if (status == STATUS_OK && settings->predictor && !shared)
        status = text_usage("--predictor '%s': none of the formats (%s) has a shared exponent", settings->predictor,
                            settings->formats ? settings->formats : settings->policy);
    if (status != STATUS_OK) {
        series_free(*series, *count);
        *series = NULL;
        *count = 0;
    }
    return status;
}

void series_free(struct series *series, int count) {
    for (int i = 0; i < count; i++) {
        free(series[i].label);
        free(series[i].backend);
        free(series[i].device);
        free(series[i].policy);
        for (int r = 0; r < series[i].role_count; r++) {
            free(series[i].roles[r].name);
            free(series[i].roles[r].kind);
            for (int k = 0; k < ROLE_LIMIT; k++)
                free(series[i].roles[r].role[k]);
        }
        free(series[i].roles);
        free(series[i].loss_scale);
    }
    free(series);
}

/* Without batch normalisation networks diverge at the rate that suits the others. */
double options_default_rate(const char *model) {
    if (nn_model_reads_text(model)) /* by adamw */
        return 0.001;
    return !strcmp(model, "mlp2") || !strcmp(model, "lenet") || !strcmp(model, "alexnet") ? 0.01 : 0.1;
}

double options_rate(const struct settings *s) {
    if (!strcmp(s->optimiser, "sgd"))
        return nn_model_reads_text(s->model) ? 0.1 : options_default_rate(s->model);
    return !strcmp(s->optimiser, "adagrad") || !strcmp(s->optimiser, "lamb") ? 0.01 : 0.001;
}

int options_check_model(const char *model) {
    failure_forget();
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
    if (!g)
        return text_failed("%s", tensor_error());
    int status = STATUS_OK;
    if ((nn_model_reads_text(model) ? nn_model_text(g, model, 8, 10) : nn_model(g, model, 32, 32, 3, 10)) < 0)
        status = failure_is_usage()
                     ? text_usage("--model: %s%s", tensor_error(), text_did_you_mean(model, options_model_name))
                     : text_failed("--model '%s': %s", model, tensor_error());
    nn_graph_free(g);
    return status;
}

static const char *const report_help[] = {
    "Usage: flexlab report [OPTION]... DIR...\n\n"
    "Draws table, figures and report.html again from what 'flexlab compare' or 'flexlab train'\n"
    "has stored in DIR, without training. Several folders become one report: they must hold\n"
    "the same training, with any formats and seeds.\n",
    "\nWithout --out, report.html and the figures in DIR are replaced; with nothing else chosen they\n"
    "are the same, byte for byte. With --out, summary.csv is written beside them.\n"
    "\nExit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab report quick --trace-tensors 'conv1*,*.weight'\n"
    "  flexlab report monday tuesday --out both\n"};

static const char *const eval_help[] = {
    "Usage: flexlab eval --checkpoint FILE [OPTION]...\n\n"
    "Mean loss and accuracy of a trained network on images, normalised as those that it was\n"
    "trained on, or on a text; then also bits of a token and perplexity.\n",
    "\nPrints loss and accuracy, a line each. Exit status: 0 success, 1 failure,\n"
    "2 wrong usage.\n"
    "\nExample\n"
    "  flexlab eval --checkpoint quick/best.safetensors --data synthetic:train=2000,test=500\n"};

static const char *const wgan_help[] = {
    "Usage: flexlab wgan [OPTION]...\n\n"
    "Trains a generator of images and its critic in one number format (Wasserstein GAN with\n"
    "weight clipping: docs/losses.md).\n",
    "\nIn the folder of results\n"
    "  metrics.jsonl         the settings, then a line a step of the generator: the critic's estimate\n"
    "                        of the distance between real and generated images, the generator's loss\n"
    "  samples-STEP.ppm      generated images, the same latent numbers each time (.pgm where grey)\n"
    "  wgan-STEP.critic.safetensors, wgan-STEP.generator.safetensors\n"
    "\nAfter Ctrl-C, SIGTERM or SIGHUP the step in progress is finished and samples and networks are\n"
    "kept. Exit status: 0 success, 1 failure, 2 wrong usage, 130, 143, 129 after these signals.\n"
    "\nExample\n"
    "  flexlab wgan --data cifar10:cifar-10-batches-bin --format flex16+5 --steps 5000 --out cifar-gan\n"};

void options_help(enum command command, FILE *out) {
    if (command == COMMAND_COMPARE)
        fputs("Usage: flexlab compare [OPTION]...\n\n"
              "Trains one network in several number formats, side by side, from the same initial\n"
              "weights on the same batches, and reports losses, accuracies, speed and memory.\n",
              out);
    else if (command == COMMAND_REPORT)
        fputs(report_help[0], out);
    else if (command == COMMAND_EVAL)
        fputs(eval_help[0], out);
    else if (command == COMMAND_WGAN)
        fputs(wgan_help[0], out);
    else
        fputs("Usage: flexlab train [OPTION]...\n\n"
              "Trains one network in one number format. Writes what 'flexlab compare' writes, and the\n"
              "trained network (--seeds 1).\n",
              out);
    for (int r = 0; r < ROWS; r++) {
        const struct option_row *row = &rows[r];
        if (!(row->commands & (int)command))
            continue;
        if (row->section)
            fprintf(out, "\n%s\n", row->section);
        int used = fprintf(out, "  --%s%s%s", row->name, row->placeholder ? " " : "",
                           row->placeholder ? row->placeholder : "");
        fprintf(out, "%*s", 24 > used ? 24 - used : 1, "");
        for (const char *p = row->help; *p; p++) {
            fputc(*p, out);
            if (*p == '\n')
                fprintf(out, "%*s", 24, "");
        }
        fputc('\n', out);
    }
    if (command == COMMAND_REPORT || command == COMMAND_EVAL || command == COMMAND_WGAN) {
        fputs(command == COMMAND_REPORT ? report_help[1] : command == COMMAND_EVAL ? eval_help[1] : wgan_help[1], out);
        return;
    }
    fputs("\nIn the folder of results\n"
          "  metrics.jsonl         the configuration, then losses, epochs and runs, one JSON object\n"
          "                        a line (docs/metrics.md); everything but seconds,\n"
          "                        images_per_second and the first line, which names the\n"
          "                        machine, is the same for the same options\n"
          "  summary.csv           one line a format\n"
          "  trace-FORMAT-seedN.csv  exponent and maximum of every tensor over the steps\n"
          "  telemetry-FORMAT-seedN.jsonl, .csv  with --telemetry: elements of every tensor over\n"
          "                        the steps (docs/telemetry.md)\n"
          "  figure-*.svg, .png    loss and accuracy; exponents (drawn by gnuplot)\n"
          "  report.html           all of it on one page, readable without a network\n",
          out);
    if (command == COMMAND_TRAIN)
        fputs("  best.safetensors, last.safetensors  the network after its best evaluation and after its last\n"
              "                        step, for 'flexlab eval' and other programs (docs/checkpoints.md)\n",
              out);
    fputs("Everything is made in the folder flexlab.part inside it and takes its place, complete and on\n"
          "the disk, when the runs are over; with --force earlier results stay until then. One flexlab\n"
          "at a time writes in a folder.\n"
          "\nAfter Ctrl-C, SIGTERM or SIGHUP the step in progress is finished and what there is is kept and\n"
          "marked as incomplete: in the table, summary.csv, report.html and the last line of metrics.jsonl.\n"
          "Incomplete results replace no earlier ones (--force): they go to the folder flexlab.incomplete\n"
          "inside DIR. A second signal ends the program at once; results so far are lost then.\n",
          out);
    if (command == COMMAND_TRAIN)
        fputs("\nUntil a training is over its checkpoints are in DIR/flexlab.resume. 'flexlab train --resume DIR'\n"
              "goes on from there, after a signal, kill -9 or a power cut: results and networks are those of a\n"
              "training that was never interrupted.\n",
              out);
    fputs("\nA run has diverged when the loss of any step or of the test set is NaN or Inf, or when its\n"
          "last loss is more than 1.5 times the larger of its first loss and log(classes), the loss\n"
          "of guessing, or when its last 20 steps or more made no update because their gradients overflowed\n"
          "at every loss scale. Table, report and metrics.jsonl name it; the exit status is 1.\n"
          "\nExit status: 0 success, 1 failure or divergence, 2 wrong usage, 130 after Ctrl-C, 143 after\n"
          "SIGTERM, 129 after SIGHUP.\n"
          "\nExamples\n",
          out);
    if (command == COMMAND_COMPARE)
        fputs("  flexlab compare --formats fp32,fp16,fp16:noscale --model cnn6 --out scaled\n"
              "  flexlab compare --model mlp2 --data synthetic:train=2000,test=500 --epochs 3 --out quick\n"
              "  flexlab compare --model resnet20 --data cifar10:cifar-10-batches-bin --epochs 20 --seeds 3 --out r20\n"
              "  flexlab compare --formats fp32,fp16,fp16:nomaster,fp16-sr,flex16+5 --lr 5e-4 --out low-rate\n"
              "  flexlab compare --formats fp32,flex16+5 --policy O1,O2:bf16,dfp16,my.policy --out levels\n",
              out);
    else
        fputs(
            "  flexlab train --model mlp2 --data synthetic:train=2000,test=500 --epochs 3 --out quick\n"
            "  flexlab train --format flex16+5:ngraph --model resnet20 --data cifar10:cifar-10-batches-bin --out r20\n"
            "  flexlab train --device cuda --model resnet20 --data cifar10:cifar-10-batches-bin --out r20-gpu\n"
            "  flexlab train --format bf16 --model cnn6 --data idx:fashion-mnist --epochs 5 --out fashion\n"
            "  flexlab train --model resnet20 --data images:flowers,resize=64x64,channels=3 --out flowers\n"
            "  flexlab train --model gpt --data text:book.txt --epochs 3 --out book\n"
            "  flexlab train --policy O2:bf16 --layer-format 'fc*=fp32' --out o2\n"
            "  flexlab train --resume fashion\n",
            out);
}
