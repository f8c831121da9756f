/* data_images.c - folders of PNG and JPEG files, decoded on all threads. Each file is read once. The first image or the
 * options determine the shape of the set; its memory grows with the images decoded so far, so that small files cannot
 * make the library allocate much. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "data/data_folder.h"
#include "data/data_internal.h"
#include "data/data_picture.h"
#include "data/data_words.h"
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* The first allocation for pixels; the longest file, which is enough for 4096x4096 pixels of 8 bytes. */
enum { FIRST_BYTES = 1 << 26, LONGEST_FILE = 1 << 28, PART_IMAGES = 4 };

static const struct fl_data_syntax syntax = {
    "images", "images:DIR[,resize=HEIGHTxWIDTH][,channels=1|2|3|4]", 1, {"resize", "channels"}};

/* The memory that a thread reuses from file to file. */
struct worker {
    uint8_t *file;
    size_t room;
    struct fl_picture picture;
    uint8_t *line;
    size_t line_room;
    int64_t failed; /* the first image that this thread could not decode or store, or INT64_MAX */
    struct fl_data_problem problem;
};

struct job {
    const struct fl_data_files *files;
    data_set *set;
    bool resize, convert; /* by the options; otherwise all images are like the first */
    int64_t begin, end;   /* images to decode now */
    atomic_llong failed;  /* no thread needs to decode images after it */
    struct worker *worker;
    int workers;
};

/* --- one image ---------------------------------------------------------------------------------------------------- */

static tensor_status read_bytes(int file, uint8_t *to, size_t bytes, const char *path, struct fl_data_problem *p) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(file, to + done, bytes - done);
        if (!got || (got < 0 && errno != EINTR))
            return fl_data_note(p, TENSOR_E_IO, "images: %s: read %zu of %zu bytes: %s", path, done, bytes,
                                got ? strerror(errno) : "it became shorter");
        done += got > 0 ? (size_t)got : 0;
    }
    return TENSOR_OK;
}

static tensor_status make_room(uint8_t **block, size_t *room, size_t bytes, const char *path,
                               struct fl_data_problem *p) {
    if (bytes <= *room)
        return TENSOR_OK;
    fl_free(*block);
    *block = fl_alloc(bytes);
    *room = *block ? bytes : 0;
    return *block ? TENSOR_OK
                  : fl_data_note(p, TENSOR_E_MEMORY, "images: no memory for %zu bytes to read %s", bytes, path);
}

/* Reads the file into the worker's memory and decodes it to the worker's picture. */
static tensor_status decode_file(struct worker *w, const char *path) {
    int file;
    int64_t bytes;
    tensor_status status = fl_data_file_try(&w->problem, &file, &bytes, "images", path, NULL);
    if (status)
        return status;
    if (bytes > LONGEST_FILE)
        status = fl_data_note(&w->problem, TENSOR_E_DATA, "images: %s has %lld bytes, expected at most %d", path,
                              (long long)bytes, LONGEST_FILE);
    if (!status && bytes)
        status = make_room(&w->file, &w->room, (size_t)bytes, path, &w->problem);
    if (!status)
        status = read_bytes(file, w->file, (size_t)bytes, path, &w->problem);
    close(file);
    return status ? status : fl_picture_decode(&w->picture, w->file, (size_t)bytes, path, &w->problem);
}

static tensor_status check_like(const struct job *job, struct worker *w, const char *path) {
    const struct fl_picture *p = &w->picture;
    const data_set *s = job->set;
    const bool size = job->resize || (p->height == s->height && p->width == s->width),
               channels = job->convert || p->channels == s->channels;
    if (size && channels)
        return TENSOR_OK;
    return fl_data_note(&w->problem, TENSOR_E_DATA, "images: %s is %dx%dx%d, the first image %dx%dx%d: expected %s",
                        path, p->height, p->width, p->channels, s->height, s->width, s->channels,
                        size ? "one number of channels, or the option channels=N"
                             : "one size, or the option resize=HEIGHTxWIDTH");
}

/* Stores the worker's picture as image i. */
static tensor_status store(const struct job *job, struct worker *w, int64_t i) {
    data_set *s = job->set;
    const char *path = job->files->file[i].path;
    if (check_like(job, w, path) ||
        make_room(&w->line, &w->line_room, fl_picture_line_bytes(&w->picture, s->width, s->channels), path,
                  &w->problem))
        return w->problem.status;
    fl_picture_store(&w->picture, s->pixels + i * s->height * s->width * s->channels, s->height, s->width, s->channels,
                     w->line);
    s->labels[i] = job->files->file[i].label;
    return TENSOR_OK;
}

/* --- all images --------------------------------------------------------------------------------------------------- */

static void note_failed(struct job *job, struct worker *w, int64_t i) {
    w->failed = i;
    long long before = atomic_load(&job->failed);
    while (i < before && !atomic_compare_exchange_weak(&job->failed, &before, i))
        ;
}

static void decode_part(void *context, int part, int worker) {
    struct job *job = context;
    struct worker *w = &job->worker[worker];
    const int64_t begin = job->begin + (int64_t)part * PART_IMAGES,
                  end = begin + PART_IMAGES < job->end ? begin + PART_IMAGES : job->end;
    /* Parts come in order, so a thread's first failure is the first of its images. */
    for (int64_t i = begin; i < end && w->failed == INT64_MAX && i < atomic_load(&job->failed); i++)
        if (decode_file(w, job->files->file[i].path) || store(job, w, i))
            note_failed(job, w, i);
}

