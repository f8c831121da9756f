/* data_folder.c - listing DIR/SPLIT/CLASS/IMAGE. */
#include "data/data_folder.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define LAYOUT "expected DIR/train/CLASS/IMAGE and DIR/test/CLASS/IMAGE"

/* The names in a folder, in byte order. */
struct names {
    int64_t count, room;
    char **name;
};

static void names_free(struct names *n) {
    for (int64_t i = 0; i < n->count; i++)
        fl_free(n->name[i]);
    fl_free(n->name);
    *n = (struct names){0};
}

/* Makes space for one more element of `size` bytes. Returns the block, or NULL with the message set. */
static void *grow(void *block, int64_t count, int64_t *room, size_t size) {
    if (count < *room)
        return block;
    const int64_t wanted = *room ? 2 * *room : 16;
    void *larger = fl_alloc((size_t)wanted * size);
    if (!larger) {
        fl_fail(TENSOR_E_MEMORY, "images: no memory for a list of %lld names", (long long)wanted);
        return NULL;
    }
    if (count)
        memcpy(larger, block, (size_t)count * size);
    fl_free(block);
    *room = wanted;
    return larger;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tensor_status add_name(struct names *n, const char *name) {
    char **larger = grow(n->name, n->count, &n->room, sizeof *n->name);
    if (!larger)
        return TENSOR_E_MEMORY;
    n->name = larger;
    if (!(n->name[n->count] = fl_strdup(name)))
        return fl_fail(TENSOR_E_MEMORY, "images: no memory for the name %s", name);
    n->count++;
    return TENSOR_OK;
}

/* Lists all names except those that begin with a point. */
static tensor_status list_names(struct names *n, const char *path) {
    DIR *folder = opendir(path);
    if (!folder) {
        const int why = errno;
        return fl_fail(why == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "images: cannot open the folder %s: %s; " LAYOUT,
                       path, strerror(why));
    }
    tensor_status status = TENSOR_OK;
    for (struct dirent *entry; !status && (errno = 0, entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            status = add_name(n, entry->d_name);
    if (!status && errno)
        status = fl_fail(TENSOR_E_IO, "images: %s: %s", path, strerror(errno));
    closedir(folder);
    if (!status && n->count)
        qsort(n->name, (size_t)n->count, sizeof *n->name, compare_names);
    return status;
}

static tensor_status no_memory(const char *name) {
    return fl_fail(TENSOR_E_MEMORY, "images: no memory for the path of %s", name);
}

/* --- files of a class ----------------------------------------------------------------------------------------------
 */

static bool is_image(const char *name) {
    const char *end = strrchr(name, '.');
    return end && (!strcasecmp(end, ".png") || !strcasecmp(end, ".jpg") || !strcasecmp(end, ".jpeg"));
}

/* Takes ownership of `path`, also on failure. */
static tensor_status add_file(struct fl_data_files *files, char *path, int label) {
    struct fl_data_listed *larger = grow(files->file, files->count, &files->room, sizeof *files->file);
    if (!larger) {
        fl_free(path);
        return TENSOR_E_MEMORY;
    }
    files->file = larger;
    files->file[files->count++] = (struct fl_data_listed){path, (uint16_t)label};
    return TENSOR_OK;
}

static tensor_status list_class(struct fl_data_files *files, const char *path, int label) {
    struct names n = {0};
    tensor_status status = list_names(&n, path);
    for (int64_t i = 0; !status && i < n.count; i++) {
        char *file = fl_data_path(path, n.name[i], "");
        if (!file) {
            status = no_memory(n.name[i]);
        } else if (!is_image(n.name[i])) {
            status =
                fl_fail(TENSOR_E_DATA, "images: %s is not an image by its name: expected .png, .jpg or .jpeg", file);
            fl_free(file);
        } else {
            status = add_file(files, file, label);
        }
    }
    names_free(&n);
    return status;
}

/* --- a split -------------------------------------------------------------------------------------------------------
 */

static bool is_folder(const char *path) {
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

/* The index of a class among those of training; -1 if there is none. */
static int find_class(const struct names *classes, const char *name) {
    const char *const *found =
        classes->count ? bsearch(&name, classes->name, (size_t)classes->count, sizeof *classes->name, compare_names)
                       : NULL;
    return found ? (int)(found - (const char *const *)classes->name) : -1;
}

static tensor_status list_split(struct fl_data_files *files, const char *path, const struct names *classes,
                                const struct names *present, bool train) {
    tensor_status status = TENSOR_OK;
    for (int64_t i = 0; !status && i < present->count; i++) {
        const int label = find_class(classes, present->name[i]);
        const int64_t before = files->count;
        char *folder = fl_data_path(path, present->name[i], "");
        if (!folder)
            return no_memory(present->name[i]);
        if (!is_folder(folder))
            status = fl_fail(TENSOR_E_DATA, "images: %s is not a folder of a class; " LAYOUT, folder);
        else if (label < 0)
            status = fl_fail(TENSOR_E_DATA, "images: %s is a class that the training split does not have", folder);
        else
            status = list_class(files, folder, label);
        if (!status && train && files->count == before)
            status = fl_fail(TENSOR_E_DATA, "images: %s has no image", folder);
        fl_free(folder);
    }
    if (!status && !files->count)
        status = fl_fail(TENSOR_E_DATA, "images: %s has no image; " LAYOUT, path);
    return status;
}

static tensor_status list_test(struct fl_data_files *files, const char *path, const struct names *classes) {
    struct names present = {0};
    tensor_status status = list_names(&present, path);
    if (!status)
        status = list_split(files, path, classes, &present, false);
    names_free(&present);
    return status;
}

static tensor_status list_both(struct fl_data_files *files, const char *train, const char *test, data_split split) {
    struct names classes = {0};
    tensor_status status = list_names(&classes, train);
    if (!status && classes.count > FL_DATA_MAX_CLASSES)
        status = fl_fail(TENSOR_E_DATA, "images: %s has %lld classes, expected at most %d", train,
                         (long long)classes.count, FL_DATA_MAX_CLASSES);
    files->classes = classes.count < 2 ? 2 : (int)classes.count;
    if (!status)
        status =
            split == DATA_TRAIN ? list_split(files, train, &classes, &classes, true) : list_test(files, test, &classes);
    names_free(&classes);
    return status;
}

tensor_status fl_data_list(struct fl_data_files *files, const char *directory, data_split split) {
    *files = (struct fl_data_files){0};
    char *train = fl_data_path(directory, "train", ""), *test = fl_data_path(directory, "test", ""),
         *val = fl_data_path(directory, "val", "");
    const tensor_status status = !train || !test || !val
                                     ? no_memory(directory)
                                     : list_both(files, train, !is_folder(test) && is_folder(val) ? val : test, split);
    fl_free(train);
    fl_free(test);
    fl_free(val);
    return status;
}

void fl_data_files_free(struct fl_data_files *files) {
    for (int64_t i = 0; i < files->count; i++)
        fl_free(files->file[i].path);
    fl_free(files->file);
    *files = (struct fl_data_files){0};
}
