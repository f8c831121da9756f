/* data_png.c - PNG (ISO/IEC 15948) by libpng: decodes any kind of image to 8 bits per sample: palettes to colours,
 * fewer bits scaled up, 16 bits scaled down and rounded, transparency to alpha. Values are those stored: no gamma, no
 * profile. Without libpng every file fails with a message. */
#include "core/base/memory.h"
#include "data/data_picture.h"
#include <string.h>

#ifdef FL_HAVE_PNG
#include <png.h>
#include <stdbool.h>

enum { HEADER = 8 + 8 + 13 + 4 }; /* signature and the first chunk */
/* Deflate makes at most 258 bytes of two bits. */
enum { DEFLATE_RATIO = 1032 };

/* One decoding; variables that must survive a longjmp are outside the function that it returns to. */
struct decoder {
    struct fl_picture *picture;
    const uint8_t *at, *end; /* of the file */
    const char *path;
    struct fl_data_problem *problem;
    png_structp png;
    png_infop info;
    bool indexed; /* pixels are numbers of a palette */
    int passes;   /* over the rows: several if they are interlaced */
};

static png_voidp allocate(png_structp png, png_alloc_size_t bytes) {
    (void)png;
    return fl_alloc(bytes);
}

static void release(png_structp png, png_voidp block) {
    (void)png;
    fl_free(block);
}

static void on_error(png_structp png, png_const_charp why) {
    struct decoder *d = png_get_error_ptr(png);
    if (!d->problem->status)
        fl_data_note(d->problem, strstr(why, "emory") ? TENSOR_E_MEMORY : TENSOR_E_DATA,
                     "images: %s is a corrupt PNG: %s", d->path, why);
    png_longjmp(png, 1);
}

/* Ignores warnings, which concern chunks that are not used. */
static void on_warning(png_structp png, png_const_charp why) {
    (void)png, (void)why;
}

static void read_bytes(png_structp png, png_bytep to, size_t bytes) {
    struct decoder *d = png_get_io_ptr(png);
    if ((size_t)(d->end - d->at) < bytes)
        png_error(png, "it is truncated");
    memcpy(to, d->at, bytes);
    d->at += bytes;
}

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Checks the declared sizes before the library reads them: within the limits, and possible for the length of the file.
 */
static tensor_status check_header(struct decoder *d) {
    const uint8_t *file = d->at;
    static const int samples[] = {1, 0, 3, 1, 2, 0, 4}; /* by colour type */
    if (d->end - d->at < HEADER || big_endian(file + 8) != 13 || memcmp(file + 12, "IHDR", 4) != 0)
        return fl_data_note(d->problem, TENSOR_E_DATA, "images: %s is a corrupt PNG: it has no header", d->path);
    const uint32_t width = big_endian(file + 16), height = big_endian(file + 20);
    const int depth = file[24], type = file[25];
    const tensor_status status = fl_picture_size(d->picture, width, height, d->path, d->problem);
    if (status)
        return status;
    const int64_t bits = (int64_t)width * depth * (type < 7 ? samples[type] : 0), bytes = height * ((bits + 7) / 8 + 1),
                  most = (d->end - d->at) * DEFLATE_RATIO;
    if (bytes > most)
        return fl_data_note(d->problem, TENSOR_E_DATA,
                            "images: %s is a corrupt PNG: %ux%u, which a file of %lld bytes cannot contain", d->path,
                            height, width, (long long)(d->end - d->at));
    return TENSOR_OK;
}

/* Makes libpng skip all chunks but the image and its transparency. */
static void skip_chunks(png_structp png) {
    static const png_byte chunks[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0"
                                     "sRGB\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, chunks, sizeof chunks / 5);
}

static void set_up(struct decoder *d) {
    png_structp png = d->png;
    png_set_benign_errors(png, 0);
    png_set_read_fn(png, d, read_bytes);
    skip_chunks(png);
    png_read_info(png, d->info);
    d->indexed = png_get_color_type(png, d->info) == PNG_COLOR_TYPE_PALETTE;
    if (d->indexed)
        png_set_packing(png); /* one number per byte */
    else
        png_set_expand(png);
    png_set_scale_16(png);
    d->passes = png_set_interlace_handling(png);
    png_read_update_info(png, d->info);
}

/* Replaces numbers of a palette, in the last bytes of the picture's memory, by colours; each is read before it is
 * overwritten. */
static void look_up_colours(struct decoder *d, const uint8_t *number) {
    png_colorp palette = NULL;
    png_bytep alpha = NULL;
    int colours = 0, alphas = 0;
    const int channels = d->picture->channels;
    const size_t pixels = (size_t)d->picture->width * (size_t)d->picture->height;
    (void)png_get_PLTE(d->png, d->info, &palette, &colours);
    (void)png_get_tRNS(d->png, d->info, &alpha, &alphas, NULL);
    uint8_t *out = d->picture->pixels;
    for (size_t i = 0; i < pixels; i++, out += channels) {
        const int n = number[i];
        if (n >= colours)
            png_error(d->png, "a pixel has a colour past the palette");
        out[0] = palette[n].red;
        out[1] = palette[n].green;
        out[2] = palette[n].blue;
        if (channels == 4)
            out[3] = n < alphas ? alpha[n] : 255;
    }
}

static void read_rows(struct decoder *d) {
    const bool alpha = d->indexed && png_get_valid(d->png, d->info, PNG_INFO_tRNS);
    const int stored = png_get_channels(d->png, d->info), channels = d->indexed ? 3 + alpha : stored;
    const size_t row = (size_t)d->picture->width * (size_t)stored, height = (size_t)d->picture->height;
    if (png_get_image_width(d->png, d->info) != (png_uint_32)d->picture->width ||
        png_get_image_height(d->png, d->info) != (png_uint_32)d->picture->height || channels < 1 || channels > 4 ||
        png_get_rowbytes(d->png, d->info) != row)
        png_error(d->png, "its header contradicts itself");
    if (fl_picture_room(d->picture, channels, d->path, d->problem))
        return;
    uint8_t *rows = d->picture->pixels + height * (size_t)d->picture->width * (size_t)(channels - stored);
    for (int pass = 0; pass < d->passes; pass++)
        for (size_t y = 0; y < height; y++)
            png_read_row(d->png, rows + y * row, NULL);
    if (d->indexed)
        look_up_colours(d, rows);
    png_read_end(d->png, NULL);
}

/* Returns after a failure too, by longjmp; the failure is in the problem. */
static void decode(struct decoder *d) {
    if (setjmp(png_jmpbuf(d->png)))
        return;
    set_up(d);
    read_rows(d);
}

tensor_status fl_png_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                            struct fl_data_problem *p) {
    struct decoder d = {.picture = picture, .at = file, .end = file + bytes, .path = path, .problem = p};
    p->status = TENSOR_OK;
    if (check_header(&d))
        return p->status;
    d.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning, NULL, allocate, release);
    if (d.png)
        d.info = png_create_info_struct(d.png);
    if (d.png && d.info)
        decode(&d);
    else if (!p->status)
        fl_data_note(p, TENSOR_E_MEMORY, "images: no memory to decode %s", path);
    if (d.png)
        png_destroy_read_struct(&d.png, &d.info, NULL);
    return p->status;
}

#else

tensor_status fl_png_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                            struct fl_data_problem *p) {
    (void)picture, (void)file, (void)bytes;
    return fl_data_note(p, TENSOR_E_UNSUPPORTED,
                        "images: %s is a PNG, and this library was built without libpng (apt-get install libpng-dev, "
                        "then build it again)",
                        path);
}

#endif