/* Decodes images begin to end - 1 on all threads; reports the first failure. */
static tensor_status decode_some(struct job *job, int64_t begin, int64_t end) {
    job->begin = begin;
    job->end = end;
    atomic_store(&job->failed, INT64_MAX);
    while (job->begin < end) { /* as many images at a time as int can count their parts */
        const int64_t most = (int64_t)INT_MAX * PART_IMAGES, left = end - job->begin;
        job->end = left < most ? end : job->begin + most;
        fl_parallel_within(job->workers, (int)((job->end - job->begin + PART_IMAGES - 1) / PART_IMAGES), decode_part,
                           job);
        job->begin = job->end;
    }
    const struct worker *first = NULL;
    for (int i = 0; i < job->workers; i++)
        if (job->worker[i].failed != INT64_MAX && (!first || job->worker[i].failed < first->failed))
            first = &job->worker[i];
    return first ? fl_fail(first->problem.status, "%s", first->problem.text) : TENSOR_OK;
}

/* Allocates memory for `count` images and copies the first `held` of them. */
static tensor_status grow_set(data_set *s, int64_t held, int64_t count) {
    const size_t image = (size_t)s->height * (size_t)s->width * (size_t)s->channels;
    uint8_t *larger = (size_t)count <= PTRDIFF_MAX / image ? fl_alloc((size_t)count * image) : NULL;
    if (!larger)
        return fl_fail(TENSOR_E_MEMORY, "images: no memory for %lld images of %dx%dx%d", (long long)count, s->height,
                       s->width, s->channels);
    if (held)
        memcpy(larger, s->pixels, (size_t)held * image);
    fl_free(s->pixels);
    s->pixels = larger;
    return TENSOR_OK;
}

/* Each pass decodes as many images as there were before it. */
static tensor_status decode_all(struct job *job) {
    data_set *s = job->set;
    const int64_t image = (int64_t)s->height * s->width * s->channels, first = FIRST_BYTES / image;
    int64_t room = first > s->count ? s->count : first > 1 ? first : 1;
    tensor_status status = grow_set(s, 0, room);
    if (!status && store(job, &job->worker[0], 0))
        status = fl_fail(job->worker[0].problem.status, "%s", job->worker[0].problem.text);
    for (int64_t held = 1; !status && held < s->count;) {
        if (held == room) {
            room = room < s->count / 2 ? 2 * room : s->count;
            status = grow_set(s, held, room);
        }
        if (!status)
            status = decode_some(job, held, room);
        held = room;
    }
    return status;
}

/* --- the set ------------------------------------------------------------------------------------------------------ */

struct options {
    int64_t height, width, channels; /* 0: as in the first image */
};

static tensor_status read_options(const struct fl_data_words *words, struct options *o) {
    const char *size = words->value[0], *channels = words->value[1];
    *o = (struct options){0};
    if (size && (!fl_data_whole(&size, 1, FL_DATA_MAX_SIDE, &o->height) || *size++ != 'x' ||
                 !fl_data_whole(&size, 1, FL_DATA_MAX_SIDE, &o->width) || *size))
        return fl_fail(TENSOR_E_ARGUMENT, "images: option 'resize=%s', expected HEIGHTxWIDTH, 1x1 to %dx%d",
                       words->value[0], FL_DATA_MAX_SIDE, FL_DATA_MAX_SIDE);
    if (channels && (!fl_data_whole(&channels, 1, FL_DATA_MAX_CHANNELS, &o->channels) || *channels))
        return fl_fail(TENSOR_E_ARGUMENT, "images: option 'channels=%s', expected 1 to %d", words->value[1],
                       FL_DATA_MAX_CHANNELS);
    return TENSOR_OK;
}

/* Takes the shape of the set from the first image, unless options give it. */
static tensor_status decode_set(struct job *job, const struct options *o) {
    struct worker *w = &job->worker[0];
    data_set *s = job->set;
    if (decode_file(w, job->files->file[0].path))
        return fl_fail(w->problem.status, "%s", w->problem.text);
    s->height = o->height ? (int)o->height : w->picture.height;
    s->width = o->width ? (int)o->width : w->picture.width;
    s->channels = o->channels ? (int)o->channels : w->picture.channels;
    return decode_all(job);
}

static tensor_status open_listed(data_set **set, const struct fl_data_files *files, const struct options *o) {
    struct job job = {.files = files, .resize = o->height > 0, .convert = o->channels > 0, .workers = fl_threads()};
    tensor_status status = TENSOR_OK;
    job.worker = fl_alloc_zero((size_t)job.workers * sizeof *job.worker);
    data_set *s = job.worker ? fl_alloc_zero(sizeof *s) : NULL;
    if (s) {
        *s = (data_set){.count = files->count, .classes = files->classes};
        s->labels = fl_alloc((size_t)s->count * sizeof *s->labels);
    }
    if (!s || !s->labels)
        status = fl_fail(TENSOR_E_MEMORY, "images: no memory for %lld labels", (long long)files->count);
    for (int i = 0; job.worker && i < job.workers; i++)
        job.worker[i].failed = INT64_MAX;
    job.set = s;
    if (!status)
        status = decode_set(&job, o);
    for (int i = 0; job.worker && i < job.workers; i++) {
        fl_free(job.worker[i].file);
        fl_free(job.worker[i].line);
        fl_picture_free(&job.worker[i].picture);
    }
    fl_free(job.worker);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}

tensor_status fl_data_open_images(data_set **set, const char *rest, data_split split) {
    struct fl_data_words words;
    struct options o;
    struct fl_data_files files = {0};
    tensor_status status = fl_data_words(&words, &syntax, rest);
    if (status)
        return status;
    status = read_options(&words, &o);
    if (!status)
        status = fl_data_list(&files, words.path[0], split);
    if (!status)
        status = open_listed(set, &files, &o);
    fl_data_files_free(&files);
    fl_data_words_free(&words);
    return status;
}
