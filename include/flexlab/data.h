/* data.h - labelled images and texts for training: readers, the generated default set, and a loader that prepares
 * batches on another thread. */
#ifndef FLEXLAB_DATA_H
#define FLEXLAB_DATA_H

#include "flexlab/api.h"
#include "flexlab/program.h"
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
 *   images:DIR[,resize=HxW][,channels=N]  PNG and JPEG files in folders: by train and test, then by class
 *   text:FILE[,TEST_FILE][,unit=bytes|characters][,test=PERCENT]  a text, a sequence of tokens; without TEST_FILE its
 *                   last 10 percent are the test split
 * docs/data.md describes each layout in detail, and its limits. A path in a specification with commas contains no
 * comma. Files are regular ones, or links to such: a FIFO, a folder, a device or a socket is refused, not waited for.
 * Failures name the file, and the size or value found and expected. NULL on failure, with tensor_error() set and its
 * status in tensor_error_status(). */
FLEXLAB_API data_set *data_open(const char *specification, data_split split);
/* Opens both splits; on failure neither. Files that contain both are read once. */
FLEXLAB_API tensor_status data_open_splits(data_set **train, data_set **test, const char *specification);
/* A set of images [count, height, width, channels] and labels (0 to classes - 1) from arrays, which are copied. At most
 * 4 channels and 4096 pixels per side, 2 to 65536 classes. NULL on failure, with the value in tensor_error(). */
FLEXLAB_API data_set *data_new(const uint8_t *images, const int32_t *labels, int64_t count, int height, int width,
                               int channels, int classes);

/* A text is a set whose samples are tokens: data_count tokens of a vocabulary of data_classes, token i by data_label;
 * height, width and channels are 0, and there are no images. Tokens are bytes, a vocabulary of 256, or the different
 * characters of a text in UTF-8 in the order of their code points, at most 65536 and counted as at least 2. */
typedef enum data_unit { DATA_BYTES = 0, DATA_CHARACTERS = 1 } data_unit;
/* A text from memory, which is copied: `bytes` bytes, at least one. With a `vocabulary`, which is a text of characters,
 * tokens have the numbers that they have there, and a character that it lacks is an error; NULL: the text's own
 * vocabulary. NULL on failure; for a text of characters the message gives the position of a byte that is not UTF-8. */
FLEXLAB_API data_set *data_new_text(const char *text, int64_t bytes, data_unit unit, const data_set *vocabulary);
/* A text from tokens of the caller's, 0 to vocabulary - 1; vocabulary is 2 to 65536. */
FLEXLAB_API data_set *data_new_tokens(const int32_t *tokens, int64_t count, int vocabulary);
/* True for a text, whose samples are tokens; false for images. */
FLEXLAB_API bool data_is_text(const data_set *set);
/* The byte or code point of a token, and the token of a byte or code point; -1 where there is none. */
FLEXLAB_API int32_t data_character(const data_set *set, int token);
FLEXLAB_API int data_token(const data_set *set, int32_t character);
/* A hash of the characters that all tokens of a text stand for, the same in every version: a network reads texts of one
 * vocabulary. For tokens without characters, and for images, a hash of their number only. */
FLEXLAB_API uint64_t data_vocabulary(const data_set *set);

/* A hash of the pixels of all images and, if labels is true, of their labels; for a text, of its tokens. Equal sets in
 * the same order have the same hash. The same in every version; 0 for NULL. */
FLEXLAB_API uint64_t data_hash(const data_set *set, bool labels);

/* Frees the set. No loader of it may exist. NULL is allowed. */
FLEXLAB_API void data_free(data_set *set);

/* data_count: images, or tokens, in the split. data_height, data_width, data_channels: of its images. data_classes: the
 * classes that labels number from 0: 10, 100 or 20 for CIFAR, the folders of the training split (at least 2) for
 * images, and for IDX, and arrays without classes=N, one more than the largest label of this split, at least 2. */
FLEXLAB_API int64_t data_count(const data_set *set);
FLEXLAB_API int data_height(const data_set *set);
FLEXLAB_API int data_width(const data_set *set);
FLEXLAB_API int data_channels(const data_set *set);
FLEXLAB_API int data_classes(const data_set *set);
/* Reduces the set to its first n samples (n in 1 ... count). */
FLEXLAB_API tensor_status data_limit(data_set *set, int64_t n);
/* One image, uint8 [H, W, C]; its label. NULL and -1 when i is out of range. */
FLEXLAB_API const uint8_t *data_image(const data_set *set, int64_t i);
FLEXLAB_API int data_label(const data_set *set, int64_t i);
/* Mean and standard deviation of each channel, of pixels divided by 255; exact integer sums, then double. */
FLEXLAB_API tensor_status data_channel_moments(double *mean, double *deviation, const data_set *set);

