/* data_loader.c - batches prepared on another thread, two ahead.
 *
 * A ring of three buffers: the caller has one, two are filled or being filled. The worker writes a buffer outside the
 * lock; `made` and `taken`, guarded by the lock, say who owns a buffer: batch i lies in buffer i % 3 and may be made
 * while i < taken + 2. A new epoch first waits until the worker has finished its buffer. */
#include "core/base/fail.h"
#include "core/tensor/gather.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/arithmetic/philox.h"
#include "data/data_internal.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { BUFFERS = 3, AHEAD = 2 };

/* Separate the draws from those of other users of the same seed ("shuffle!", "offsets!"). */
#define SHUFFLE_KEY UINT64_C(0x73687566666C6521)
#define OFFSET_KEY UINT64_C(0x6F66667365747321)

struct buffer {
    float *images;             /* NULL without mean and deviation */
    uint8_t *pixels;           /* NULL if batches only have indices */
    int32_t *labels;           /* NULL for a text */
    int32_t *tokens, *targets; /* NULL for images */
    int64_t *indices;
    int count;
};

struct data_loader {
    const data_set *set;
    int64_t count, batches; /* images or excerpts, and batches, of an epoch */
    int batch, context;
    uint64_t seed;
    bool shuffle, augment, streams;
    float value[FL_DATA_MAX_CHANNELS][256]; /* normalised pixel */
    struct buffer buffer[BUFFERS];
    int64_t *order;
    int64_t offset; /* of the first excerpt */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work,
        ready; /* to the worker: a buffer is free, or quit; to the caller: a batch is made, or the worker is idle */
    int parts_made;  /* how many of lock, work, ready, thread exist */
    int fork_number; /* of the process that has the thread */

    /* Guarded by the lock. */
    int epoch;           /* -1: none begun */
    int64_t made, taken; /* batches of this epoch */
    bool filling, quit;
};

/* --- one batch --------------------------------------------------------------------------------------------- */

static void augment(const struct data_loader *l, int epoch, int64_t index, const uint8_t *pixels, uint8_t *out) {
    const int height = l->set->height, width = l->set->width, channels = l->set->channels;
    const struct fl_crop crop = fl_crop_of(l->seed, (uint64_t)epoch, (uint64_t)index);
    static const uint8_t border[FL_DATA_MAX_CHANNELS];
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, out += channels) {
            const int64_t from = fl_crop_source(crop, height, width, y, x);
            const uint8_t *pixel = from < 0 ? border : pixels + from * channels;
            for (int c = 0; c < channels; c++)
                out[c] = pixel[c];
        }
}

static void normalise(const struct data_loader *l, const uint8_t *pixels, float *out) {
    int channels = l->set->channels;
    int64_t n = (int64_t)l->set->height * l->set->width;
    for (int64_t i = 0; i < n; i++, pixels += channels, out += channels)
        for (int c = 0; c < channels; c++)
            out[c] = l->value[c][pixels[c]];
}

static void fill_images(const struct data_loader *l, struct buffer *b, int epoch, int64_t first) {
    int64_t image = (int64_t)l->set->height * l->set->width * l->set->channels;
    for (int i = 0; i < b->count; i++) {
        int64_t index = l->order[first + i];
        const uint8_t *pixels = l->set->pixels + index * image;
        b->indices[i] = index;
        b->labels[i] = l->set->labels[index];
        if (!b->pixels)
            continue;
        if (l->augment)
            augment(l, epoch, index, pixels, b->pixels + i * image);
        else
            memcpy(b->pixels + i * image, pixels, (size_t)image);
        if (b->images)
            normalise(l, b->pixels + i * image, b->images + i * image);
    }
}

static void copy_tokens(int32_t *out, const data_set *set, int64_t at, int count) {
    const struct fl_data_tokens *tokens = set->tokens;
    at += set->first;
    if (tokens->narrow)
        for (int t = 0; t < count; t++)
            out[t] = tokens->narrow[at + t];
    else
        for (int t = 0; t < count; t++)
            out[t] = tokens->wide[at + t];
}

static void fill_windows(const struct data_loader *l, struct buffer *b, int64_t first) {
    for (int i = 0; i < b->count; i++) {
        const int64_t at = l->offset + l->order[first + i] * l->context, row = (int64_t)i * l->context;
        b->indices[i] = at;
        copy_tokens(b->tokens + row, l->set, at, l->context);
        copy_tokens(b->targets + row, l->set, at + 1, l->context);
    }
}

