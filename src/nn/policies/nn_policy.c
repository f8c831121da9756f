/* nn_policy.c - reading policies: a text of lines, by name, from a file or as it is (docs/policies.md). */
#include "nn/policies/nn_policy.h"
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/table/block_classes.h"
#include "safetensors/safetensors.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_LIMIT = 1 << 16, WORD_LIMIT = 160, LINE_LIMIT = 1000 };

/* --- names -------------------------------------------------------------------------------------------------------- */

static const char *const roles[FL_ROLES] = {[FL_ROLE_OPERANDS] = "operands",
                                            [FL_ROLE_GRADIENT_OPERANDS] = "gradient-operands",
                                            [FL_ROLE_RESULT] = "result",
                                            [FL_ROLE_ACTIVATIONS] = "activations",
                                            [FL_ROLE_GRADIENTS] = "gradients",
                                            [FL_ROLE_WEIGHTS] = "weights",
                                            [FL_ROLE_WEIGHT_GRADIENTS] = "weight-gradients",
                                            [FL_ROLE_STATE] = "state",
                                            [FL_ROLE_MASTER] = "master",
                                            [FL_ROLE_ROUNDING] = "rounding"};
static const char *const masters[] = {"none", "wide", "fp32"};
static const char *const roundings[] = {"nearest", "stochastic"};

const char *fl_role_name(int i) {
    return i >= 0 && i < FL_ROLES ? roles[i] : NULL;
}

const char *fl_master_name(int i) {
    return i >= 0 && i < 3 ? masters[i] : NULL;
}

static const char *rounding_name(int i) {
    return i >= 0 && i < 2 ? roundings[i] : NULL;
}

static const char *format_name(int i) {
    const tensor_format format = tensor_format_at(i);
    return format ? tensor_format_name(format) : NULL;
}

static const char *variant_name(int i) {
    const nn_variant *variant = nn_variant_at(i);
    return variant ? variant->name : NULL;
}

static int find(const char *(*name)(int i), const char *word) {
    for (int i = 0; name(i); i++)
        if (!strcmp(name(i), word))
            return i;
    return -1;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static tensor_status unknown(const char *where, const char *what, const char *word, const char *(*name)(int i)) {
    return fl_fail(TENSOR_E_ARGUMENT, "%s: %s '%.40s', expected one of %s", where, what, word,
                   fl_list_names(name).text);
}

/* BLOCKS or BLOCKS,BLOCKS. */
static bool begins_blocks(const char *word) {
    char first[WORD_LIMIT];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(word, ","), word);
    return fl_block_format_begins(first);
}

/* Reads BLOCKS, or of operands BLOCKS,BLOCKS. */
static tensor_status read_blocks(const char *where, enum fl_role role, const char *word, struct fl_choice *choice) {
    char text[WORD_LIMIT * 2];
    tensor_class class;
    choice->type = (struct fl_type){FMT_NONE, NULL};
    if (role > FL_ROLE_GRADIENT_OPERANDS)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %s: '%.40s' is a block format, which tensors do not have: expected a format here, and "
                       "blocks in operands or gradient-operands",
                       where, roles[role], word);
    if (role == FL_ROLE_GRADIENT_OPERANDS && strchr(word, ','))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s=%.60s, expected one block format", where, roles[role], word);
    if (strlen(word) > WORD_LIMIT)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s=%.40s, expected at most %d characters", where, roles[role], word,
                       WORD_LIMIT);
    snprintf(text, sizeof text, "operands=%s", word);
    fl_fail_hold();
    const tensor_status status = tensor_class_find(&class, text);
    snprintf(text, sizeof text, "%.300s", status ? tensor_error() : "");
    fl_fail_release(TENSOR_OK);
    if (status)
        return fl_fail(status, "%s: %s: %s", where, roles[role], text);
    for (int i = 0; i < 2; i++)
        choice->blocks[i] = fl_class_operands(class, i);
    if (choice->blocks[0]->square)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %s=%.60s: square, which only weights have: expected operands=VALUES,WEIGHTS with square "
                       "in the second, as in nvfp4,nvfp4:square",
                       where, roles[role], word);
    return TENSOR_OK;
}

