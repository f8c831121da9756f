/* data_jpeg.c - JPEG (ITU-T T.81) by libjpeg or libjpeg-turbo, sequential and progressive, grey and colour, with the
 * accurate integer transform. Its warnings, of a corrupt or truncated file, are failures here. Without the library
 * every file fails with a message. */
#include "data/data_picture.h"

#ifdef FL_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h expects it */
#include <jerror.h>
#include <jpeglib.h>

/* A block of 64 pixels takes at least one bit in Huffman coding. */
enum { MOST_PIXELS_A_BYTE = 8 * 64 };
/* Usual files have about ten. Each scan processes the whole image, however few bytes it has. */
enum { MOST_SCANS = 100 };

/* One decoding; variables that must survive a longjmp are outside the function that it returns to. */
struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    struct fl_picture *picture;
    const uint8_t *file;
    size_t bytes;
    const char *path;
    struct fl_data_problem *problem;
};

/* Handles errors and warnings. */
static void on_error(j_common_ptr common) {
    struct decoder *d = common->client_data;
    char why[JMSG_LENGTH_MAX];
    d->errors.format_message(common, why);
    if (!d->problem->status)
        fl_data_note(d->problem, d->errors.msg_code == JERR_OUT_OF_MEMORY ? TENSOR_E_MEMORY : TENSOR_E_DATA,
                     "images: %s is a corrupt JPEG: %s", d->path, why);
    longjmp(d->back, 1);
}

static void on_message(j_common_ptr common, int level) {
    if (level < 0)
        on_error(common);
}

static void on_progress(j_common_ptr common) {
    struct decoder *d = common->client_data;
    if (d->jpeg.input_scan_number > MOST_SCANS) {
        fl_data_note(d->problem, TENSOR_E_DATA, "images: %s is a JPEG of more than %d scans", d->path, MOST_SCANS);
        longjmp(d->back, 1);
    }
}

static tensor_status refuse(struct decoder *d, const char *what) {
    return fl_data_note(d->problem, TENSOR_E_DATA, "images: %s is a JPEG %s", d->path, what);
}

/* Checks the declared size before it is allocated. */
static tensor_status check_header(struct decoder *d) {
    const struct jpeg_decompress_struct *jpeg = &d->jpeg;
    const tensor_status status =
        fl_picture_size(d->picture, jpeg->image_width, jpeg->image_height, d->path, d->problem);
    if (status)
        return status;
    if (jpeg->data_precision != 8)
        return refuse(d, "whose samples do not have 8 bits");
    if (jpeg->arith_code)
        return refuse(d, "in arithmetic coding, which is not read");
    if (jpeg->jpeg_color_space != JCS_GRAYSCALE && jpeg->jpeg_color_space != JCS_YCbCr &&
        jpeg->jpeg_color_space != JCS_RGB)
        return refuse(d, "in CMYK or another colour space, expected grey, YCbCr or RGB");
    if ((int64_t)d->picture->width * d->picture->height > (int64_t)d->bytes * MOST_PIXELS_A_BYTE)
        return fl_data_note(d->problem, TENSOR_E_DATA,
                            "images: %s is a corrupt JPEG: %dx%d, which a file of %zu bytes cannot contain", d->path,
                            d->picture->height, d->picture->width, d->bytes);
    return TENSOR_OK;
}

static void decode(struct decoder *d) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg_create_decompress(jpeg); /* does not change err and client_data */
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, (unsigned char *)(uintptr_t)d->file, (unsigned long)d->bytes);
    (void)jpeg_read_header(jpeg, TRUE);
    if (check_header(d))
        return;
    const int channels = jpeg->jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    if (fl_picture_room(d->picture, channels, d->path, d->problem))
        return;
    jpeg->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_block_smoothing = FALSE; /* it would smooth over missing data of a progressive file */
    (void)jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *row =
            d->picture->pixels + (size_t)jpeg->output_scanline * (size_t)d->picture->width * (size_t)channels;
        (void)jpeg_read_scanlines(jpeg, &row, 1);
    }
    (void)jpeg_finish_decompress(jpeg);
}

/* A failure returns here; it is in the problem. */
static void try_to_decode(struct decoder *d) {
    if (!setjmp(d->back))
        decode(d);
}

tensor_status fl_jpeg_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                             struct fl_data_problem *p) {
    struct decoder d = {.picture = picture, .file = file, .bytes = bytes, .path = path, .problem = p};
    p->status = TENSOR_OK;
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.jpeg.client_data = &d;
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.progress.progress_monitor = on_progress;
    try_to_decode(&d);
    jpeg_destroy_decompress(&d.jpeg);
    return p->status;
}

#else

tensor_status fl_jpeg_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                             struct fl_data_problem *p) {
    (void)picture, (void)file, (void)bytes;
    return fl_data_note(p, TENSOR_E_UNSUPPORTED,
                        "images: %s is a JPEG, and this library was built without libjpeg (apt-get install "
                        "libjpeg-dev, then build it again)",
                        path);
}

#endif
