/* data_text.c - sets of text: a sequence of tokens, which are bytes, characters, or numbers of the caller. A file is
 * read into the memory in which its tokens stay if they are bytes, and both splits of a file are parts of one array. */
#include "core/base/fail.h"
#include "core/base/hash.h"
#include "core/base/memory.h"
#include "data/data_internal.h"
#include "data/data_stream.h"
#include "data/data_utf8.h"
#include "data/data_words.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 256, DEFAULT_PERCENT = 10, MOST_PERCENT = 99 };

/* --- making ------------------------------------------------------------------------------------------------------- */

void fl_data_tokens_leave(struct fl_data_tokens *t) {
    if (!t || atomic_fetch_sub(&t->sets, 1) > 1)
        return;
    fl_free(t->narrow);
    fl_free(t->wide);
    fl_free(t);
}

static tensor_status no_memory(const char *what, const char *path, int64_t count) {
    return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld tokens (%s)", what, (long long)count, path);
}

/* A set that has no array of tokens yet. */
static tensor_status new_set(data_set **set, const char *what, const char *path, int64_t count, int classes) {
    data_set *s = fl_alloc_zero(sizeof *s);
    if (s) {
        *s = (data_set){.count = count, .classes = classes, .text = true, .tokens = fl_alloc_zero(sizeof *s->tokens)};
        if (s->tokens)
            atomic_init(&s->tokens->sets, 1);
    }
    if (!s || !s->tokens) {
        data_free(s);
        return no_memory(what, path, count);
    }
    *set = s;
    return TENSOR_OK;
}

static tensor_status set_vocabulary(data_set *s, const char *what, const uint32_t *character, int distinct) {
    s->character = fl_alloc((size_t)distinct * sizeof *s->character);
    if (!s->character)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %d characters", what, distinct);
    memcpy(s->character, character, (size_t)distinct * sizeof *character);
    s->distinct = distinct;
    return TENSOR_OK;
}

static uint16_t *alloc_wide(int64_t count) {
    return count <= INT64_MAX / (int64_t)sizeof(uint16_t) ? fl_alloc((size_t)count * sizeof(uint16_t)) : NULL;
}

/* A text: of the caller, or in memory of its own, which a set may take over. */
struct text {
    const char *what, *path; /* for messages */
    const uint8_t *bytes;
    int64_t count;
    uint8_t *own; /* NULL: the bytes are the caller's */
};

/* Gives the bytes to a set, as a copy if they are the caller's. */
static tensor_status take_bytes(data_set *s, struct text *text) {
    uint8_t *bytes = text->own ? text->own : fl_alloc((size_t)text->count);
    if (!bytes)
        return no_memory(text->what, text->path, text->count);
    if (!text->own)
        memcpy(bytes, text->bytes, (size_t)text->count);
    text->own = NULL;
    s->tokens->narrow = bytes;
    return TENSOR_OK;
}

static tensor_status number_characters(data_set *s, struct text *text) {
    if (s->distinct <= FL_DATA_NARROW) {
        const tensor_status status = take_bytes(s, text);
        return status ? status
                      : fl_data_character_bytes(s->tokens->narrow, s->character, s->distinct, text->what, text->path,
                                                text->count);
    }
    s->tokens->wide = alloc_wide(s->count);
    return s->tokens->wide ? fl_data_character_numbers(s->tokens->wide, s->character, s->distinct, text->what,
                                                       text->path, text->bytes, text->count)
                           : no_memory(text->what, text->path, s->count);
}

/* Makes a set with the characters of the text itself, or those of `vocabulary`. */
static tensor_status from_characters(data_set **set, struct text *text, const data_set *vocabulary) {
    struct fl_data_characters own;
    tensor_status status = fl_data_characters(&own, text->what, text->path, text->bytes, text->count);
    if (status)
        return status;
    const uint32_t *character = vocabulary ? vocabulary->character : own.character;
    const int distinct = vocabulary ? vocabulary->distinct : own.distinct;
    data_set *s = NULL;
    status = new_set(&s, text->what, text->path, own.count, distinct < 2 ? 2 : distinct);
    if (!status)
        status = set_vocabulary(s, text->what, character, distinct);
    fl_free(own.character);
    if (!status)
        status = number_characters(s, text);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}

static tensor_status from_bytes(data_set **set, struct text *text) {
    data_set *s = NULL;
    tensor_status status = new_set(&s, text->what, text->path, text->count, BYTES);
    if (!status)
        status = take_bytes(s, text);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}

