/* data_picture.c - chooses the decoder of a file, checks the picture for both, and converts it to the form of a set. */
#include "data/data_picture.h"
#include "core/base/memory.h"
#include "data/data_internal.h"
#include <string.h>

tensor_status fl_picture_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                                struct fl_data_problem *p) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, jpeg[] = {0xFF, 0xD8, 0xFF};
    if (bytes >= sizeof png && !memcmp(file, png, sizeof png))
        return fl_png_decode(picture, file, bytes, path, p);
    if (bytes >= sizeof jpeg && !memcmp(file, jpeg, sizeof jpeg))
        return fl_jpeg_decode(picture, file, bytes, path, p);
    return fl_data_note(p, TENSOR_E_DATA, "images: %s begins neither as a PNG nor as a JPEG", path);
}

void fl_picture_free(struct fl_picture *picture) {
    fl_free(picture->pixels);
    *picture = (struct fl_picture){0};
}

tensor_status fl_picture_size(struct fl_picture *picture, int64_t width, int64_t height, const char *path,
                              struct fl_data_problem *p) {
    if (width < 1 || height < 1 || width > FL_DATA_MAX_SIDE || height > FL_DATA_MAX_SIDE)
        return fl_data_note(p, TENSOR_E_DATA, "images: %s is %lldx%lld, expected 1x1 to %dx%d", path, (long long)height,
                            (long long)width, FL_DATA_MAX_SIDE, FL_DATA_MAX_SIDE);
    picture->width = (int)width;
    picture->height = (int)height;
    return TENSOR_OK;
}

tensor_status fl_picture_room(struct fl_picture *picture, int channels, const char *path, struct fl_data_problem *p) {
    const size_t bytes = (size_t)picture->width * (size_t)picture->height * (size_t)channels;
    picture->channels = channels;
    if (bytes <= picture->room)
        return TENSOR_OK;
    fl_free(picture->pixels);
    picture->pixels = fl_alloc(bytes);
    picture->room = picture->pixels ? bytes : 0;
    return picture->pixels
               ? TENSOR_OK
               : fl_data_note(p, TENSOR_E_MEMORY, "images: no memory for the %zu bytes of %s, decoded", bytes, path);
}

/* --- channels ------------------------------------------------------------------------------------------------------
 */

/* Converts a row of pixels of `from` channels to `to` channels. */
static void convert_row(uint8_t *out, int to, const uint8_t *in, int from, int width) {
    if (from == to) {
        memcpy(out, in, (size_t)width * (size_t)to);
        return;
    }
    for (int x = 0; x < width; x++, in += from, out += to) {
        if (to >= 3)
            for (int c = 0; c < 3; c++)
                out[c] = in[from >= 3 ? c : 0];
        else
            out[0] = from >= 3 ? (uint8_t)((299 * in[0] + 587 * in[1] + 114 * in[2] + 500) / 1000) : in[0];
        if (to % 2 == 0)
            out[to - 1] = from % 2 == 0 ? in[from - 1] : 255;
    }
}

/* --- size ----------------------------------------------------------------------------------------------------------
 */

struct line {
    uint32_t *column, *area; /* for each element of a row of the result: sums over one row, and over its whole area */
    uint8_t *row;            /* of the picture, converted */
};

size_t fl_picture_line_bytes(const struct fl_picture *picture, int width, int channels) {
    return (size_t)width * (size_t)channels * 2 * sizeof(uint32_t) + (size_t)picture->width * (size_t)channels;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Column x of the picture covers x * width to (x + 1) * width, in units of which `columns` make a column of the result.
 */
static void sum_row(const struct line *l, int columns, int width, int channels) {
    memset(l->column, 0, (size_t)width * (size_t)channels * sizeof *l->column);
    for (int x = 0; x < columns; x++) {
        const int64_t begin = (int64_t)x * width, end = begin + width;
        for (int64_t i = begin / columns, at = begin; at < end; i++) {
            const int64_t next = least(end, (i + 1) * columns);
            for (int c = 0; c < channels; c++)
                l->column[i * channels + c] += (uint32_t)(next - at) * l->row[x * channels + c];
            at = next;
        }
    }
}

static void resize(const struct fl_picture *picture, uint8_t *out, int height, int width, int channels,
                   const struct line *l) {
    const int elements = width * channels;
    const uint64_t area = (uint64_t)picture->height * (uint64_t)picture->width;
    memset(l->area, 0, (size_t)elements * sizeof *l->area);
    for (int y = 0; y < picture->height; y++) {
        convert_row(l->row, channels, picture->pixels + (size_t)y * (size_t)picture->width * (size_t)picture->channels,
                    picture->channels, picture->width);
        sum_row(l, picture->width, width, channels);
        const int64_t begin = (int64_t)y * height, end = begin + height;
        for (int64_t j = begin / picture->height, at = begin; at < end; j++) {
            const int64_t next = least(end, (j + 1) * picture->height);
            for (int i = 0; i < elements; i++)
                l->area[i] += (uint32_t)(next - at) * l->column[i]; /* at most 255 * 4096 * 4096 */
            for (int i = 0; i < elements && next == (j + 1) * picture->height; i++) {
                out[j * elements + i] = (uint8_t)((l->area[i] + area / 2) / area);
                l->area[i] = 0;
            }
            at = next;
        }
    }
}

void fl_picture_store(const struct fl_picture *picture, uint8_t *out, int height, int width, int channels, void *line) {
    const size_t elements = (size_t)width * (size_t)channels;
    if (picture->height == height && picture->width == width) {
        convert_row(out, channels, picture->pixels, picture->channels, width * height);
        return;
    }
    uint32_t *sums = line;
    resize(picture, out, height, width, channels,
           &(struct line){sums, sums + elements, (uint8_t *)(sums + 2 * elements)});
}
