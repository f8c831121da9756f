/* fuzz_text.c - texts and their excerpts: any bytes as a text in a file or in memory, and any configuration of a
 * loader. UTF-8 is decoded, and excerpts are computed, again here.
 *
 * Input: a byte of choices (bit 0: characters; bit 1: from a file; bit 2: the test split; bits 3 to 6: shuffle,
 * augment, drop_last, streams), percent, batch, context, seed, epoch, a byte each; then the text. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"

enum { MOST = 1 << 16 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    return 0;
}

/* Decodes the characters of a text by encoding each again: a sequence is valid if it is the encoding of its character.
 * -1: it is not UTF-8, and *wrong is the first invalid byte. */
static int64_t characters_of(const uint8_t *text, size_t size, uint32_t *character, size_t *wrong) {
    int64_t n = 0;
    for (size_t at = 0; at < size;) {
        size_t length = 0;
        for (size_t try = 1; try <= 4 && at + try <= size && !length; try++) {
            uint32_t c = try == 1 ? text[at] : text[at] & (0x7Fu >> try);
            for (size_t i = 1; i < try; i++)
                c = c << 6 | (text[at + i] & 0x3F);
            uint8_t again[4] = {(uint8_t)c};
            size_t count = 1;
            if (c >= 0x80) {
                count = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
                for (size_t i = count - 1; i > 0; i--)
                    again[i] = (uint8_t)(0x80 | (c >> 6 * (count - 1 - i) & 0x3F));
                again[0] = (uint8_t)(0xF00u >> count | c >> 6 * (count - 1));
            }
            if (c < 0x110000 && (c < 0xD800 || c > 0xDFFF) && count == try && !memcmp(again, text + at, count)) {
                length = try;
                character[n] = c;
            }
        }
        if (!length) {
            *wrong = at;
            return -1;
        }
        n++;
        at += length;
    }
    return n;
}

/* Checks that the set's tokens are those characters, and that its vocabulary is sorted. */
static void check_tokens(const data_set *set, const uint32_t *character, int64_t first) {
    for (int64_t i = 0; i < data_count(set); i++) {
        const int token = data_label(set, i);
        MUST(token >= 0 && token < data_classes(set) && data_character(set, token) == (int32_t)character[first + i],
             "token %lld is %d, character %d, expected %u", (long long)i, token, data_character(set, token),
             character[first + i]);
        MUST(data_token(set, (int32_t)character[first + i]) == token, "character %u has another token",
             character[first + i]);
    }
    for (int i = 1; i < data_classes(set); i++)
        MUST(data_character(set, i) > data_character(set, i - 1) || (i == 1 && data_character(set, 1) == -1),
             "token %d is out of order", i);
}

static void check_windows(const data_set *set, const data_loader_config *config, int epoch) {
    const int64_t n = data_count(set), first = config->augment ? config->context : 1;
    int64_t windows = n < first || config->context < 1 ? 0 : (n - first) / config->context;
    const bool whole = config->drop_last || config->streams;
    const bool acceptable = windows > 0 && config->batch >= 1 && !(config->streams && config->shuffle) &&
                            !(whole && config->batch > windows);
    watch_failures();
    data_loader *loader = data_loader_new(set, config);
    must_tell("data_loader_new", !loader);
    MUST(!loader == !acceptable, "%s", loader ? "a wrong configuration was accepted" : failure_text);
    if (!loader)
        return;
    if (whole)
        windows -= windows % config->batch;
    MUST(!data_loader_start(loader, epoch), "%s", tensor_error());
    int64_t seen = 0, sum = 0, offset = -1;
    for (data_batch b; !data_loader_next(&b, loader) && b.count;) {
        for (int i = 0; i < b.count; i++, seen++) {
            const int64_t at = b.indices[i];
            MUST(at >= 0 && at + config->context < n, "a window from %lld of %lld", (long long)at, (long long)n);
            offset = at % config->context;
            sum += at / config->context;
            for (int t = 0; t < config->context; t++)
                MUST(b.tokens[i * config->context + t] == data_label(set, at + t) &&
                         b.targets[i * config->context + t] == data_label(set, at + t + 1),
                     "token %d of the window from %lld", t, (long long)at);
            MUST(config->shuffle || config->streams || at / config->context == seen, "window %lld", (long long)seen);
        }
        MUST(config->augment || offset == 0, "an offset of %lld", (long long)offset);
    }
    MUST(seen == windows, "%lld windows, expected %lld", (long long)seen, (long long)windows);
    MUST((config->shuffle && whole) || sum == windows * (windows - 1) / 2, "a window came twice");
    data_loader_free(loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const int percent = take_below(&in, 100);
    const data_loader_config config = {.batch = take_below(&in, 12),
                                       .context = take_below(&in, 40),
                                       .seed = take_byte(&in),
                                       .shuffle = choices & 8,
                                       .augment = choices & 16,
                                       .drop_last = choices & 32,
                                       .streams = (choices & 64) != 0};
    const int epoch = take_byte(&in);
    const size_t length = input_left(&in);
    const bool characters = choices & 1, file = choices & 2;
    const data_split split = file && choices & 4 ? DATA_TEST : DATA_TRAIN;
    if (length > MOST)
        return 0;
    static uint32_t character[MOST];
    size_t wrong = 0;
    int64_t count = (int64_t)length;
    if (characters)
        count = characters_of(in.at, length, character, &wrong);
    else
        for (size_t i = 0; i < length; i++)
            character[i] = in.at[i];
    const int64_t test = file && count > 0 ? count * percent / 100 : 0;
    const bool acceptable = count > 0 && (split == DATA_TRAIN || test > 0);

    char specification[SCRATCH_PATH + 64];
    snprintf(specification, sizeof specification, "text:%s,unit=%s,test=%d", scratch_path("text"),
             characters ? "characters" : "bytes", percent);
    if (file)
        scratch_write("text", in.at, length);
    watch_failures();
    data_set *set = file ? data_open(specification, split)
                         : data_new_text((const char *)(length ? in.at : (const uint8_t *)""), (int64_t)length,
                                         characters ? DATA_CHARACTERS : DATA_BYTES, NULL);
    must_tell("opening a text", !set);
    MUST(!set == !acceptable, "%s", set ? "a bad text was accepted" : failure_text);
    if (count < 0) {
        char place[80];
        snprintf(place, sizeof place, "byte %zu, 0x%02X, does not begin a UTF-8 character", wrong, in.at[wrong]);
        MUST(strstr(failure_text, place), "no '%s' in: %s", place, failure_text);
    }
    if (set) {
        MUST(data_count(set) == (split == DATA_TEST ? test : count - test), "%lld tokens", (long long)data_count(set));
        if (characters)
            check_tokens(set, character, split == DATA_TEST ? count - test : 0);
        check_windows(set, &config, epoch);
    }
    data_free(set);
    return 0;
}
