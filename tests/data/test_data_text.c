/* Texts: making them from memory, and the excerpts into which a loader cuts them, computed again from the description
 * in data.h. test_data_texts.py tests reading from files. */
#include "data_files.h"
#include "flexlab/nn.h"

static int vocabulary = 60000; /* of the test's text; at most 256: its tokens are bytes */

/* Token i of the test's text: no two windows of 60000 tokens are alike. */
static int32_t token_at(int64_t i) {
    return (int32_t)((i * 7919 + i / 97 * 31) % vocabulary);
}

static data_set *numbered(int64_t count) {
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = token_at(i);
    data_set *set = data_new_tokens(tokens, count, vocabulary);
    memset(tokens, 0, (size_t)count * sizeof *tokens); /* the set is a copy */
    free(tokens);
    CHECK(set && data_is_text(set) && data_count(set) == count && data_classes(set) == vocabulary, "%s",
          tensor_error());
    return set;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static void refused(tensor_status want, const char *part, const data_set *got) {
    CHECK(!got && tensor_error_status() == want && strstr(tensor_error(), part), "%s '%s', expected '%s'",
          tensor_status_name(tensor_error_status()), tensor_error(), part);
}

static void check_makers(void) {
    static const char text[] = "na\xC3\xAFve \xF0\x9F\x98\x80 na"; /* U+00EF, U+1F600 */
    static const int32_t alphabet[] = {' ', 'a', 'e', 'n', 'v', 0xEF, 0x1F600},
                         tokens[] = {3, 1, 5, 4, 2, 0, 6, 0, 3, 1};
    data_set *set = data_new_text(text, sizeof text - 1, DATA_CHARACTERS, NULL);
    CHECK(set && data_is_text(set) && data_count(set) == 10 && data_classes(set) == 7 && !data_height(set) &&
              !data_width(set) && !data_channels(set) && !data_image(set, 0),
          "%s", tensor_error());
    for (int i = 0; i < 10; i++)
        CHECK(data_label(set, i) == tokens[i], "token %d is %d", i, data_label(set, i));
    for (int i = 0; i < 7; i++)
        CHECK(data_character(set, i) == alphabet[i] && data_token(set, alphabet[i]) == i, "character %d", i);
    CHECK(data_character(set, 7) == -1 && data_character(set, -1) == -1 && data_token(set, 'b') == -1 &&
              data_token(set, -1) == -1 && data_token(set, 0x10FFFF) == -1 && data_label(set, 10) == -1,
          "there is more than there is");
    CHECK(data_vocabulary(set) == 0xcfc14efc26be3b6du, "checkpoints of other versions would not know the vocabulary");
    double moment;
    CHECK(data_channel_moments(&moment, &moment, set) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "a text"), "%s",
          tensor_error());
    data_set *other = data_new_text("even", 4, DATA_CHARACTERS, set);
    CHECK(other && data_classes(other) == 7 && data_vocabulary(other) == data_vocabulary(set) &&
              data_label(other, 0) == 2 && data_label(other, 1) == 4,
          "%s", tensor_error());
    data_free(other);
    refused(TENSOR_E_DATA, "byte 2: the character U+0062 is not in the vocabulary",
            data_new_text("nab", 3, DATA_CHARACTERS, set));
    refused(TENSOR_E_ARGUMENT, "a vocabulary is given", data_new_text("na", 2, DATA_BYTES, set));
    data_set *bytes = data_new_text(text, sizeof text - 1, DATA_BYTES, NULL);
    CHECK(bytes && data_count(bytes) == 14 && data_classes(bytes) == 256 && data_label(bytes, 2) == 0xC3 &&
              data_character(bytes, 255) == 255 && data_token(bytes, 200) == 200 && data_token(bytes, 256) == -1,
          "%s", tensor_error());
    refused(TENSOR_E_ARGUMENT, "a vocabulary is given", data_new_text("na", 2, DATA_CHARACTERS, bytes));
    CHECK(!data_limit(bytes, 3) && data_count(bytes) == 3, "%s", tensor_error());
    data_free(bytes);
    data_free(set);
    set = data_new_text("aaaa", 4, DATA_CHARACTERS, NULL);
    CHECK(set && data_classes(set) == 2 && data_character(set, 0) == 'a' && data_character(set, 1) == -1, "%s",
          tensor_error());
    data_free(set);
    refused(TENSOR_E_ARGUMENT, "the text is NULL", data_new_text(NULL, 4, DATA_BYTES, NULL));
    refused(TENSOR_E_ARGUMENT, "negative", data_new_text("a", -1, DATA_BYTES, NULL));
    refused(TENSOR_E_DATA, "empty", data_new_text("", 0, DATA_BYTES, NULL));
    refused(TENSOR_E_DATA, "empty", data_new_text("", 0, DATA_CHARACTERS, NULL));
    refused(TENSOR_E_ARGUMENT, "unit 2", data_new_text("a", 1, (data_unit)2, NULL));
    refused(TENSOR_E_DATA, "byte 1, 0xFF, does not begin a UTF-8 character",
            data_new_text("a\xFF", 2, DATA_CHARACTERS, NULL));
    const int32_t few[] = {0, 5, 9};
    refused(TENSOR_E_ARGUMENT, "tokens is NULL", data_new_tokens(NULL, 3, 10));
    refused(TENSOR_E_ARGUMENT, "at least 1", data_new_tokens(few, 0, 10));
    refused(TENSOR_E_ARGUMENT, "vocabulary of 1,", data_new_tokens(few, 3, 1));
    refused(TENSOR_E_ARGUMENT, "vocabulary of 65537", data_new_tokens(few, 3, 65537));
    refused(TENSOR_E_DATA, "token 2 is 9, expected 0 to 8", data_new_tokens(few, 3, 9));
    refused(TENSOR_E_DATA, "token 0 is -1", data_new_tokens((const int32_t[]){-1}, 1, 9));
    set = data_new_tokens(few, 3, 65536);
    CHECK(set && data_character(set, 5) == -1 && data_token(set, 5) == -1 && data_classes(set) == 65536, "%s",
          tensor_error());
    data_free(set);
}

