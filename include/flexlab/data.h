/* data.h - labelled images and texts for training: readers, the generated default set, and batches prepared on another
 * thread. */
#ifndef FLEXLAB_DATA_H
#define FLEXLAB_DATA_H

#include "flexlab/api.h"
#include "flexlab/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_set data_set;
typedef enum data_split { DATA_TRAIN = 0, DATA_TEST = 1 } data_split;

/* Opens one split of a data set, wholly into memory. Specifications:
 *   synthetic[:train=N][,test=N][,seed=S]  generated 10-class 32x32 colour images (default 20000 and 4000)
 *   cifar10:DIR     data_batch_1..5.bin and test_batch.bin of CIFAR-10, binary version
 *   cifar100:DIR[,labels=fine|coarse]  train.bin and test.bin of CIFAR-100, binary version: 100 classes, or 20 coarse
 *   idx:DIR         train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...; each plain or with .gz
 *   npy:IMAGES,LABELS[,TEST_IMAGES,TEST_LABELS][,classes=N]  arrays of NumPy: uint8 [N, H, W] or [N, H, W, C], and
 *                   integers [N] or [N, 1]
 *   npz:FILE[,TEST_FILE][,classes=N]  the same in an archive, as members x_train, y_train, x_test, y_test; or
 *                   train_images, train_labels, ...; or, of one split, images, labels; x, y; arr_0, arr_1
 *   images:DIR[,resize=HxW][,channels=N]  PNG and JPEG files, by train and test, then by class, in folders
 *   text:FILE[,TEST_FILE][,unit=bytes|characters][,test=PERCENT]  a text, a sequence of tokens; without TEST_FILE its
 *                   last 10 percent are the test split
 * What a layout is in detail, and its limits: docs/data.md. In those with commas a path holds none.
 * Files are regular ones, or links to such: a FIFO, a folder, a device or a socket is refused, not waited for. Failures
 * name the file, and the size or value found and expected. NULL on failure, with tensor_error() set and its status in
 * tensor_error_status(). */
FLEXLAB_API data_set *data_open(const char *specification, data_split split);
/* Both splits, or neither, on failure. Files that hold what both need are read once. */
FLEXLAB_API tensor_status data_open_splits(data_set **train, data_set **test, const char *specification);
/* A set of images [count, height, width, channels] and labels (0 to classes - 1) from arrays, which are copied. At most
 * 4 channels, 4096 pixels a side, 2 to 65536 classes. NULL on failure, with the value in tensor_error(). */
FLEXLAB_API data_set *data_new(const uint8_t *images, const int32_t *labels, int64_t count, int height, int width,
                               int channels, int classes);

/* A text is a set whose samples are tokens: data_count tokens of a vocabulary of data_classes, token i by data_label;
 * height, width and channels are 0, and there are no images. Tokens are bytes, a vocabulary of 256, or the different
 * characters of a text in UTF-8 in the order of their code points, at most 65536 and counted as at least 2. */
typedef enum data_unit { DATA_BYTES = 0, DATA_CHARACTERS = 1 } data_unit;
/* A text from memory, which is copied: `bytes` of it, at least one. With a `vocabulary`, a text of characters, tokens
 * are numbered as there, and a character that it lacks is an error; NULL: the text's own. NULL on failure: what is not
 * UTF-8 in a text of characters is named by its byte. */
FLEXLAB_API data_set *data_new_text(const char *text, int64_t bytes, data_unit unit, const data_set *vocabulary);
/* A text whose tokens the caller has made, 0 to vocabulary - 1; vocabulary is 2 to 65536. */
FLEXLAB_API data_set *data_new_tokens(const int32_t *tokens, int64_t count, int vocabulary);
/* Whether it is a text, whose samples are tokens; otherwise images. */
FLEXLAB_API bool data_is_text(const data_set *set);
/* The byte or code point of a token, and the token of a byte or code point; -1 where there is none. */
FLEXLAB_API int32_t data_character(const data_set *set, int token);
FLEXLAB_API int data_token(const data_set *set, int32_t character);
/* A hash of what all tokens of a text stand for, the same in every version: a network reads texts of one vocabulary. Of
 * tokens without characters and of images, of their number alone. */
FLEXLAB_API uint64_t data_vocabulary(const data_set *set);

