/* data_utf8.c - UTF-8 in parts: each begins at a byte that does not continue a character, so that a valid text is cut
 * between characters, and the first wrong byte of all parts is the first of the text. */
#include "data/data_utf8.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "data/data_internal.h"
#include <string.h>

enum { PART_BYTES = 1 << 20, MOST_PARTS = 256, WORDS = FL_UNICODE / 64 };

/* Reads the character at `at` and returns the position after it; NULL if none is valid. Lead bytes give the number of
 * further bytes and, for some, the range of the first of them: no overlong form, no surrogate, nothing above U+10FFFF.
 */
static const uint8_t *take_character(const uint8_t *at, const uint8_t *end, uint32_t *character) {
    const uint8_t lead = *at++;
    *character = lead;
    if (lead < 0x80)
        return at;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end - at < more)
        return NULL;
    const uint8_t low = lead == 0xE0   ? 0xA0
                        : lead == 0xF0 ? 0x90
                                       : 0x80,
                  high = lead == 0xED   ? 0x9F
                         : lead == 0xF4 ? 0x8F
                                        : 0xBF;
    if (*at < low || *at > high)
        return NULL;
    *character = lead & (0x3F >> more);
    for (int i = 0; i < more; i++, at++) {
        if (*at >> 6 != 2)
            return NULL;
        *character = *character << 6 | (*at & 0x3F);
    }
    return at;
}

struct part {
    const uint8_t *begin, *end;
    int64_t count;        /* characters */
    const uint8_t *wrong; /* the first byte that begins no valid character; NULL: none */
};

struct job {
    struct part part[MOST_PARTS];
    int parts;
    uint64_t *seen; /* WORDS for each part: a bit for each code point */
    const uint16_t *number;
    const uint8_t *known; /* for each code point below `limit`, whether it has a number */
    uint32_t limit;
    uint16_t *out; /* NULL: the numbers take the place of the text */
    uint8_t *text;
};

/* Returns `at`, or the position after the bytes there that continue a character; 0 remains 0. */
static const uint8_t *cut(const uint8_t *text, int64_t bytes, int64_t at) {
    for (int i = 0; i < 3 && at > 0 && at < bytes && text[at] >> 6 == 2; i++)
        at++;
    return text + at;
}

static void cut_parts(struct job *job, const uint8_t *text, int64_t bytes) {
    const int64_t wanted = (bytes + PART_BYTES - 1) / PART_BYTES;
    job->parts = wanted > MOST_PARTS ? MOST_PARTS : (int)wanted;
    for (int p = 0; p < job->parts; p++)
        job->part[p] = (struct part){.begin = cut(text, bytes, (int64_t)((__int128)bytes * p / job->parts)),
                                     .end = cut(text, bytes, (int64_t)((__int128)bytes * (p + 1) / job->parts))};
}

static void look_part(void *context, int number, int worker) {
    (void)worker;
    struct job *job = context;
    struct part *part = &job->part[number];
    uint64_t *seen = job->seen + (int64_t)number * WORDS;
    memset(seen, 0, WORDS * sizeof *seen);
    int64_t count = 0;
    for (const uint8_t *at = part->begin; at < part->end; count++) {
        uint32_t character;
        const uint8_t *next = take_character(at, part->end, &character);
        if (!next) {
            part->wrong = at;
            break;
        }
        seen[character / 64] |= UINT64_C(1) << character % 64;
        at = next;
    }
    part->count = count;
}

static tensor_status first_wrong(const struct job *job, const char *what, const char *path, const uint8_t *text) {
    for (int p = 0; p < job->parts; p++)
        if (job->part[p].wrong)
            return fl_fail(TENSOR_E_DATA, "%s: %s: byte %lld, 0x%02X, does not begin a UTF-8 character", what, path,
                           (long long)(job->part[p].wrong - text), *job->part[p].wrong);
    return TENSOR_OK;
}

/* Joins the characters of all parts in the words of the first; returns their number. */
static int64_t join_seen(struct job *job) {
    int64_t distinct = 0;
    for (int w = 0; w < WORDS; w++) {
        for (int p = 1; p < job->parts; p++)
            job->seen[w] |= job->seen[(int64_t)p * WORDS + w];
        distinct += __builtin_popcountll(job->seen[w]);
    }
    return distinct;
}

static tensor_status take_seen(struct fl_data_characters *c, struct job *job, const char *what, const char *path) {
    const int64_t distinct = join_seen(job);
    if (distinct > FL_DATA_MAX_CLASSES)
        return fl_fail(TENSOR_E_DATA, "%s: %s has %lld different characters, expected at most %d", what, path,
                       (long long)distinct, FL_DATA_MAX_CLASSES);
    *c = (struct fl_data_characters){.distinct = (int)distinct,
                                     .character = fl_alloc((size_t)distinct * sizeof *c->character)};
    if (!c->character)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld characters (%s)", what, (long long)distinct, path);
    for (int p = 0; p < job->parts; p++)
        c->count += job->part[p].count;
    int n = 0;
    for (uint32_t w = 0; w < WORDS; w++)
        for (uint64_t bits = job->seen[w]; bits; bits &= bits - 1)
            c->character[n++] = 64 * w + (uint32_t)__builtin_ctzll(bits);
    return TENSOR_OK;
}