static tensor_status from_text(data_set **set, struct text *text, data_unit unit, const data_set *vocabulary) {
    if (text->count < 1)
        return fl_fail(TENSOR_E_DATA, "%s: %s is empty, expected at least one byte", text->what, text->path);
    return unit == DATA_BYTES ? from_bytes(set, text) : from_characters(set, text, vocabulary);
}

data_set *data_new_text(const char *text, int64_t bytes, data_unit unit, const data_set *vocabulary) {
    data_set *set = NULL;
    struct text whole = {"data_new_text", "the text", (const uint8_t *)text, bytes, NULL};
    if (!text || bytes < 0)
        fl_fail(TENSOR_E_ARGUMENT, "data_new_text: %s", text ? "a negative number of bytes" : "the text is NULL");
    else if (unit != DATA_BYTES && unit != DATA_CHARACTERS)
        fl_fail(TENSOR_E_ARGUMENT, "data_new_text: unit %d, expected DATA_BYTES (0) or DATA_CHARACTERS (1)", (int)unit);
    else if (vocabulary && (unit != DATA_CHARACTERS || !vocabulary->character))
        fl_fail(TENSOR_E_ARGUMENT,
                "data_new_text: a vocabulary is given, expected DATA_CHARACTERS and a set of characters");
    else
        (void)from_text(&set, &whole, unit, vocabulary);
    return set;
}