static void fill(const struct data_loader *l, struct buffer *b, int epoch, int64_t number) {
    const int64_t first = number * l->batch;
    b->count = (int)(l->count - first < l->batch ? l->count - first : l->batch);
    if (l->context)
        fill_windows(l, b, first);
    else
        fill_images(l, b, epoch, first);
}

/* Orders excerpts so that row b of all batches is one consecutive part of the text. */
static void make_streams(struct data_loader *l) {
    for (int64_t i = 0; i < l->count; i++)
        l->order[i] = i % l->batch * l->batches + i / l->batch;
}

static int64_t draw_offset(const struct data_loader *l, int epoch) {
    const struct fl_philox draw = fl_philox(l->seed ^ OFFSET_KEY, (uint64_t)epoch, 0);
    return (int64_t)((uint64_t)draw.word[0] * (uint64_t)l->context >> 32);
}

/* Shuffles by Fisher-Yates (Durstenfeld 1964) from the identity, so that the order only depends on (seed, epoch). */
static void make_order(struct data_loader *l, int epoch) {
    if (l->context && l->augment)
        l->offset = draw_offset(l, epoch);
    if (l->streams) {
        make_streams(l);
        return;
    }
    for (int64_t i = 0; i < l->count; i++)
        l->order[i] = i;
    for (int64_t i = l->count - 1; l->shuffle && i > 0; i--) {
        struct fl_philox draw = fl_philox(l->seed ^ SHUFFLE_KEY, (uint64_t)epoch, (uint64_t)i);
        uint64_t bits = (uint64_t)draw.word[0] << 32 | draw.word[1];
        int64_t j = (int64_t)((unsigned __int128)bits * (uint64_t)(i + 1) >> 64);
        int64_t t = l->order[i];
        l->order[i] = l->order[j];
        l->order[j] = t;
    }
}

/* --- the worker -------------------------------------------------------------------------------------------- */

static void *work(void *pointer) {
    struct data_loader *l = pointer;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        if (l->epoch < 0 || l->made == l->batches || l->made >= l->taken + AHEAD) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t number = l->made;
        int epoch = l->epoch;
        l->filling = true;
        pthread_mutex_unlock(&l->lock);
        fill(l, &l->buffer[number % BUFFERS], epoch, number);
        pthread_mutex_lock(&l->lock);
        l->filling = false;
        l->made = number + 1;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void data_pixel_values(float *values, int channels, const double *mean, const double *deviation) {
    for (int c = 0; c < channels; c++)
        for (int v = 0; v < 256; v++)
            values[c * 256 + v] = (float)((v / 255.0 - mean[c]) / deviation[c]);
}

/* --- life -------------------------------------------------------------------------------------------------- */

/* The number of excerpts of a text in an epoch, which fit after any offset. */
static int64_t window_count(const data_set *set, const data_loader_config *config) {
    const int64_t skipped = config->augment ? config->context : 1, left = set->count - skipped;
    return left < 0 ? 0 : left / config->context;
}

static tensor_status check_text(const data_set *set, const data_loader_config *config) {
    if (config->context < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: context %d of a text, expected at least 1", config->context);
    if (config->mean || config->deviation)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: mean or deviation of a text, expected NULL");
    if (config->streams && config->shuffle)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: streams and shuffle, expected one of them");
    const int64_t windows = window_count(set, config);
    if (!windows)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "data_loader: a text of %lld tokens, expected at least %lld for a context of %d%s",
                       (long long)set->count, (long long)config->context * (config->augment ? 2 : 1) + !config->augment,
                       config->context, config->augment ? " with an offset" : "");
    if ((config->drop_last || config->streams) && config->batch > windows)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: batch %d of a text of %lld excerpts leaves no whole batch",
                       config->batch, (long long)windows);
    return TENSOR_OK;
}