static void check_splits(void) {
    data_set *train = NULL, *test = NULL;
    char specification[2 * PATH_MAX];
    file_write("a.txt", "abcdefghij0123456789", 20);
    snprintf(specification, sizeof specification, "text:%s/a.txt,unit=characters,test=25", folder);
    CHECK(!data_open_splits(&train, &test, specification) && data_count(train) == 15 && data_count(test) == 5 &&
              data_classes(train) == 20 && data_classes(test) == 20 && data_character(test, data_label(test, 0)) == '5',
          "%s", tensor_error());
    data_free(train), data_free(test);
    CHECK(!data_open_splits(&train, &test, "synthetic:train=20,test=10") && data_count(train) == 20 &&
              data_count(test) == 10,
          "%s", tensor_error());
    data_free(train), data_free(test);
    train = test = NULL;
    snprintf(specification, sizeof specification, "text:%s/a.txt,%s/b.txt", folder, folder);
    CHECK(data_open_splits(&train, &test, specification) == TENSOR_E_IO && !train && !test, "%s", tensor_error());
    CHECK(data_open_splits(&train, &test, NULL) == TENSOR_E_ARGUMENT &&
              data_open_splits(NULL, &test, "synthetic") == TENSOR_E_ARGUMENT &&
              data_open_splits(&train, &test, "nosuch") == TENSOR_E_ARGUMENT && !train && !test,
          "%s", tensor_error());
    file_remove("a.txt");
}

/* The splits of one file are parts of one array, whichever is freed first; a limit of one does not concern the other;
 * and a loader of the second split begins where it does. */
static void check_shared_splits(int distinct, bool train_first) {
    enum { COUNT = 1000, TEST = 300, CONTEXT = 7 };
    char text[2 * COUNT], specification[2 * PATH_MAX];
    int32_t letters[COUNT];
    size_t size = 0;
    for (int i = 0; i < COUNT; i++) { /* U+0100 and what follows, of two bytes */
        letters[i] = 0x100 + (i < distinct ? i : i * 31 % distinct);
        text[size++] = (char)(0xC0 | letters[i] >> 6);
        text[size++] = (char)(0x80 | (letters[i] & 0x3F));
    }
    file_write("shared.txt", text, size);
    snprintf(specification, sizeof specification, "text:%s/shared.txt,unit=characters,test=30", folder);
    data_set *train = NULL, *test = NULL;
    const bool opened = !data_open_splits(&train, &test, specification);
    file_remove("shared.txt");
    CHECK(opened && data_count(train) == COUNT - TEST && data_count(test) == TEST && data_classes(test) == distinct,
          "%s", tensor_error());
    if (!opened)
        return;
    CHECK(!data_limit(train, 10) && data_label(train, 10) == -1 && data_count(test) == TEST, "%s", tensor_error());
    for (int i = 0; i < 10; i++)
        CHECK(data_character(train, data_label(train, i)) == letters[i], "train, token %d", i);
    data_set *first = train_first ? train : test, *second = train_first ? test : train;
    data_free(first);
    if (train_first) {
        for (int i = 0; i < TEST; i++)
            CHECK(data_character(test, data_label(test, i)) == letters[COUNT - TEST + i], "test, token %d", i);
        data_loader *loader = data_loader_new(test, &(data_loader_config){.batch = 4, .context = CONTEXT});
        data_batch batch = {0};
        CHECK(loader && !data_loader_start(loader, 0) && !data_loader_next(&batch, loader), "%s", tensor_error());
        for (int t = 0; t < batch.count * CONTEXT; t++)
            CHECK(data_character(test, batch.tokens[t]) == letters[COUNT - TEST + t] &&
                      data_character(test, batch.targets[t]) == letters[COUNT - TEST + t + 1],
                  "excerpt, token %d", t);
        data_loader_free(loader);
    } else {
        for (int i = 0; i < 10; i++)
            CHECK(data_character(train, data_label(train, i)) == letters[i], "train alone, token %d", i);
    }
    data_free(second);
}