/* Reads FORMAT, FORMAT:PREDICTOR, or "auto" for roles that have it. */
static tensor_status read_type(const char *where, enum fl_role role, char *word, struct fl_type *type) {
    const bool has_auto = role != FL_ROLE_ACTIVATIONS && role != FL_ROLE_GRADIENTS && role != FL_ROLE_WEIGHTS;
    char *const end = word + tensor_format_extent(word), *predictor = *end ? end : NULL;
    *type = (struct fl_type){FMT_NONE, NULL};
    if (has_auto && !strcmp(word, "auto"))
        return TENSOR_OK;
    if (predictor)
        *predictor++ = 0;
    const int format = find(format_name, word);
    if (format < 0 && tensor_format_find(&type->format, word) && strncmp(tensor_error(), "unknown", 7) != 0) {
        char reason[300];
        snprintf(reason, sizeof reason, "%s", tensor_error());
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s: %s", where, roles[role], reason);
    }
    if (format < 0 && !type->format)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s: format '%.40s', expected one of %s%s", where, roles[role], word,
                       has_auto ? "auto, " : "", fl_list_names(format_name).text);
    if (format >= 0)
        type->format = tensor_format_at(format);
    if (!predictor)
        return TENSOR_OK;
    if (role == FL_ROLE_STATE)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: state: predictor '%.40s', but a velocity has that of its weight, moments and roots have "
                       "'current'; expected only state=%s",
                       where, predictor, word);
    if (!tensor_format_is_shared(type->format))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s: predictor '%.40s', but %s has no shared exponent", where,
                       roles[role], predictor, word);
    autoflex_predictor number;
    fl_fail_hold();
    const tensor_status status = autoflex_parse(&number, predictor);
    (void)fl_fail_release(TENSOR_OK);
    if (status)
        return fl_fail(status, "%s: %s: %s", where, roles[role], tensor_error());
    type->predictor = autoflex_name(number); /* the table's own string */
    return TENSOR_OK;
}

void fl_variant_choices(const nn_variant *v, struct fl_choice choice[FL_ROLES]) {
    const struct fl_type own = {v->format, v->predictor}, none = {FMT_NONE, NULL};
    for (int i = 0; i < FL_ROLES; i++)
        choice[i] = (struct fl_choice){.given = true, .type = none};
    choice[FL_ROLE_ACTIVATIONS].type = choice[FL_ROLE_GRADIENTS].type = choice[FL_ROLE_WEIGHTS].type = own;
    choice[FL_ROLE_MASTER].word = v->wide ? FL_MASTER_WIDE : FL_MASTER_NONE;
    choice[FL_ROLE_ROUNDING].word = v->stochastic_weights ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST;
}