static tensor_status check_config(const data_set *set, const data_loader_config *config) {
    if (!set || !config)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: the set or config is NULL");
    if (config->batch < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: batch %d, expected at least 1", config->batch);
    if (set->text)
        return check_text(set, config);
    if (config->context || config->streams)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: context %d and streams %d of images, expected 0",
                       config->context, config->streams);
    if (config->drop_last && config->batch > set->count)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: batch %d of a set of %lld leaves no whole batch", config->batch,
                       (long long)set->count);
    if (!config->mean && !config->deviation)
        return TENSOR_OK; /* batches of bytes only, or without pixels */
    if (config->indices_only)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader: indices_only with mean or deviation, expected both NULL");
    if (!config->mean || !config->deviation)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "data_loader: mean or deviation is NULL, expected %d values each, or both NULL", set->channels);
    for (int c = 0; c < set->channels; c++) {
        if (!isfinite(config->mean[c]))
            return fl_fail(TENSOR_E_ARGUMENT, "data_loader: mean of channel %d is %g, expected a finite number", c,
                           config->mean[c]);
        if (!isfinite(config->deviation[c]) || !(config->deviation[c] > 0))
            return fl_fail(TENSOR_E_ARGUMENT, "data_loader: deviation of channel %d is %g, expected more than 0", c,
                           config->deviation[c]);
    }
    return TENSOR_OK;
}

static bool allocate_images(struct buffer *b, int64_t batch, int64_t image, bool floats, bool pixels) {
    b->images = floats ? fl_alloc((size_t)(batch * image) * sizeof *b->images) : NULL;
    b->pixels = pixels ? fl_alloc((size_t)(batch * image)) : NULL;
    b->labels = fl_alloc((size_t)batch * sizeof *b->labels);
    return (b->images || !floats) && (b->pixels || !pixels) && b->labels;
}

static bool allocate_windows(struct buffer *b, int64_t tokens) {
    b->tokens = fl_alloc((size_t)tokens * sizeof *b->tokens);
    b->targets = fl_alloc((size_t)tokens * sizeof *b->targets);
    return b->tokens && b->targets;
}

static tensor_status allocate(struct data_loader *l, int64_t batch, bool floats, bool pixels) {
    const int64_t sample = l->context ? l->context : (int64_t)l->set->height * l->set->width * l->set->channels;
    const char *samples = l->context ? "windows" : "images";
    int64_t most = INT64_MAX / 8; /* bytes of a buffer, so that no size overflows */
    if (batch > most / sample / (int64_t)sizeof(float))
        return fl_fail(TENSOR_E_SHAPE, "data_loader: a batch of %lld %s overflows", (long long)batch, samples);
    l->order = fl_alloc((size_t)l->count * sizeof *l->order);
    bool complete = l->order != NULL;
    for (int i = 0; i < BUFFERS && complete; i++) {
        struct buffer *b = &l->buffer[i];
        b->indices = fl_alloc((size_t)batch * sizeof *b->indices);
        complete = b->indices && (l->context ? allocate_windows(b, batch * sample)
                                             : allocate_images(b, batch, sample, floats, pixels));
    }
    return complete ? TENSOR_OK
                    : fl_fail(TENSOR_E_MEMORY, "data_loader: no memory for %d batches of %lld %s", BUFFERS,
                              (long long)batch, samples);
}

/* Counts the samples and batches of an epoch. */
static void count_samples(struct data_loader *l, const data_loader_config *config) {
    l->count = l->set->text ? window_count(l->set, config) : l->set->count;
    const bool whole = config->drop_last || config->streams;
    l->batches = l->count / config->batch + (!whole && l->count % config->batch);
    if (config->streams)
        l->count = l->batches * config->batch;
}

static tensor_status start_thread(struct data_loader *l) {
    int code = pthread_mutex_init(&l->lock, NULL);
    if (!code) {
        l->parts_made = 1;
        code = pthread_cond_init(&l->work, NULL);
    }
    if (!code) {
        l->parts_made = 2;
        code = pthread_cond_init(&l->ready, NULL);
    }
    if (!code) {
        l->parts_made = 3;
        code = pthread_create(&l->thread, NULL, work, l);
    }
    if (code)
        return fl_fail(TENSOR_E_MEMORY, "data_loader: the thread cannot be created: %s", strerror(code));
    l->parts_made = 4;
    return TENSOR_OK;
}

data_loader *data_loader_new(const data_set *set, const data_loader_config *config) {
    if (check_config(set, config))
        return NULL;
    struct data_loader *l = fl_alloc_zero(sizeof *l);
    if (!l) {
        fl_fail(TENSOR_E_MEMORY, "data_loader: no memory");
        return NULL;
    }
    l->set = set;
    l->fork_number = fl_fork_number();
    l->batch = config->batch;
    l->context = config->context;
    l->streams = config->streams;
    count_samples(l, config);
    l->seed = config->seed;
    l->shuffle = config->shuffle;
    l->augment = config->augment;
    l->epoch = -1;
    if (config->mean)
        data_pixel_values(&l->value[0][0], set->channels, config->mean, config->deviation);
    int64_t batch = config->batch < l->count ? config->batch : l->count;
    if (allocate(l, batch, config->mean != NULL, !config->indices_only) || start_thread(l)) {
        data_loader_free(l);
        return NULL;
    }
    return l;
}