data_set *data_new_tokens(const int32_t *tokens, int64_t count, int vocabulary) {
    data_set *set = NULL;
    if (!tokens || count < 1) {
        fl_fail(TENSOR_E_ARGUMENT, "data_new_tokens: %s", tokens ? "no tokens, expected at least 1" : "tokens is NULL");
        return NULL;
    }
    if (vocabulary < 2 || vocabulary > FL_DATA_MAX_CLASSES) {
        fl_fail(TENSOR_E_ARGUMENT, "data_new_tokens: a vocabulary of %d, expected 2 to %d", vocabulary,
                FL_DATA_MAX_CLASSES);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary) {
            fl_fail(TENSOR_E_DATA, "data_new_tokens: token %lld is %d, expected 0 to %d", (long long)i, tokens[i],
                    vocabulary - 1);
            return NULL;
        }
    if (new_set(&set, "data_new_tokens", "the array", count, vocabulary))
        return NULL;
    set->tokens_alone = true;
    struct fl_data_tokens *t = set->tokens;
    if (vocabulary <= FL_DATA_NARROW)
        t->narrow = fl_alloc((size_t)count);
    else
        t->wide = alloc_wide(count);
    if (!t->narrow && !t->wide) {
        data_free(set);
        (void)no_memory("data_new_tokens", "the array", count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        if (t->narrow)
            t->narrow[i] = (uint8_t)tokens[i];
        else
            t->wide[i] = (uint16_t)tokens[i];
    return set;
}

/* --- queries -------------------------------------------------------------------------------------------------------
 */

bool data_is_text(const data_set *set) {
    return set && set->text;
}

int32_t data_character(const data_set *set, int token) {
    if (!data_is_text(set) || token < 0 || set->tokens_alone)
        return -1;
    if (!set->character)
        return token < BYTES ? token : -1;
    return token < set->distinct ? (int32_t)set->character[token] : -1;
}

/* A hash of lines of decimal numbers. */
uint64_t data_vocabulary(const data_set *set) {
    uint64_t hash = FL_HASH;
    char line[16];
    for (int token = 0; token < data_classes(set); token++) {
        snprintf(line, sizeof line, "%d\n", (int)data_character(set, token));
        hash = fl_hash(hash, line, strlen(line));
    }
    return hash;
}

int data_token(const data_set *set, int32_t character) {
    if (!data_is_text(set) || character < 0 || set->tokens_alone)
        return -1;
    if (!set->character)
        return character < BYTES ? character : -1;
    int low = 0, high = set->distinct; /* if it exists, its index is from low to high - 1 */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (set->character[middle] < (uint32_t)character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->distinct && set->character[low] == (uint32_t)character ? low : -1;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

struct options {
    data_unit unit;
    int64_t percent; /* percent of a single file that is the test split */
};

static tensor_status read_options(const struct fl_data_words *words, struct options *o) {
    const char *unit = words->value[0] ? words->value[0] : "bytes", *percent = words->value[1];
    *o = (struct options){DATA_BYTES, DEFAULT_PERCENT};
    if (!strcmp(unit, "characters"))
        o->unit = DATA_CHARACTERS;
    else if (strcmp(unit, "bytes") != 0)
        return fl_fail(TENSOR_E_ARGUMENT, "text: option 'unit=%s', expected unit=bytes or unit=characters", unit);
    if (percent && words->paths == 2)
        return fl_fail(TENSOR_E_ARGUMENT, "text: option 'test=%s' beside a file of the test split", percent);
    if (percent && (!fl_data_whole(&percent, 0, MOST_PERCENT, &o->percent) || *percent))
        return fl_fail(TENSOR_E_ARGUMENT, "text: option 'test=%s', expected a whole number of percent from 0 to %d",
                       words->value[1], MOST_PERCENT);
    return TENSOR_OK;
}

static tensor_status read_file(data_set **set, const char *path, data_unit unit, const data_set *vocabulary) {
    int file;
    int64_t bytes;
    tensor_status status = fl_data_file_open(&file, &bytes, "text", path, NULL);
    if (status)
        return status;
    uint8_t *own = bytes ? fl_alloc((size_t)bytes) : NULL;
    if (bytes && !own)
        status = fl_fail(TENSOR_E_MEMORY, "text: no memory for the %lld bytes of %s", (long long)bytes, path);
    if (!status)
        status = fl_data_read_at(file, "text", path, 0, own, bytes);
    close(file);
    struct text text = {"text", path, own, bytes, own};
    if (!status)
        status = from_text(set, &text, unit, vocabulary);
    fl_free(text.own);
    return status;
}

/* Makes a set of some tokens of another, which both have in one array. */
static tensor_status share_tokens(data_set **part, const data_set *whole, int64_t begin, int64_t count) {
    data_set *s = fl_alloc_zero(sizeof *s);
    if (!s)
        return fl_fail(TENSOR_E_MEMORY, "text: no memory for a split");
    *s = (data_set){.count = count, .classes = whole->classes, .text = true, .first = whole->first + begin};
    if (whole->character && set_vocabulary(s, "text", whole->character, whole->distinct)) {
        data_free(s);
        return TENSOR_E_MEMORY;
    }
    s->tokens = whole->tokens;
    atomic_fetch_add(&s->tokens->sets, 1);
    *part = s;
    return TENSOR_OK;
}

/* Splits a single file, whose last `percent` percent are the test split. `whole` is freed or becomes the training
 * split. */
static tensor_status share(data_set *sets[2], data_set *whole, const bool wanted[2], int64_t percent,
                           const char *path) {
    const int64_t test = (int64_t)((__int128)whole->count * percent / 100), train = whole->count - test;
    tensor_status status = TENSOR_OK;
    if (wanted[DATA_TEST] && !test)
        status = fl_fail(percent ? TENSOR_E_DATA : TENSOR_E_ARGUMENT,
                         "text: %s: test=%lld leaves no token of %lld for the test split", path, (long long)percent,
                         (long long)whole->count);
    else if (wanted[DATA_TEST])
        status = share_tokens(&sets[DATA_TEST], whole, train, test);
    if (!status && wanted[DATA_TRAIN]) {
        whole->count = train;
        sets[DATA_TRAIN] = whole;
    } else {
        data_free(whole);
    }
    return status;
}

static tensor_status open_text(data_set *sets[2], const bool wanted[2], const struct fl_data_words *words) {
    struct options o;
    tensor_status status = read_options(words, &o);
    if (status)
        return status;
    data_set *first = NULL;
    const bool vocabulary = words->paths == 2 && wanted[DATA_TEST] && o.unit == DATA_CHARACTERS;
    if (words->paths == 1 || wanted[DATA_TRAIN] || vocabulary)
        status = read_file(&first, words->path[0], o.unit, NULL);
    if (status)
        return status;
    if (words->paths == 1)
        return share(sets, first, wanted, o.percent, words->path[0]);
    if (wanted[DATA_TEST])
        status = read_file(&sets[DATA_TEST], words->path[1], o.unit, vocabulary ? first : NULL);
    if (!status && wanted[DATA_TRAIN])
        sets[DATA_TRAIN] = first;
    else
        data_free(first);
    return status;
}

tensor_status fl_data_open_text(data_set *sets[2], const bool wanted[2], const char *rest) {
    static const struct fl_data_syntax syntax = {
        "text", "text:FILE[,TEST_FILE][,unit=bytes|characters][,test=PERCENT]", 2, {"unit", "test"}};
    struct fl_data_words words;
    tensor_status status = fl_data_words(&words, &syntax, rest);
    if (status)
        return status;
    status = open_text(sets, wanted, &words);
    fl_data_words_free(&words);
    return status;
}