/* ROLE=VALUE */
static tensor_status read_choice(struct fl_rule *rule, char *word) {
    char *value = strchr(word, '=');
    if (!value || !value[1] || value == word)
        return fl_fail(
            TENSOR_E_ARGUMENT,
            "%s: '%.40s', expected ROLE=VALUE without blanks, or format=VARIANT, such as '%.40s format=bf16'",
            rule->where, word, rule->pattern);
    *value++ = 0;
    if (!strcmp(word, "format")) { /* the whole variant for the layer: earlier words would be lost */
        for (int i = 0; i < FL_ROLES; i++)
            if (rule->choice[i].given)
                return fl_fail(TENSOR_E_ARGUMENT, "%s: format=%.40s, expected once and before all roles of its line",
                               rule->where, value);
        const nn_variant *variant = nn_variant_find(value);
        if (!variant)
            return unknown(rule->where, "format", value, variant_name);
        fl_variant_choices(variant, rule->choice);
        rule->explicit_roles = 0;
        return TENSOR_OK;
    }
    const int role = find(fl_role_name, word);
    if (role < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: role '%.40s', expected one of format, %s", rule->where, word,
                       fl_list_names(fl_role_name).text);
    struct fl_choice *choice = &rule->choice[role];
    if (rule->explicit_roles >> role & 1)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s=%.40s, expected each role once in a line", rule->where, word, value);
    choice->given = true;
    rule->explicit_roles |= 1u << role;
    choice->blocks[0] = choice->blocks[1] = NULL;
    if (begins_blocks(value) && role < FL_ROLE_MASTER)
        return read_blocks(rule->where, (enum fl_role)role, value, choice);
    if (role < FL_ROLE_MASTER)
        return read_type(rule->where, (enum fl_role)role, value, &choice->type);
    const char *(*name)(int) = role == FL_ROLE_MASTER ? fl_master_name : rounding_name;
    choice->word = find(name, value);
    return choice->word < 0 ? unknown(rule->where, word, value, name) : TENSOR_OK;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

struct reader {
    struct fl_policy *policy;
    const char *source; /* in messages */
    int line;
    bool inner; /* a preset within a policy */
};

static tensor_status read_text(struct fl_policy *policy, const char *text, const char *source, bool inner);

static tensor_status no_memory(void) {
    return fl_fail(TENSOR_E_MEMORY, "policy: no memory");
}

/* printf into a new string of any length; NULL without memory. */
static char *format_long(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *format_long(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = fl_alloc((size_t)length + 1);
    va_start(arguments, format);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

/* Appends the line and a semicolon to the text. */
static tensor_status keep_text(struct fl_policy *policy, const char *line) {
    if ((policy->text ? strlen(policy->text) : 0) + strlen(line) > TEXT_LIMIT)
        return fl_fail(TENSOR_E_ARGUMENT, "policy: longer than %d bytes", TEXT_LIMIT);
    char *longer = policy->text ? format_long("%s %s;", policy->text, line) : format_long("%s;", line);
    fl_free(policy->text);
    policy->text = longer;
    return longer ? TENSOR_OK : no_memory();
}

/* The next word of a line, cut out of it; NULL at its end. */
static char *next_word(char **rest) {
    while (isspace((unsigned char)**rest))
        ++*rest;
    if (!**rest)
        return NULL;
    char *word = *rest;
    while (**rest && !isspace((unsigned char)**rest))
        ++*rest;
    if (**rest)
        *(*rest)++ = 0;
    return word;
}

static void tell_place(const struct reader *r, char where[80]) {
    if (r->line)
        snprintf(where, 80, "%.50s, line %d", r->source, r->line);
    else
        snprintf(where, 80, "%.70s", r->source);
}

static tensor_status name_variant(struct reader *r, const char *where, const char *word) {
    const nn_variant *variant = nn_variant_find(word);
    if (!variant)
        return unknown(where, "variant", word, variant_name);
    r->policy->variant = variant;
    return TENSOR_OK;
}

/* The same settings as in nn_config, stored as written. */
static tensor_status read_loss_scale(struct reader *r, const char *where, const char *word) {
    char line[LINE_LIMIT + sizeof "loss-scale "], full[FL_SCALE_TEXT];
    if (nn_loss_scale_text(full, sizeof full, word))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s", where, tensor_error());
    char *kept = fl_strdup(word);
    if (!kept)
        return no_memory();
    fl_free(r->policy->loss_scale);
    r->policy->loss_scale = kept;
    snprintf(line, sizeof line, "loss-scale %s", word);
    return keep_text(r->policy, line);
}

/* The GPU whose accumulators products have, as in the class "accumulate=GPU". */
static tensor_status read_accumulate(struct reader *r, const char *where, const char *word) {
    char line[LINE_LIMIT + sizeof "accumulate "];
    snprintf(line, sizeof line, "accumulate=%s", word);
    if (tensor_class_find(&r->policy->class, line))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s", where, tensor_error());
    snprintf(line, sizeof line, "accumulate %s", word);
    return keep_text(r->policy, line);
}

/* variant NAME, preset NAME, loss-scale WHAT, accumulate GPU: the first two before all else. */
static tensor_status read_setting(struct reader *r, const char *where, const char *what, char *rest) {
    struct fl_policy *policy = r->policy;
    const char *word = next_word(&rest);
    if (!word || next_word(&rest))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: '%s', expected one word after it", where, what);
    if (!strcmp(what, "loss-scale"))
        return read_loss_scale(r, where, word);
    if (!strcmp(what, "accumulate"))
        return read_accumulate(r, where, word);
    if (policy->variant || policy->count || policy->loss_scale)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: '%s %.40s', expected once and before loss-scale and all rules", where,
                       what, word);
    if (!strcmp(what, "variant"))
        return name_variant(r, where, word);
    if (r->inner || !fl_preset_text(word))
        return unknown(where, "preset", word, nn_policy_at);
    char source[80];
    snprintf(source, sizeof source, "preset %.60s", word);
    return read_text(policy, fl_preset_text(word), source, true);
}

/* [if-any] PATTERN ROLE=VALUE ... */
static tensor_status read_rule(struct reader *r, const char *where, char *rest) {
    struct fl_policy *policy = r->policy;
    TRY(fl_grow((void **)&policy->rules, policy->count, &policy->capacity, sizeof *policy->rules));
    struct fl_rule *rule = &policy->rules[policy->count];
    *rule = (struct fl_rule){.if_any = false};
    snprintf(rule->where, sizeof rule->where, "%s", where);
    char *word = next_word(&rest);
    if (!strcmp(word, "if-any")) {
        rule->if_any = true;
        word = next_word(&rest);
    }
    if (!word)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: a pattern and ROLE=VALUE, expected after if-any", where);
    if (strlen(word) > WORD_LIMIT || strchr(word, '='))
        return fl_fail(
            TENSOR_E_ARGUMENT,
            "%s: '%.40s', expected a pattern of layers (or variant, preset, loss-scale, accumulate), then ROLE=VALUE",
            where, word);
    rule->pattern = fl_strdup(word);
    if (!rule->pattern)
        return no_memory();
    policy->count++; /* from here on freed with the policy */
    int choices = 0;
    for (; (word = next_word(&rest)); choices++)
        TRY(read_choice(rule, word));
    return choices ? TENSOR_OK
                   : fl_fail(TENSOR_E_ARGUMENT, "%s: '%.40s' has no role, expected ROLE=VALUE after it", where,
                             rule->pattern);
}

/* The text is stored in checkpoints, which are UTF-8. */
static tensor_status check_characters(const char *where, const char *line) {
    const size_t length = strlen(line);
    for (size_t at = 0, bytes; at < length; at += bytes)
        if (!(bytes = fl_utf8_length((const unsigned char *)line + at, length - at)))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: byte %zu is 0x%02x, expected text in UTF-8", where, at + 1,
                           (unsigned char)line[at]);
    return TENSOR_OK;
}

static tensor_status read_line(struct reader *r, const char *begin, size_t length) {
    char line[LINE_LIMIT], kept[LINE_LIMIT + 2], where[80];
    const char *comment = memchr(begin, '#', length);
    length = comment ? (size_t)(comment - begin) : length;
    tell_place(r, where);
    if (length >= sizeof line)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: a line of %zu bytes, expected fewer than %zu", where, length,
                       sizeof line);
    memcpy(line, begin, length);
    line[length] = 0;
    TRY(check_characters(where, line));
    size_t used = 0;
    char *rest = line;
    for (char *word; (word = next_word(&rest));) /* words with one space between them */
        used += (size_t)snprintf(kept + used, sizeof kept - used, "%s%s", used ? " " : "", word);
    if (!used)
        return TENSOR_OK;
    memcpy(line, kept, used + 1);
    rest = line;
    char *word = next_word(&rest);
    if (!strcmp(word, "variant") || !strcmp(word, "preset") || !strcmp(word, "loss-scale") ||
        !strcmp(word, "accumulate"))
        return read_setting(r, where, word, rest);
    memcpy(line, kept, used + 1);
    TRY(read_rule(r, where, line));
    return keep_text(r->policy, kept);
}