/* Computes the number for each of the 256 values of a pixel: values[c * 256 + v] = (v / 255 - mean[c]) / deviation[c],
 * in double, rounded once to float, as in a loader's images. values has 256 entries for each channel. */
FLEXLAB_API void data_pixel_values(float *values, int channels, const double *mean, const double *deviation);

typedef struct data_loader data_loader;

/* A batch of a text consists of excerpts of `context` tokens, with the token that follows each as its target. Excerpt w
 * of an epoch begins at token w * context, after an offset that `augment` draws: each token is a target once, except
 * those at the ends that fill no excerpt. n tokens give (n - 1) / context excerpts, rounded down; with an offset (n -
 * context) / context, the number that every offset allows. */
typedef struct data_loader_config {
    int batch;      /* images, or excerpts, per batch */
    uint64_t seed;  /* keys shuffling and augmentation; the same seed gives the same batches */
    bool shuffle;   /* a new order each epoch */
    bool augment;   /* pad-4 random crop and horizontal flip, keyed by (seed, epoch, image index); for a text: an offset
                       from 0 to context - 1 of all excerpts, keyed by (seed, epoch) */
    bool drop_last; /* omit an incomplete last batch; otherwise it is delivered short */
    const double *mean;      /* per channel, subtracted from pixel/255; */
    const double *deviation; /* per channel, divides. Both NULL: pixels only, no images; for a text they are NULL */
    bool indices_only;       /* images: indices and labels only, if the pixels are elsewhere (nn_data) */
    int context;             /* text: tokens of an excerpt, at least 1. Images: 0 */
    int streams; /* text, without shuffle: if not 0, row b of a batch continues where row b of the batch before ended,
                    so that a state can be carried over; whole batches only */
} data_loader_config;

/* Starts the thread that prepares up to two batches ahead. The set must outlive the loader. NULL on failure. In the
 * child of a fork its functions return TENSOR_E_ARGUMENT; data_loader_free frees its memory there. */
FLEXLAB_API data_loader *data_loader_new(const data_set *set, const data_loader_config *config);
/* Ends the thread first. NULL is allowed. */
FLEXLAB_API void data_loader_free(data_loader *loader);
/* The number of batches in one epoch. */
FLEXLAB_API int64_t data_loader_batches(const data_loader *loader);
/* Begins epoch `epoch` (0, 1, ...), at any time and in any order; its batches depend on this number only. */
FLEXLAB_API tensor_status data_loader_start(data_loader *loader, int epoch);

/* Begins an epoch at batch `batch` (from 0; data_loader_batches: the epoch is over): so a run resumes where it
 * stopped. */
FLEXLAB_API tensor_status data_loader_seek(data_loader *loader, int epoch, int64_t batch);
/* The epoch, and the number of the batch that data_loader_next would return. TENSOR_E_ARGUMENT before the first
 * start. */
FLEXLAB_API tensor_status data_loader_position(int *epoch, int64_t *batch, data_loader *loader);

typedef struct data_batch {
    const float *images;    /* [count, H, W, C], normalised */
    const int32_t *labels;  /* [count] */
    const int64_t *indices; /* [count], positions in the set; for an excerpt, that of its first token */
    int count;              /* 0 after the last batch of the epoch */
    const uint8_t *pixels;  /* [count, H, W, C], before normalisation; NULL for indices_only */
    const int32_t *tokens;  /* for a text: [count, context]; all above except indices and count are then NULL */
    const int32_t *targets; /* [count, context]: the token after each */
} data_batch;
/* The next batch, valid until the next call on this loader. */
FLEXLAB_API tensor_status data_loader_next(data_batch *batch, data_loader *loader);

/* Reads an array of numbers from a file of NumPy, in row-major order whatever the file's order is: float16, float32,
 * float64, integers of 8 to 64 bits or bool, of up to 8 dimensions. member NULL: a file .npy; else an archive .npz, of
 * which that member is read, named without ".npy"; TENSOR_E_ARGUMENT if it has no such member. array->data is freed by
 * data_array_free; after a failure it is NULL. */
FLEXLAB_API tensor_status data_array_read(program_array *array, const char *path, const char *member);
/* Frees the numbers of an array that data_array_read has read; data is then NULL. */
FLEXLAB_API void data_array_free(program_array *array);

#ifdef __cplusplus
}
#endif
#endif
