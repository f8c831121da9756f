/* fp32_codec.h - IEEE binary32: the element is the float that src/float computes in. */
#ifndef FL_FP32_CODEC_H
#define FL_FP32_CODEC_H

/* What src/float/float_block.h asks of a codec. */
typedef float fl_element;
#define FL_ELEMENT_IS_FLOAT
#define FL_DECODE(x) (x)
#define FL_ENCODE(x) (x)
#define FL_MMA gpu_mma_tf32 /* of a GPU's tensor cores */
enum {
    FL_OVERFLOW = 0x7f800000, /* Inf alone is stored as Inf */
    FL_FLUSH = 0              /* nothing becomes zero */
};

#endif
