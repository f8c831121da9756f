/* data.h - labelled images for training: readers, the generated default set, and batches prepared on another thread. */
#ifndef FLEXLAB_DATA_H
#define FLEXLAB_DATA_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_set data_set;
typedef enum data_split { DATA_TRAIN = 0, DATA_TEST = 1 } data_split;

/* Opens one split of a data set, wholly into memory. Specifications:
 *   synthetic[:train=N][,test=N][,seed=S]  generated 10-class 32x32 colour images (default 20000 and 4000)
 *   cifar10:DIR     data_batch_1..5.bin and test_batch.bin of CIFAR-10, binary version
 *   idx:DIR         train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...; each plain or with .gz
 * Files are regular ones, or links to such: a FIFO, a folder, a device or a socket is refused, not waited for. Failures
 * name the file, and the size or value found and expected. NULL on failure, with tensor_error() set and its status in
 * tensor_error_status(). */
FLEXLAB_API data_set *data_open(const char *specification, data_split split);
FLEXLAB_API void data_free(data_set *set);

/* Images in the split; then their height, width and channels, and the classes that labels count from 0: ten, or for IDX
 * one more than the largest label of this split, at least 2. */
FLEXLAB_API int64_t data_count(const data_set *set);
FLEXLAB_API int data_height(const data_set *set);
FLEXLAB_API int data_width(const data_set *set);
FLEXLAB_API int data_channels(const data_set *set);
FLEXLAB_API int data_classes(const data_set *set);
/* Keeps only the first n samples (n in 1 ... count). */
FLEXLAB_API tensor_status data_limit(data_set *set, int64_t n);
/* One image, uint8 [H, W, C]; its label. NULL and -1 when i is out of range. */
FLEXLAB_API const uint8_t *data_image(const data_set *set, int64_t i);
FLEXLAB_API int data_label(const data_set *set, int64_t i);
/* Mean and standard deviation of each channel, of pixels divided by 255; exact integer sums, then double. */
FLEXLAB_API tensor_status data_channel_moments(const data_set *set, double *mean, double *deviation);

typedef struct data_loader data_loader;

typedef struct data_loader_config {
    int batch;               /* images a batch */
    uint64_t seed;           /* keys shuffling and augmentation; the same seed gives the same batches */
    bool shuffle;            /* a new order each epoch */
    bool augment;            /* pad-4 random crop and horizontal flip, keyed by (seed, epoch, image index) */
    bool drop_last;          /* leave out an incomplete last batch; otherwise it is delivered short */
    const double *mean;      /* per channel, subtracted from pixel/255 */
    const double *deviation; /* per channel, divides */
} data_loader_config;

/* Starts the thread that prepares batches two ahead. The set must outlive the loader. NULL on failure.
 * In the child of a fork its functions give TENSOR_E_ARGUMENT; data_loader_free frees its memory there. */
FLEXLAB_API data_loader *data_loader_new(const data_set *set, const data_loader_config *config);
FLEXLAB_API void data_loader_free(data_loader *loader);
/* Batches of one epoch. */
FLEXLAB_API int64_t data_loader_batches(const data_loader *loader);
/* Begins epoch `epoch` (0, 1, ...): may be called at any time, in any order; batches depend on the number alone. */
FLEXLAB_API tensor_status data_loader_start(data_loader *loader, int epoch);

typedef struct data_batch {
    const float *images;    /* [count, H, W, C], normalised */
    const int32_t *labels;  /* [count] */
    const int64_t *indices; /* [count], positions in the set */
    int count;              /* 0 after the last batch of the epoch */
} data_batch;
/* The next batch, valid until the next call on this loader. */
FLEXLAB_API tensor_status data_loader_next(data_loader *loader, data_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
