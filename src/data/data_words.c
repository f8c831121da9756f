/* data_words.c - the part of a specification after the colon: paths and options, separated by commas. A path with a
 * comma cannot be specified, but a link to it can. A word of the form name=value, the name in lower case, is an option.
 */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_words.h"
#include <stdbool.h>
#include <string.h>

/* The length of the name if the word is an option, otherwise 0. */
static size_t option_name(const char *word) {
    const size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz");
    return word[length] == '=' ? length : 0;
}

static tensor_status take_option(struct fl_data_words *words, const struct fl_data_syntax *syntax, const char *word,
                                 size_t name) {
    int o = 0;
    while (syntax->option[o] && (strlen(syntax->option[o]) != name || memcmp(syntax->option[o], word, name) != 0))
        o++;
    if (!syntax->option[o])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: option '%s', expected %s", syntax->kind, word, syntax->expected);
    if (words->value[o])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: option %s is given twice", syntax->kind, syntax->option[o]);
    words->value[o] = word + name + 1;
    return TENSOR_OK;
}

static tensor_status take_word(struct fl_data_words *words, const struct fl_data_syntax *syntax, const char *word) {
    const size_t name = option_name(word);
    if (name)
        return take_option(words, syntax, word, name);
    if (!*word)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: a path is empty, expected %s", syntax->kind, syntax->expected);
    if (words->paths == syntax->most_paths)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: one path too many, '%s': expected %s (a path holds no comma)",
                       syntax->kind, word, syntax->expected);
    words->path[words->paths++] = word;
    return TENSOR_OK;
}

tensor_status fl_data_words(struct fl_data_words *words, const struct fl_data_syntax *syntax, const char *rest) {
    *words = (struct fl_data_words){0};
    if (!rest || !*rest)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: no name is given, expected %s", syntax->kind, syntax->expected);
    if (!(words->text = fl_strdup(rest)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the specification", syntax->kind);
    tensor_status status = TENSOR_OK;
    char *word = words->text;
    while (!status && word) {
        char *comma = strchr(word, ',');
        if (comma)
            *comma = 0;
        status = take_word(words, syntax, word);
        word = comma ? comma + 1 : NULL;
    }
    if (!status && !words->paths)
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: no path is given, expected %s", syntax->kind, syntax->expected);
    if (status)
        fl_data_words_free(words);
    return status;
}

void fl_data_words_free(struct fl_data_words *words) {
    fl_free(words->text);
    *words = (struct fl_data_words){0};
}

bool fl_data_whole(const char **text, int64_t low, int64_t high, int64_t *value) {
    const size_t digits = strspn(*text, "0123456789");
    *value = 0;
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, (*text)[i] - '0', value))
            return false;
    *text += digits;
    return digits > 0 && *value >= low && *value <= high;
}