static tensor_status read_text(struct fl_policy *policy, const char *text, const char *source, bool inner) {
    struct reader r = {policy, source, inner ? 0 : 1, inner};
    while (*text) {
        const size_t length = strcspn(text, ";\n");
        /* a comment extends to the end of its line, across semicolons */
        const char *comment = memchr(text, '#', length);
        const size_t whole = comment ? strcspn(text, "\n") : length;
        TRY(read_line(&r, text, whole));
        r.line += !inner && text[whole] == '\n';
        text += whole + (text[whole] != 0);
    }
    return TENSOR_OK;
}

/* --- where the text comes from ------------------------------------------------------------------------------------ */

static tensor_status read_file(const char *path, char **text) {
    const char *kind;
    const int opened = fl_file_open(path, NULL, &kind);
    if (kind)
        return fl_fail(TENSOR_E_IO, "policy %.200s: is %s, expected a regular file", path, kind);
    FILE *file = opened < 0 ? NULL : fdopen(opened, "rb");
    if (!file && opened >= 0)
        close(opened);
    if (!file)
        return errno == ENOENT
                   ? fl_fail(TENSOR_E_ARGUMENT, "policy '%.100s': no file of that name, and no preset, which are %s%s",
                             path, fl_list_names(nn_policy_at).text,
                             strpbrk(path, " =") ? "; a text of rules has a ';' after each, as in 'conv1 format=bf16;'"
                                                 : "")
                   : fl_fail(TENSOR_E_IO, "policy %.200s: %s", path, strerror(errno));
    *text = fl_alloc(TEXT_LIMIT + 1);
    const size_t length = *text ? fread(*text, 1, TEXT_LIMIT + 1, file) : 0;
    const int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (!*text)
        return no_memory();
    if (failed)
        return fl_fail(TENSOR_E_IO, "policy %.200s: %s", path, strerror(failed));
    if (length > TEXT_LIMIT)
        return fl_fail(TENSOR_E_DATA, "policy %.200s: longer than %d bytes", path, TEXT_LIMIT);
    if (memchr(*text, 0, length))
        return fl_fail(TENSOR_E_DATA, "policy %.200s: byte %zu is 0, expected text", path,
                       (size_t)((char *)memchr(*text, 0, length) - *text));
    (*text)[length] = 0;
    return TENSOR_OK;
}