static void check_shared(void) {
    for (int distinct = 255; distinct <= 257; distinct++)
        for (int train_first = 0; train_first < 2; train_first++)
            check_shared_splits(distinct, train_first);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

static data_loader_config config;
static int64_t window_total; /* of an epoch, as in data.h */

static data_loader *loader_of(const data_set *set, int64_t tokens) {
    const int64_t skipped = config.augment ? config.context : 1;
    window_total = (tokens - skipped) / config.context;
    if (config.drop_last || config.streams)
        window_total -= window_total % config.batch;
    data_loader *loader = data_loader_new(set, &config);
    CHECK(loader, "%s", tensor_error());
    const int64_t batches = (window_total + config.batch - 1) / config.batch;
    CHECK(data_loader_batches(loader) == batches, "%lld batches, expected %lld", (long long)data_loader_batches(loader),
          (long long)batches);
    return loader;
}

/* Returns the beginnings of all excerpts of an epoch, in their order, and checks their tokens. */
static int64_t *begins(data_loader *loader, int epoch) {
    int64_t *begin = malloc(((size_t)window_total + 1) * sizeof *begin), n = 0;
    CHECK(!data_loader_start(loader, epoch), "%s", tensor_error());
    for (data_batch batch; !data_loader_next(&batch, loader) && batch.count;) {
        CHECK(!batch.images && !batch.pixels && !batch.labels && batch.tokens && batch.targets,
              "a batch of a text has more or less");
        CHECK(batch.count == config.batch || n + batch.count == window_total, "%d windows", batch.count);
        for (int i = 0; i < batch.count && n < window_total; i++) {
            int wrong = 0;
            begin[n++] = batch.indices[i];
            for (int t = 0; t < config.context; t++)
                wrong += batch.tokens[i * config.context + t] != token_at(batch.indices[i] + t) ||
                         batch.targets[i * config.context + t] != token_at(batch.indices[i] + t + 1);
            CHECK(!wrong, "epoch %d, window at %lld: %d wrong tokens", epoch, (long long)batch.indices[i], wrong);
        }
    }
    CHECK(n == window_total, "%lld windows, expected %lld", (long long)n, (long long)window_total);
    return begin;
}

static void check_windows(int64_t tokens) {
    data_set *set = numbered(tokens);
    data_loader *loader = loader_of(set, tokens), *twin = loader_of(set, tokens);
    int64_t *first = begins(loader, 0), *second = begins(loader, 1), *again = begins(twin, 1);
    CHECK(!memcmp(second, again, (size_t)window_total * sizeof *again), "epoch 1 depends on the one before");
    const int64_t *epoch[] = {first, second};
    bool differ = false;
    for (int e = 0; e < 2; e++) {
        int64_t offset = INT64_MAX;
        for (int64_t i = 0; i < window_total; i++)
            offset = epoch[e][i] < offset ? epoch[e][i] : offset;
        if (!(config.shuffle && config.drop_last)) /* these leave excerpts out, perhaps the first */
            CHECK(config.augment ? offset < config.context : !offset, "the first window begins at %lld",
                  (long long)offset);
        char *seen = calloc((size_t)window_total + (size_t)config.batch + 1, 1);
        const int64_t stride = config.streams ? window_total / config.batch : 1;
        for (int64_t i = 0; i < window_total; i++) {
            const int64_t at = epoch[e][i] - (config.augment ? epoch[e][i] % config.context : 0),
                          w = at / config.context;
            CHECK(at % config.context == 0 && w < window_total + config.batch && !seen[w], "window %lld at %lld",
                  (long long)i, (long long)epoch[e][i]);
            CHECK(epoch[e][i] + config.context < tokens, "window %lld ends past the end", (long long)i);
            seen[w < window_total + config.batch ? w : 0] = 1;
            if (!config.shuffle)
                CHECK(w == (config.streams ? i % config.batch * stride + i / config.batch : i), "window %lld is %lld",
                      (long long)i, (long long)w);
        }
        free(seen);
    }
    for (int64_t i = 0; i < window_total; i++)
        differ |= first[i] != second[i];
    CHECK(!config.shuffle || window_total < 20 || differ, "two epochs have one order");

    /* A loader continues at the position at which another stopped. */
    int64_t batch = -1;
    int at = -1;
    CHECK(!data_loader_seek(twin, 1, data_loader_batches(twin) / 2), "%s", tensor_error());
    data_batch next;
    int64_t n = data_loader_batches(twin) / 2 * config.batch;
    CHECK(!data_loader_next(&next, twin) && next.count && next.indices[0] == second[n], "window %lld", (long long)n);
    CHECK(!data_loader_position(&at, &batch, twin) && at == 1 && batch == data_loader_batches(twin) / 2 + 1,
          "position %d, %lld", at, (long long)batch);
    free(first), free(second), free(again);
    data_loader_free(loader), data_loader_free(twin);
    data_free(set);
}

/* Offsets of many epochs: each possible one occurs, and no other. */
static void check_offsets(void) {
    enum { CONTEXT = 5, EPOCHS = 200 };
    int seen[CONTEXT] = {0};
    config = (data_loader_config){.batch = 2, .context = CONTEXT, .augment = true, .seed = 3};
    data_set *set = numbered(31);
    data_loader *loader = loader_of(set, 31);
    for (int e = 0; e < EPOCHS; e++) {
        int64_t *begin = begins(loader, e);
        if (begin[0] >= 0 && begin[0] < CONTEXT)
            seen[begin[0]]++;
        free(begin);
    }
    for (int i = 0; i < CONTEXT; i++) /* 40 are expected, of standard deviation 5.7 */
        CHECK(seen[i] > 12 && seen[i] < 68, "offset %d came %d times of %d", i, seen[i], EPOCHS);
    data_loader_free(loader);
    data_free(set);
}

static void refuse_loader(const data_set *set, data_loader_config how, const char *part) {
    data_loader *loader = data_loader_new(set, &how);
    CHECK(!loader && tensor_error_status() == TENSOR_E_ARGUMENT && strstr(tensor_error(), part), "'%s', expected '%s'",
          tensor_error(), part);
    data_loader_free(loader);
}

static void check_refusals(void) {
    data_set *set = numbered(20), *images = data_open("synthetic:train=8", DATA_TRAIN);
    const double one[3] = {1, 1, 1};
    refuse_loader(set, (data_loader_config){.batch = 2}, "context 0 of a text");
    refuse_loader(set, (data_loader_config){.batch = 2, .context = -1}, "context -1");
    refuse_loader(set, (data_loader_config){.batch = 0, .context = 4}, "batch 0");
    refuse_loader(set, (data_loader_config){.batch = 1, .context = 20}, "20 tokens, expected at least 21");
    refuse_loader(set, (data_loader_config){.batch = 1, .context = INT32_MAX}, "at least 2147483648");
    refuse_loader(set, (data_loader_config){.batch = 1, .context = 11, .augment = true}, "at least 22");
    refuse_loader(set, (data_loader_config){.batch = 5, .context = 4, .drop_last = true}, "4 excerpts leaves no whole");
    refuse_loader(set, (data_loader_config){.batch = 5, .context = 4, .streams = true}, "4 excerpts leaves no whole");
    refuse_loader(set, (data_loader_config){.batch = 2, .context = 4, .streams = true, .shuffle = true}, "one of them");
    refuse_loader(set, (data_loader_config){.batch = 2, .context = 4, .mean = one, .deviation = one}, "of a text");
    refuse_loader(images, (data_loader_config){.batch = 2, .context = 4}, "context 4");
    refuse_loader(images, (data_loader_config){.batch = 2, .streams = true}, "streams 1 of images");
    config = (data_loader_config){.batch = 1, .context = 19};
    data_loader *loader = loader_of(set, 20); /* one excerpt, of the whole text */
    free(begins(loader, 0));
    data_loader_free(loader);
    config = (data_loader_config){.batch = 4};
    CHECK(!data_loader_new(set, &config), "a text without a context");
    /* A training on images reports an error. */
    nn_train_result result = {0};
    const nn_train_config training = {
        .network = {.variant = "fp32", .batch = 4}, .model = "mlp2", .epochs = 1, .rate = 0.1, .schedule = "constant"};
    const tensor_status status = nn_train(&result, &training, set, NULL, NULL);
    CHECK(status == TENSOR_E_ARGUMENT && strstr(tensor_error(), "text"), "%s: %s", tensor_status_name(status),
          tensor_error());
    data_free(set), data_free(images);
}

enum { MANY = 300 };
static char many[2 * MANY]; /* as many different characters, of two bytes each */

static bool make_characters(void) {
    data_set *set = data_new_text("some\xC3\xAF text", 11, DATA_CHARACTERS, NULL);
    data_free(set);
    return set != NULL;
}
static bool make_tokens(void) {
    data_set *set = data_new_tokens((const int32_t[]){1, 0, 1}, 3, 2);
    data_free(set);
    return set != NULL;
}
static bool make_wide_tokens(void) {
    data_set *set = data_new_tokens((const int32_t[]){1, 0, 1}, 3, 257);
    data_free(set);
    return set != NULL;
}
static bool make_bytes(void) {
    data_set *set = data_new_text("some text", 9, DATA_BYTES, NULL);
    data_free(set);
    return set != NULL;
}
static bool make_many_characters(void) {
    data_set *set = data_new_text(many, sizeof many, DATA_CHARACTERS, NULL);
    CHECK(!set || data_classes(set) == MANY, "%d characters", data_classes(set));
    data_free(set);
    return set != NULL;
}
static bool open_both(void) {
    char specification[2 * PATH_MAX];
    snprintf(specification, sizeof specification, "text:%s/a.txt,%s/b.txt,unit=characters", folder, folder);
    data_set *train = NULL, *test = NULL;
    const bool good = !data_open_splits(&train, &test, specification);
    CHECK(good == (train && test), "splits %d, %d after %d", train != NULL, test != NULL, good);
    data_free(train), data_free(test);
    return good;
}
static bool open_shared(void) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "text:%s/a.txt,unit=characters,test=50", folder);
    data_set *train = NULL, *test = NULL;
    const bool good = !data_open_splits(&train, &test, specification);
    CHECK(good == (train && test), "splits %d, %d after %d", train != NULL, test != NULL, good);
    data_free(train), data_free(test);
    return good;
}
static data_set *loader_text;
static bool make_loader(void) {
    data_loader *loader =
        data_loader_new(loader_text, &(data_loader_config){.batch = 2, .context = 3, .shuffle = true});
    data_loader_free(loader);
    return loader != NULL;
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    check_makers();
    check_splits();
    const char *given = getenv("FLEXLAB_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20261122;
    printf("FLEXLAB_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 300; i++) {
        const int kind = (int)(check_random(&seed) % 16);
        config = (data_loader_config){.batch = 1 + (int)(check_random(&seed) % 9),
                                      .context = 1 + (int)(check_random(&seed) % 40),
                                      .seed = check_random(&seed),
                                      .shuffle = kind & 1,
                                      .augment = kind & 2,
                                      .drop_last = kind & 4,
                                      .streams = kind & 8 && !(kind & 1)};
        vocabulary = (const int[]){60000, 256, 257}[i % 3];
        const int64_t least = (int64_t)config.context * (config.batch + 1) + 1;
        check_windows(least + (int64_t)(check_random(&seed) % 2000));
    }
    vocabulary = 60000;
    check_offsets();
    check_refusals();
    check_shared();
    file_write("a.txt", "abcabcabc", 9);
    file_write("b.txt", "bca", 3);
    fail_each_allocation("a text of characters", make_characters);
    for (int i = 0; i < MANY; i++) {
        many[2 * i] = (char)(0xC0 | (0x100 + i) >> 6);
        many[2 * i + 1] = (char)(0x80 | ((0x100 + i) & 0x3F));
    }
    fail_each_allocation("a text of many characters", make_many_characters);
    fail_each_allocation("a text of bytes", make_bytes);
    fail_each_allocation("a text of tokens", make_tokens);
    fail_each_allocation("a text of tokens of two bytes", make_wide_tokens);
    fail_each_allocation("both splits", open_both);
    fail_each_allocation("the splits of one file", open_shared);
    loader_text = numbered(50);
    fail_each_allocation("a loader of a text", make_loader);
    data_free(loader_text);
    file_remove("a.txt"), file_remove("b.txt");
    rmdir(folder);
    return check_summary();
}
