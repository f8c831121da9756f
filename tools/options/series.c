/* series.c - the policies that a command trains, read from the ways in which the options spell them. */
#include "options/series.h"
#include "base/failure.h"
#include "flexlab/autoflex.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *suffix_name(int i) {
    return i > 1 ? options_predictor_name(i - 2) : i ? "noscale" : "nomaster";
}

/* fp16 is trained with a dynamic scale (Micikevicius et al. 2018), also if a policy begins from it; formats that hold
 * the exponents of gradients need none. */
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
    const tensor_status bad = nn_loss_scale_text(text, ROOM, given);
    free(series->loss_scale);
    series->loss_scale = text;
    return bad ? text_usage("--loss-scale: %s", tensor_error()) : STATUS_OK;
}

/* Sets the device of a format by its name in the list or in the settings. */
static int find_device(struct series *series, const char *option, const char *name) {
    failure_forget();
    if (nn_group_started() > 1 && !strcmp(name, "cuda")) { /* each rank opens its own (nn_group_device) */
        series->device = text_format("%s", name);
        return STATUS_OK;
    }
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

/* Whether it is the text of rules, in which commas, colons and '@' have a meaning of their own. */
static bool is_policy_text(const char *policy) {
    return strpbrk(policy, ";\n") != NULL;
}

/* Whether a policy is given as text or as the name of a preset; else it is the name of a file. */
static bool is_inline(const char *policy) {
    bool is_preset_or_text = is_policy_text(policy);
    for (int i = 0; nn_policy_at(i) && !is_preset_or_text; i++)
        is_preset_or_text = !strcmp(nn_policy_at(i), policy);
    return is_preset_or_text;
}

/* "policy:NAME", or "policy:" and the name of a file without its folders. */
static char *policy_label(const char *policy, bool no_scale) {
    const char *slash = strrchr(policy, '/');
    return text_format("policy:%s%s",
                       is_policy_text(policy) ? "text"
                       : slash && slash[1]    ? slash + 1
                                              : policy,
                       no_scale ? ":noscale" : "");
}

/* Cuts ":noscale" off the end of a name. */
static bool take_no_scale(char *name) {
    static const char suffix[] = ":noscale";
    const size_t length = strlen(name), end = sizeof suffix - 1;
    const bool has = length > end && !strcmp(name + length - end, suffix);
    if (has)
        name[length - end] = 0;
    return has;
}

/* The variants, then the presets that have names of their own: "dfp16" is the variant, "policy:dfp16" the preset. */
static const char *policy_name(int i) {
    int variants = 0;
    while (options_variant_name(variants))
        variants++;
    if (i < variants)
        return options_variant_name(i);
    for (int p = 0; nn_policy_at(p); p++)
        if (!nn_variant_find(nn_policy_at(p)) && i-- == variants)
            return nn_policy_at(p);
    return NULL;
}

/* Whether a name that is no variant's, with or without ":noscale", is that of a preset or of a file. */
static bool names_policy(const char *name) {
    char *copy = text_format("%s", name);
    bool found = is_policy_text(copy) || (!access(copy, F_OK) && *copy);
    take_no_scale(copy);
    found = found || (!access(copy, F_OK) && *copy);
    for (int i = 0; nn_policy_at(i) && !found; i++)
        found = !strcmp(nn_policy_at(i), copy);
    free(copy);
    return found;
}

/* Whether an item begins with a variant, such as "fp16" or "fp16:nomaster". */
static bool starts_with_variant(const char *item) {
    char *name = text_format("%.*s", (int)tensor_format_extent(item), item);
    const bool found = nn_variant_find(name) != NULL;
    free(name);
    return found;
}

/* A predictor has no line of its own: it follows the format everywhere. */
char *series_plain_policy(const struct series *series) {
    const nn_variant *v = series->variant;
    const char *format = tensor_format_name(v->format);
    const bool own = series->predictor && (!v->predictor || strcmp(series->predictor, v->predictor) != 0);
    char *predictor = own ? text_format(" * activations=%s:%s gradients=%s:%s weights=%s:%s;", format,
                                        series->predictor, format, series->predictor, format, series->predictor)
                          : text_format("%s", "");
    char *policy =
        text_format("variant %s;%s%s%s", v->name, predictor, series->no_master && v->wide ? " * master=none;" : "",
                    series->no_scale ? " loss-scale none;" : "");
    free(predictor);
    return policy;
}

static const char *option_of_formats(const struct settings *settings) {
    return settings->command == COMMAND_COMPARE ? "formats" : "format";
}

bool policy_names_shared(const char *policy) {
    static const char delimiters[] = " \t\n;=";
    for (const char *at = policy; *at; at += strspn(at, delimiters)) {
        const size_t length = strcspn(at, delimiters);
        char *word = text_format("%.*s", (int)length, at);
        word[tensor_format_extent(word)] = 0;
        const nn_variant *v = nn_variant_find(word); /* each format is one */
        free(word);
        if (v && tensor_format_is_shared(v->format))
            return true;
        at += length;
    }
    return false;
}

static bool has_class(const struct settings *s) {
    return s->accumulate || s->operands;
}

/* Appends the line of --accumulate or --operands to the policy; a resumed one has it. */
static int add_class(const struct settings *s, struct series *series) {
    if (!has_class(s) || series->resumed)
        return STATUS_OK;
    if (s->accumulate && s->operands)
        return text_usage(
            "--operands '%s': the sums of blocks are exact, and --accumulate '%s' has others; expected one "
            "of them",
            s->operands, s->accumulate);
    const char *option = s->operands ? "operands" : "accumulate", *value = s->operands ? s->operands : s->accumulate;
    char *text = text_format("%s=%s", option, value), *policy = series->policy;
    tensor_class class;
    failure_forget();
    const bool bad = tensor_class_find(&class, text);
    free(text);
    if (bad)
        return text_usage("--%s: %s", option, tensor_error());
    series->policy = s->operands ? text_format("%s if-any @product operands=%s;", policy, value)
                                 : text_format("%s accumulate %s;", policy, value);
    free(policy);
    return STATUS_OK;
}

/* ":h100" or ":mx:int8" after the name of a format, or "". */
static char *class_label(const struct settings *s) {
    return text_format("%s%s", has_class(s) ? ":" : "", s->operands ? s->operands : s->accumulate ? s->accumulate : "");
}

/* Reads the policy and stores its text, because the file may change while runs continue. If variant is NULL, the policy
 * names its own. */
static int take_policy(const struct settings *s, struct series *series, const char *policy, const char *variant) {
    const nn_config config = {.variant = series->resumed ? NULL : variant,
                              .policy = series->resumed ? series->resumed : policy,
                              .layer_formats = series->resumed ? NULL : s->layer_format,
                              .no_master = !strcmp(s->master, "none"),
                              .batch = 1};
    if (series->resumed && !is_inline(series->resumed))
        return text_failed(
            "--resume '%s': the policy '%s', expected its rules, with ';' after each, or the name of a preset",
            s->resume, series->resumed);
    if (s->resume && !series->resumed)
        return text_failed("--resume '%s': its options name a policy, but its rules are missing", s->resume);
    series->asked_policy = !series->resumed && policy ? text_format("%s", policy) : NULL;
    series->asked_variant = !series->resumed && variant ? text_format("%s", variant) : NULL;
    failure_forget();
    nn_graph *g = nn_graph_new(&config);
    const char *option = !policy ? "layer-format" : s->policy ? "policy" : option_of_formats(s);
    if (!g)
        return failure_is_usage() ? text_usage("--%s: %s", option, tensor_error())
                                  : text_failed("--%s: %s", option, tensor_error());
    series->policy = text_format("%s", nn_graph_policy(g));
    const char *scale = nn_policy_loss_scale(g);
    if (scale)
        series->loss_scale = text_format("%s", scale); /* --loss-scale may change it */
    nn_graph_free(g);
    const int added = add_class(s, series);
    if (added)
        return added;
    char *name = text_format("%.*s", (int)strcspn(series->policy, ";") - 8, series->policy + 8); /* "variant NAME;" */
    series->variant = nn_variant_find(name);
    free(name);
    series->shared = series->shared || policy_names_shared(series->policy);
    return STATUS_OK;
}

/* A name or file may end in ":noscale", and so may the variant that --format gives it, base; a text has a line of its
 * own for that. */
static int parse_policy(const struct settings *settings, struct series *series, const char *given) {
    char *policy = text_format("%s", given);
    char *base = given == settings->policy && settings->formats ? text_format("%s", settings->formats) : NULL;
    series->no_scale = !is_policy_text(policy) && take_no_scale(policy);
    if (base)
        series->no_scale |= take_no_scale(base);
    int status = take_policy(settings, series, policy, base);
    if (status == STATUS_OK && series->no_scale && !settings->loss_scale &&
        !strcmp(series->loss_scale ? series->loss_scale : default_loss_scale(series), "none"))
        status = text_usage("--%s: '%s:noscale': the loss of this policy is not scaled anyway",
                            settings->policy ? "policy" : option_of_formats(settings), policy);
    if (status == STATUS_OK) {
        series->predictor = series->shared && settings->predictor ? settings->predictor : NULL;
        series->no_master = !strcmp(settings->master, "none");
        note_backend(series);
        char *label = policy_label(policy, series->no_scale), *class = class_label(settings);
        series->label = text_format("%s%s", label, class);
        free(label);
        free(class);
        status = choose_loss_scale(settings, series);
    }
    free(policy);
    free(base);
    return status;
}

/* The suffix at *rest, with the parameters NAME=VALUE of a predictor that follow it, and what is left. */
static char *next_suffix(char **rest) {
    char *const suffix = strsep(rest, ":");
    while (suffix && *rest && memchr(*rest, '=', strcspn(*rest, ":"))) {
        (*rest)[-1] = ':';
        (void)strsep(rest, ":");
    }
    return suffix;
}

/* One item of the list, "VARIANT[:nomaster][:noscale][:PREDICTOR][@DEVICE]" or "[policy:]POLICY[:noscale][@DEVICE]",
 * where a POLICY is a preset, a file or a text. */
static int parse_series(const struct settings *settings, struct series *series, char *item) {
    const char *option = option_of_formats(settings);
    char *at = is_policy_text(item) ? NULL : strchr(item, '@');
    if (at)
        *at++ = 0;
    const char *elsewhere = settings->device ? settings->device : "cpu";
    const int status = at ? find_device(series, option, at) : find_device(series, "device", elsewhere);
    if (status)
        return status;
    const size_t prefix = strncmp(item, "policy:", 7) ? 0 : 7;
    if (prefix || (!starts_with_variant(item) && (series->resumed || names_policy(item)))) {
        const int taken = parse_policy(settings, series, item + prefix);
        if (taken == STATUS_OK && at) {
            char *label = text_format("%s@%s", series->label, series->device);
            free(series->label);
            series->label = label;
        }
        return taken;
    }
    double bits;
    if (!tensor_block_format_bits(&bits, item))
        return text_usage(
            "--%s: '%s' is a block format, which operands of products have: expected --operands %s beside "
            "a format, or a preset such as mxint8",
            option, item, item);
    char *const end = item + tensor_format_extent(item), *name = item, *rest = *end ? end + 1 : NULL;
    *end = 0;
    series->variant = nn_variant_find(name);
    if (!series->variant && ((strpbrk(name, "+:0123456789") && strstr(tensor_error(), "character")) ||
                             tensor_error_status() == TENSOR_E_UNSUPPORTED))
        return text_usage("--%s: %s", option, tensor_error());
    if (!series->variant)
        return text_refuse_name(text_format("--%s: unknown format '%s', and no file of that name", option, name), name,
                                policy_name);
    series->shared = tensor_format_is_shared(series->variant->format);
    series->predictor = series->shared && settings->predictor ? settings->predictor : series->variant->predictor;
    series->no_master = series->variant->wide && !strcmp(settings->master, "none");
    bool has_predictor = false;
    for (char *suffix; (suffix = next_suffix(&rest));) {
        if (!strcmp(suffix, "nomaster")) {
            if (!series->variant->wide)
                return text_usage("--%s: '%s:nomaster': %s has no wide copy of its weights anyway", option, name, name);
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
        } else if (strchr(suffix, '=')) {
            autoflex_predictor ignored;
            (void)autoflex_parse(&ignored, suffix);
            return text_usage("--%s: %s", option, tensor_error());
        } else {
            return text_refuse_name(text_format("--%s: unknown suffix '%s' of '%s'", option, suffix, name), suffix,
                                    suffix_name);
        }
    }
    const bool shared = series->shared;
    if (settings->layer_format || has_class(settings)) {
        const char *variant = series->variant->name;
        char *lines = settings->layer_format ? NULL : text_format("variant %s;", variant);
        const int taken = take_policy(settings, series, lines, lines ? NULL : variant);
        free(lines);
        if (taken)
            return taken;
    }
    series->shared = series->shared || shared;
    char *class = class_label(settings);
    series->label = text_format("%s%s%s%s%s%s%s%s%s", name, series->no_master ? ":nomaster" : "",
                                series->no_scale ? ":noscale" : "", has_predictor ? ":" : "",
                                has_predictor ? series->predictor : "", settings->layer_format ? SERIES_LAYERS : "",
                                class, at ? "@" : "", at ? series->device : "");
    free(class);
    series->plain = !settings->layer_format && !has_class(settings);
    if (series->plain)
        series->policy = series_plain_policy(series);
    else { /* its rules may give masters and shared exponents to a format without them */
        series->no_master = series->no_master || !strcmp(settings->master, "none");
        if (series->shared && settings->predictor && !has_predictor)
            series->predictor = settings->predictor;
    }
    note_backend(series);
    return choose_loss_scale(settings, series);
}

/* Whether the traces of two labels would have one name: folder.c replaces ':' by '_', which the name of a policy file
 * may contain. */
static bool share_files(const char *one, const char *other) {
    for (; *one && *other; one++, other++)
        if (*one != *other && !(strchr(":_", *one) && strchr(":_", *other)))
            return false;
    return *one == *other;
}

/* Whether a predictor is given for all shared exponents, such as "flex16+5:ngraph" under --layer-format. */
static bool has_own_predictor(const struct series *series) {
    return series->predictor && series->predictor != series->variant->predictor;
}

/* A plain policy is passed to the library as its variant: the numbers are the same, and the checkpoint names the
 * variant. */
nn_config series_network(const struct settings *s, const struct series *series) {
    return (nn_config){.variant = series->variant->name,
                       .policy = series->plain ? NULL : series->policy,
                       .predictor =
                           !series->plain && !s->predictor && !has_own_predictor(series) ? NULL : series->predictor,
                       .no_master = series->no_master,
                       .device = series->device,
                       .batch = (int)s->batch,
                       .shards = (int)s->shards,
                       .batchnorm_global = s->batchnorm && !strcmp(s->batchnorm, "global"),
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

nn_config series_asked(const struct settings *s, const struct series *series) {
    nn_config config = series_network(s, series);
    if (series->plain || series->resumed || has_class(s))
        return config;
    config.policy = series->asked_policy;
    config.variant = series->asked_variant;
    config.layer_formats = s->layer_format;
    return config;
}

/* The library checks whether options suit each other and the format. */
static int check_network(const struct settings *settings, const struct series *series) {
    failure_forget();
    const nn_config config = series_network(settings, series);
    nn_graph *g = nn_graph_new(&config);
    const int status = g                    ? STATUS_OK
                       : failure_is_usage() ? text_usage("%s: %s", series->label, tensor_error())
                                            : text_failed("%s: %s", series->label, tensor_error());
    nn_graph_free(g);
    return status;
}

/* Takes the next item of a list. Names have no blanks: rules extend to the end of the list. */
static char *next_item(char **rest) {
    char *item = *rest;
    if (!item || !is_policy_text(item) || strcspn(item, " ;\n") > strcspn(item, ","))
        return strsep(rest, ",");
    *rest = NULL;
    return item;
}

/* The list of the formats, then of the policies; to be freed. */
static char *list_of_series(const struct settings *s) {
    char *list = text_format("%s", s->formats ? s->formats : "policy"), *policies, *rest;
    if (s->command != COMMAND_COMPARE || !s->policy)
        return list;
    policies = rest = text_format("%s", s->policy);
    for (char *item; (item = next_item(&rest));) {
        char *longer = text_format("%s,policy:%s", list, item);
        free(list);
        list = longer;
    }
    free(policies);
    return list;
}

/* Reads the policy of `train` or `wgan`, whose device is that of the settings. */
static int parse_alone(const struct settings *settings, struct series *series, const char *policy) {
    const int status = find_device(series, "device", settings->device ? settings->device : "cpu");
    char *base = text_format("%s", settings->formats ? settings->formats : "");
    take_no_scale(base);
    const bool bare = !strpbrk(base, ",:@");
    free(base);
    if (status == STATUS_OK && !bare)
        return text_usage("--format '%s': beside --policy expected a variant as it is, or with ':noscale'",
                          settings->formats);
    return status == STATUS_OK ? parse_policy(settings, series, policy) : status;
}

int series_read(const struct settings *settings, struct series **series, int *count) {
    char *copy = list_of_series(settings), *rest = copy;
    int status = STATUS_OK, shared = 0;
    *series = NULL;
    *count = 0;
    for (char *item; status == STATUS_OK && (item = next_item(&rest));) {
        *series = text_realloc(*series, (size_t)*count + 1, sizeof **series);
        struct series *s = &(*series)[*count];
        *s = (struct series){.resumed = *count < settings->resumed_count ? settings->resumed_policies[*count] : NULL};
        status = settings->command != COMMAND_COMPARE && settings->policy ? parse_alone(settings, s, settings->policy)
                                                                          : parse_series(settings, s, item);
        if (status == STATUS_OK)
            status = check_network(settings, s);
        for (int i = 0; status == STATUS_OK && i < *count; i++)
            if (!strcmp((*series)[i].label, s->label))
                status = text_usage("--formats: '%s' is listed twice", s->label);
            else if (share_files((*series)[i].label, s->label))
                status =
                    text_usage("--policy: the results of '%s' and '%s' would have files of one name; expected policy "
                               "files whose names differ in more than '_' for ':'",
                               (*series)[i].label, s->label);
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
        free(series[i].asked_policy);
        free(series[i].asked_variant);
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