static bool is_rules(const char *policy) {
    return strpbrk(policy, ";\n") != NULL;
}

bool fl_policy_is_text(const char *policy) {
    return is_rules(policy) || fl_preset_text(policy);
}

static tensor_status read_asked(struct fl_policy *policy, const char *asked) {
    char source[80];
    if (fl_preset_text(asked)) {
        snprintf(source, sizeof source, "preset %s", asked);
        policy->name = fl_strdup(asked);
        return policy->name ? read_text(policy, fl_preset_text(asked), source, true) : no_memory();
    }
    const bool is_text = is_rules(asked);
    policy->name = fl_strdup(is_text ? "policy" : asked);
    if (!policy->name)
        return no_memory();
    if (is_text)
        return read_text(policy, asked, "policy", false);
    char *text = NULL;
    tensor_status status = read_file(asked, &text);
    const char *slash = strrchr(asked, '/');
    snprintf(source, sizeof source, "policy %.60s", slash && slash[1] ? slash + 1 : asked);
    if (!status)
        status = read_text(policy, text, source, false);
    fl_free(text);
    return status;
}

/* PATTERN=VARIANT, one after the other with commas between. */
static tensor_status read_layer_formats(struct fl_policy *policy, const char *given) {
    struct reader r = {policy, "layer formats", 0, false};
    for (const char *at = given;; at++) {
        char line[LINE_LIMIT];
        const size_t length = strcspn(at, ",");
        const char *equals = memchr(at, '=', length);
        if (!equals || equals == at || length > WORD_LIMIT || strcspn(at, " \t\n;#") < length)
            return fl_fail(TENSOR_E_ARGUMENT, "layer formats '%.100s': expected PATTERN=FORMAT, comma-separated",
                           given);
        snprintf(line, sizeof line, "%.*s format%.*s", (int)(equals - at), at, (int)(length - (size_t)(equals - at)),
                 equals);
        TRY(read_line(&r, line, strlen(line)));
        at += length;
        if (!*at)
            return TENSOR_OK;
    }
}

