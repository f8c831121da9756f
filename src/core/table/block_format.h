/* block_format.h - block formats: narrow elements under one scale for each block of neighbours, as accelerators take
 * the operands of products (docs/block-formats.md).
 *
 * A block format is a value, found by its text. It is no format of tensors: tensors keep their formats, and a product
 * takes its operands in blocks along the dimension that it sums over (class operands=...).
 *
 *     mx:ELEMENT[/BLOCK][:OPTION...]      OCP Microscaling Formats (MX) Specification v1.0, 2023
 *     nvfp4[:OPTION...]                   NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149
 *     hbfp:intN[/BLOCK][:OPTION...]       Drumond et al., NeurIPS 2018, arXiv 1804.01526
 *     channel:ELEMENT[:OPTION...]         one scale for all elements that a result sums over
 *
 * ELEMENT: eXmY of at most 8 bits with the sign, or intN of 2 to 8 bits. BLOCK: 2 to 1024 elements, 32 if it is not
 * given. OPTION: one of the scale rules floor (the rule if none is given), ceil, even, rceil; stochastic, hadamard,
 * square. nvfp4 and hbfp have one rule each, and refuse the names of others; channel has rceil if none is given, and of
 * the other options stochastic alone. */
#ifndef FL_BLOCK_FORMAT_H
#define FL_BLOCK_FORMAT_H

#include "core/arithmetic/element.h"
#include "flexlab/status.h"
#include <stdbool.h>

/* Which power of two is the scale of a block whose largest magnitude is amax. E = floor(log2(largest element)), m =
 * fraction bits of an element (N - 2 of intN). Scales are kept within 2^-127 ... 2^127, the range of E8M0. */
enum fl_scale_rule {
    FL_SCALE_FLOOR, /* 2^(floor(log2(amax)) - E): the MX specification, section 6.3. Elements may saturate */
    FL_SCALE_CEIL,  /* 2^(ceil(log2(amax)) - E): torchao */
    FL_SCALE_EVEN,  /* floor of amax rounded to m fraction bits: torchao */
    FL_SCALE_RCEIL  /* the least power of two at which amax does not exceed the largest element: torchao, cuBLAS */
};

enum { FL_BLOCK_LEAST = 2, FL_BLOCK_MOST = 1024, FL_HADAMARD = 16 };
enum { FL_SCALE_LEAST = -127, FL_SCALE_MOST = 127 }; /* exponents of E8M0 */

enum fl_block_family { FL_BLOCKS_MX, FL_BLOCKS_NVFP4, FL_BLOCKS_HBFP, FL_BLOCKS_CHANNEL };

struct fl_block_format {
    const char *name; /* the canonical text: without a block of 32 and the usual rule, options in the order above */
    enum fl_block_family family;
    struct fl_element element;
    int block;         /* elements under one scale; 0: all of the summed dimension (channel) */
    bool e4m3_scales;  /* nvfp4: block scales of E4M3 and one binary32 scale for the tensor; else powers of two */
    bool bytes;        /* every element is an integer of at most +-127 times 2^element.unit */
    int top_exponent;  /* E above */
    int fraction_bits; /* m above */
    enum fl_scale_rule rule;
    bool stochastic; /* elements are rounded stochastically */
    bool hadamard;   /* a random Hadamard transform of 16 neighbours along k comes first; block is a multiple of 16 */
    bool square;     /* one scale for `block` rows by `block` elements along k */
};

/* The format of a text. The same text, and another text of the same format, give the same pointer, which lives as long
 * as the process. TENSOR_E_ARGUMENT names the position of what it does not understand, and what was expected. */
tensor_status fl_block_format_find(const struct fl_block_format **format, const char *text);
/* Whether a text begins as those of block formats do, so that an error of fl_block_format_find is about it. */
bool fl_block_format_begins(const char *text);
/* Bits that an element takes with its share of the block's scale: 8.25 of mx:int8, 4.5 of nvfp4. The scale of a square
 * is shared by all of its elements. The one tensor scale of nvfp4 and the few of channel are left out. */
double fl_block_format_bits(const struct fl_block_format *format);

#endif