tensor_status fl_data_characters(struct fl_data_characters *c, const char *what, const char *path, const uint8_t *text,
                                 int64_t bytes) {
    struct job job;
    *c = (struct fl_data_characters){0};
    cut_parts(&job, text, bytes);
    job.seen = fl_alloc((size_t)job.parts * WORDS * sizeof *job.seen);
    if (!job.seen)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory to look through %s", what, path);
    fl_parallel(job.parts, look_part, &job);
    tensor_status status = first_wrong(&job, what, path, text);
    if (!status)
        status = take_seen(c, &job, what, path);
    fl_free(job.seen);
    return status;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static void count_part(void *context, int number, int worker) {
    (void)worker;
    struct part *part = &((struct job *)context)->part[number];
    int64_t count = 0;
    for (const uint8_t *at = part->begin; at < part->end; at++)
        count += *at >> 6 != 2;
    part->count = count;
}

/* Reads the character at `at`, which has a number, and returns the position after it; NULL if it has none. */
static const uint8_t *take_number(const struct job *job, const uint8_t *at, const uint8_t *end, uint16_t *number) {
    uint32_t character;
    const uint8_t *next = take_character(at, end, &character);
    if (!next || character >= job->limit || !job->known[character])
        return NULL;
    *number = job->number[character];
    return next;
}

static void number_part(void *context, int number, int worker) {
    (void)worker;
    struct job *job = context;
    struct part *part = &job->part[number];
    uint16_t *out = job->out;
    for (int p = 0; p < number; p++)
        out += job->part[p].count;
    for (const uint8_t *at = part->begin, *next; at < part->end; at = next, out++) {
        next = take_number(job, at, part->end, out);
        if (!next) {
            part->wrong = at;
            return;
        }
    }
}

/* Puts the numbers of a part at its own beginning: a character has at least a byte, so none is written before the bytes
 * there have been read. */
static void number_part_in_place(void *context, int number, int worker) {
    (void)worker;
    struct job *job = context;
    struct part *part = &job->part[number];
    uint8_t *out = job->text + (part->begin - job->text);
    for (const uint8_t *at = part->begin, *next; at < part->end; at = next) {
        uint16_t found;
        next = take_number(job, at, part->end, &found);
        if (!next) {
            part->wrong = at;
            return;
        }
        *out++ = (uint8_t)found;
    }
    part->count = out - part->begin;
}

static void join_parts(const struct job *job) {
    uint8_t *out = job->text;
    for (int p = 0; p < job->parts; p++) {
        if (out != job->part[p].begin)
            memmove(out, job->part[p].begin, (size_t)job->part[p].count);
        out += job->part[p].count;
    }
}

static tensor_status first_unknown(const struct job *job, const char *what, const char *path, const uint8_t *text) {
    for (int p = 0; p < job->parts; p++)
        if (job->part[p].wrong) {
            uint32_t character = 0;
            (void)take_character(job->part[p].wrong, job->part[p].end, &character);
            return fl_fail(TENSOR_E_DATA, "%s: %s: byte %lld: the character U+%04X is not in the vocabulary", what,
                           path, (long long)(job->part[p].wrong - text), character);
        }
    return TENSOR_OK;
}

/* Numbers the characters of the job's parts: into `out`, or in place if that is NULL. */
static tensor_status number_characters(struct job *job, const uint32_t *character, int distinct, const char *what,
                                       const char *path, const uint8_t *text) {
    job->limit = character[distinct - 1] + 1;
    uint16_t *number = fl_alloc_zero(job->limit * sizeof *number);
    uint8_t *known = fl_alloc_zero(job->limit);
    tensor_status status =
        number && known ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "%s: no memory for the characters of %s", what, path);
    if (!status) {
        for (int i = 0; i < distinct; i++) {
            number[character[i]] = (uint16_t)i;
            known[character[i]] = 1;
        }
        job->number = number;
        job->known = known;
        if (job->out)
            fl_parallel(job->parts, count_part, job);
        fl_parallel(job->parts, job->out ? number_part : number_part_in_place, job);
        status = first_unknown(job, what, path, text);
    }
    fl_free(number);
    fl_free(known);
    return status;
}

tensor_status fl_data_character_numbers(uint16_t *numbers, const uint32_t *character, int distinct, const char *what,
                                        const char *path, const uint8_t *text, int64_t bytes) {
    struct job job = {.out = numbers};
    cut_parts(&job, text, bytes);
    return number_characters(&job, character, distinct, what, path, text);
}

tensor_status fl_data_character_bytes(uint8_t *text, const uint32_t *character, int distinct, const char *what,
                                      const char *path, int64_t bytes) {
    struct job job = {.text = text};
    cut_parts(&job, text, bytes);
    const tensor_status status = number_characters(&job, character, distinct, what, path, text);
    if (!status)
        join_parts(&job);
    return status;
}