/* Rules begin with the variant of the network, unless they name one; without either it is fp32. It is the first word of
 * the text. */
static tensor_status settle_variant(struct fl_policy *policy, const char *variant) {
    if (!policy->variant && !(policy->variant = nn_variant_find(variant ? variant : "fp32")))
        return TENSOR_E_ARGUMENT;
    if (variant && strcmp(variant, policy->variant->name) != 0) {
        char other[80];
        snprintf(other, sizeof other, "%.*s:%.40s", (int)strcspn(policy->name, ":"), policy->name, variant);
        const bool known = fl_preset_text(other);
        return fl_fail(TENSOR_E_ARGUMENT,
                       "policy '%.60s' begins from variant %s, the network is given variant %.40s%s%s%s", policy->name,
                       policy->variant->name, variant, known ? "; the policy of that name in it is '" : "",
                       known ? other : "", known ? "'" : "");
    }
    char *rules = policy->text;
    policy->text = format_long("variant %s;%s%s", policy->variant->name, rules ? " " : "", rules ? rules : "");
    fl_free(rules);
    return policy->text ? TENSOR_OK : no_memory();
}

tensor_status fl_policy_new(struct fl_policy **policy, const char *asked, const char *layer_formats,
                            const char *variant) {
    *policy = fl_alloc_zero(sizeof **policy);
    if (!*policy)
        return no_memory();
    tensor_status status = asked ? read_asked(*policy, asked) : TENSOR_OK;
    if (!status && asked && !(*policy)->variant && !(*policy)->text)
        status =
            fl_fail(TENSOR_E_ARGUMENT, "policy '%.100s' has no rules, expected at least one rule", (*policy)->name);
    if (!status && !asked && !((*policy)->name = fl_strdup("layer formats")))
        status = no_memory();
    if (!status && layer_formats)
        status = read_layer_formats(*policy, layer_formats);
    if (!status && (*policy)->class != TENSOR_EXACT && fl_policy_has_blocks(*policy))
        status = fl_fail(TENSOR_E_ARGUMENT,
                         "policy '%.60s': %s and operands in blocks, whose sums are exact; expected one of them",
                         (*policy)->name, tensor_class_name((*policy)->class));
    if (!status)
        status = settle_variant(*policy, variant);
    if (status) {
        fl_policy_free(*policy);
        *policy = NULL;
    }
    return status;
}

void fl_policy_free(struct fl_policy *policy) {
    if (!policy)
        return;
    for (int i = 0; i < policy->count; i++)
        fl_free(policy->rules[i].pattern);
    fl_free(policy->rules);
    fl_free(policy->name);
    fl_free(policy->text);
    fl_free(policy->loss_scale);
    fl_free(policy);
}

tensor_status fl_policy_without_masters(struct fl_policy *policy) {
    for (int i = 0; i < policy->count; i++) {
        struct fl_rule *rule = &policy->rules[i];
        struct fl_choice *master = &rule->choice[FL_ROLE_MASTER];
        if (rule->explicit_roles >> FL_ROLE_MASTER & 1 && master->word != FL_MASTER_NONE)
            return fl_fail(TENSOR_E_ARGUMENT,
                           "%s: '%.40s master=%s', but the network is to have no master weights, expected master=none",
                           rule->where, rule->pattern, fl_master_name(master->word));
        master->word = FL_MASTER_NONE; /* of format=, which takes what a variant has */
    }
    return TENSOR_OK;
}

bool fl_policy_has_blocks(const struct fl_policy *policy) {
    for (int i = 0; i < policy->count; i++)
        if (policy->rules[i].choice[FL_ROLE_OPERANDS].blocks[0])
            return true;
    return false;
}

bool fl_policy_shares(const struct fl_policy *policy) {
    bool shares = tensor_format_is_shared(policy->variant->format);
    for (int i = 0; i < policy->count; i++)
        for (int k = 0; k < FL_ROLE_MASTER; k++) {
            const struct fl_choice *choice = &policy->rules[i].choice[k];
            shares = shares || (choice->given && choice->type.format && tensor_format_is_shared(choice->type.format));
        }
    return shares;
}
