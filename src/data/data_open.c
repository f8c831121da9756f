/* data_open.c - opens sets by specification: the readers by name. */
#include "core/base/fail.h"
#include "data/data_internal.h"
#include <string.h>

static const struct kind {
    const char *name;
    tensor_status (*open)(data_set **set, const char *rest, data_split split);               /* either this */
    tensor_status (*open_splits)(data_set *sets[2], const bool wanted[2], const char *rest); /* or this */
} kinds[] = {{"synthetic", fl_data_open_synthetic},
             {"cifar10", fl_data_open_cifar10},
             {"cifar100", fl_data_open_cifar100},
             {"idx", fl_data_open_idx},
             {"npy", fl_data_open_npy},
             {"npz", fl_data_open_npz},
             {"images", fl_data_open_images},
             {"text", NULL, fl_data_open_text}};
static const char expected[] =
    "expected synthetic, cifar10:DIR, cifar100:DIR, idx:DIR, npy:IMAGES,LABELS, npz:FILE, images:DIR or text:FILE";

/* Opens the wanted splits; on failure none is set. */
static tensor_status open_splits(data_set *sets[2], const bool wanted[2], const char *specification) {
    const size_t length = strcspn(specification, ":");
    const char *rest = specification[length] ? specification + length + 1 : NULL;
    const struct kind *kind = kinds, *end = kinds + sizeof kinds / sizeof *kinds;
    while (kind < end && (strlen(kind->name) != length || memcmp(kind->name, specification, length) != 0))
        kind++;
    if (kind == end)
        return fl_fail(TENSOR_E_ARGUMENT, "unknown data set '%s': %s", specification, expected);
    if (kind->open_splits)
        return kind->open_splits(sets, wanted, rest);
    tensor_status status = TENSOR_OK;
    for (int split = 0; split < 2 && !status; split++)
        if (wanted[split])
            status = kind->open(&sets[split], rest, (data_split)split);
    if (status)
        data_free(sets[0]);
    return status;
}

data_set *data_open(const char *specification, data_split split) {
    if (!specification) {
        fl_fail(TENSOR_E_ARGUMENT, "data_open: the specification is NULL, %s", expected);
        return NULL;
    }
    if (split != DATA_TRAIN && split != DATA_TEST) {
        fl_fail(TENSOR_E_ARGUMENT, "data_open: split %d, expected DATA_TRAIN (0) or DATA_TEST (1)", (int)split);
        return NULL;
    }
    data_set *sets[2] = {NULL, NULL};
    return open_splits(sets, (const bool[]){split == DATA_TRAIN, split == DATA_TEST}, specification) ? NULL
                                                                                                     : sets[split];
}

tensor_status data_open_splits(data_set **train, data_set **test, const char *specification) {
    if (!specification || !train || !test)
        return fl_fail(TENSOR_E_ARGUMENT, "data_open_splits: the specification, train or test is NULL");
    data_set *sets[2] = {NULL, NULL};
    const tensor_status status = open_splits(sets, (const bool[]){true, true}, specification);
    if (status)
        return status;
    *train = sets[DATA_TRAIN];
    *test = sets[DATA_TEST];
    return TENSOR_OK;
}