/* A hash of the pixels of all images and, if labels, of their labels: whether two sets are the same, in the same order.
 * Of a text, of its tokens. The same in every version; 0 for NULL. */
FLEXLAB_API uint64_t data_hash(const data_set *set, bool labels);

/* NULL is allowed. No loader of the set may be alive. */
FLEXLAB_API void data_free(data_set *set);

/* Images, or tokens, in the split; then their height, width and channels, and the classes that labels count from 0: 10,
 * 100 or 20 of CIFAR, the folders of training (at least 2), or for IDX, and for arrays without classes=N, one more than
 * the largest label of this split, at least 2. */
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
FLEXLAB_API tensor_status data_channel_moments(double *mean, double *deviation, const data_set *set);

/* What each of the 256 values of a pixel becomes: values[c * 256 + v] = (v / 255 - mean[c]) / deviation[c], in double,
 * rounded once to float. The same numbers as in a loader's images. values has 256 entries a channel. */
FLEXLAB_API void data_pixel_values(float *values, int channels, const double *mean, const double *deviation);

typedef struct data_loader data_loader;

/* A batch of a text has windows: `context` tokens each, and as targets the tokens that follow each of them. Window w
 * of an epoch begins at token w * context, behind an offset that `augment` draws: each token is a target once, but for
 * those at the ends that fill no window. Of n tokens there are (n - 1) / context windows, rounded down; with an offset
 * (n - context) / context, as many as every offset leaves. */
typedef struct data_loader_config {
    int batch;          /* images, or windows, a batch */
    uint64_t seed;      /* keys shuffling and augmentation; the same seed gives the same batches */
    bool shuffle;       /* a new order each epoch */
    bool augment;       /* pad-4 random crop and horizontal flip, keyed by (seed, epoch, image index); of a text: an
                         * offset from 0 to context - 1 of all windows, keyed by (seed, epoch) */
    bool drop_last;     /* leave out an incomplete last batch; otherwise it is delivered short */
    const double *mean; /* per channel, subtracted from pixel/255; */
    const double *deviation; /* per channel, divides. Both NULL: pixels alone, no images; for a text they are */
    bool indices_only;       /* images: indices and labels alone, the pixels lie elsewhere (nn_data) */
    int context;             /* text: tokens of a window, at least 1. Images: 0 */
    int streams;             /* text, not 0, without shuffle: row b of a batch goes on where row b of the batch
                              * before ended, so that a state may be carried on; whole batches alone */
} data_loader_config;

/* Starts the thread that prepares batches two ahead. The set must outlive the loader. NULL on failure.
 * In the child of a fork its functions give TENSOR_E_ARGUMENT; data_loader_free frees its memory there. */
FLEXLAB_API data_loader *data_loader_new(const data_set *set, const data_loader_config *config);
/* Ends the thread first. NULL is allowed. */
FLEXLAB_API void data_loader_free(data_loader *loader);
/* Batches of one epoch. */
FLEXLAB_API int64_t data_loader_batches(const data_loader *loader);
/* Begins epoch `epoch` (0, 1, ...): may be called at any time, in any order; batches depend on the number alone. */
FLEXLAB_API tensor_status data_loader_start(data_loader *loader, int epoch);

/* The same, and the next batch is number `batch` (from 0; data_loader_batches: the epoch is over): where a run goes on
 * that stopped there. */
FLEXLAB_API tensor_status data_loader_seek(data_loader *loader, int epoch, int64_t batch);
/* The epoch, and the number of the batch that data_loader_next would give. TENSOR_E_ARGUMENT before the first start. */
FLEXLAB_API tensor_status data_loader_position(int *epoch, int64_t *batch, data_loader *loader);

typedef struct data_batch {
    const float *images;    /* [count, H, W, C], normalised */
    const int32_t *labels;  /* [count] */
    const int64_t *indices; /* [count], positions in the set: of a window, that of its first token */
    int count;              /* 0 after the last batch of the epoch */
    const uint8_t *pixels;  /* [count, H, W, C], before normalisation; NULL for indices_only */
    const int32_t *tokens;  /* of a text: [count, context]; all above but indices and count are NULL then */
    const int32_t *targets; /* [count, context]: the token after each */
} data_batch;
/* The next batch, valid until the next call on this loader. */
FLEXLAB_API tensor_status data_loader_next(data_batch *batch, data_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