void data_loader_free(data_loader *l) {
    if (!l)
        return;
    if (l->fork_number != fl_fork_number())
        l->parts_made = 0; /* the thread belongs to another process, and the lock is in an unknown state */
    if (l->parts_made >= 4) {
        pthread_mutex_lock(&l->lock);
        l->quit = true;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    if (l->parts_made >= 3)
        pthread_cond_destroy(&l->ready);
    if (l->parts_made >= 2)
        pthread_cond_destroy(&l->work);
    if (l->parts_made >= 1)
        pthread_mutex_destroy(&l->lock);
    for (int i = 0; i < BUFFERS; i++) {
        fl_free(l->buffer[i].images);
        fl_free(l->buffer[i].pixels);
        fl_free(l->buffer[i].labels);
        fl_free(l->buffer[i].tokens);
        fl_free(l->buffer[i].targets);
        fl_free(l->buffer[i].indices);
    }
    fl_free(l->order);
    fl_free(l);
}

/* Refuses a loader in the child of a fork, which has no worker. */
static tensor_status check_process(const struct data_loader *l, const char *what) {
    if (l->fork_number == fl_fork_number())
        return TENSOR_OK;
    return fl_fail(
        TENSOR_E_ARGUMENT,
        "%s: the loader was made before this process was forked, its thread does not exist here; make another one",
        what);
}

/* --- use --------------------------------------------------------------------------------------------------- */

int64_t data_loader_batches(const data_loader *l) {
    return l ? l->batches : 0;
}

static tensor_status start(const char *what, data_loader *l, int epoch, int64_t batch) {
    if (!l || epoch < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s %d, expected 0 or more", what, l ? "epoch" : "no loader, epoch",
                       epoch);
    if (batch < 0 || batch > l->batches)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: batch %lld, expected 0 to %lld", what, (long long)batch,
                       (long long)l->batches);
    tensor_status status = check_process(l, what);
    if (status)
        return status;
    pthread_mutex_lock(&l->lock);
    l->epoch = -1; /* the worker begins no further batch */
    while (l->filling)
        pthread_cond_wait(&l->ready, &l->lock);
    make_order(l, epoch);
    l->made = l->taken = batch;
    l->epoch = epoch;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    return TENSOR_OK;
}

tensor_status data_loader_start(data_loader *l, int epoch) {
    return start("data_loader_start", l, epoch, 0);
}

tensor_status data_loader_seek(data_loader *l, int epoch, int64_t batch) {
    return start("data_loader_seek", l, epoch, batch);
}

tensor_status data_loader_position(int *epoch, int64_t *batch, data_loader *l) {
    if (!l || !epoch || !batch)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader_position: the loader, epoch or batch is NULL");
    tensor_status status = check_process(l, "data_loader_position");
    if (status)
        return status;
    pthread_mutex_lock(&l->lock);
    const int at = l->epoch;
    const int64_t taken = l->taken;
    pthread_mutex_unlock(&l->lock);
    if (at < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader_position: no epoch was started (data_loader_start)");
    *epoch = at;
    *batch = taken;
    return TENSOR_OK;
}

tensor_status data_loader_next(data_batch *batch, data_loader *l) {
    if (!l || !batch)
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader_next: the loader or batch is NULL");
    const tensor_status status = check_process(l, "data_loader_next");
    if (status)
        return status;
    pthread_mutex_lock(&l->lock);
    if (l->epoch < 0) {
        pthread_mutex_unlock(&l->lock);
        return fl_fail(TENSOR_E_ARGUMENT, "data_loader_next: no epoch was started (data_loader_start)");
    }
    data_batch next = {0};
    if (l->taken < l->batches) {
        while (l->made == l->taken)
            pthread_cond_wait(&l->ready, &l->lock);
        const struct buffer *b = &l->buffer[l->taken % BUFFERS];
        next = (data_batch){b->images, b->labels, b->indices, b->count, b->pixels, b->tokens, b->targets};
        l->taken++;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    *batch = next;
    return TENSOR_OK;
}
