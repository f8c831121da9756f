/* passes.h - a network rewritten once, after it was read: what a pass does holds for every input. */
#ifndef FL_PROGRAM_PASSES_H
#define FL_PROGRAM_PASSES_H

#include "program/network/network.h"
#include "flexlab/program.h"

/* restore.c: what this library's own export spelt out in several ONNX nodes becomes one node again, with its format and
 * its exponents. Networks that do not come from there stay as they are. */
tensor_status fl_pass_restore(struct fl_network *n);

/* weights.c: weights that a file stores in 8 bits, for operators that compute floats, become float32, each the nearest
 * to scale (q - zero). */
tensor_status fl_pass_weights(struct fl_network *n);
/* The real numbers that the integers of a constant stand for, each rounded once. */
void fl_pass_reals(float *to, const struct fl_net_value *v);
/* The same of one constant: the value that has the floats. */
tensor_status fl_pass_floats(struct fl_network *n, int value, int *made);

/* fold.c: batch normalisation with constant statistics becomes a part of the convolution before it, if nobody else
 * reads that; so do products and sums with a constant for each channel. Computed in double, weights rounded once. */
tensor_status fl_pass_fold(struct fl_network *n);

/* recognise.c: several nodes that spell out one operator become that: HardSwish, LayerNormalization. */
tensor_status fl_pass_recognise(struct fl_network *n);

/* join.c: relu, a clip and the sum with another image become a part of the convolution or product before them, which
 * then rounds once. */
tensor_status fl_pass_join(struct fl_network *n);

/* quantised.c: the ways in which ONNX writes 8-bit integers become the one of network.h. */
tensor_status fl_pass_quantised(struct fl_network *n);

/* borders.c: quantised nodes without a kernel of integers compute floats, between DequantizeLinear and QuantizeLinear.
 * Afterwards each node either has a kernel (fl_int8_takes), or is a border, or computes floats; once more changes
 * nothing. */
tensor_status fl_pass_borders(struct fl_network *n);
/* Adds QuantizeLinear or DequantizeLinear to a graph, from one value to another, one of which has the quantisation. */
tensor_status fl_pass_add_border(struct fl_network *n, struct fl_net_graph *graph, const char *op, int from, int to);

/* quantise.c: not one of fl_passes: nodes marked int8 for which there is a kernel compute integers, at the scales that
 * the ranges of values have (fl_range.integers); weights have one scale for each filter, or for all. No node is marked
 * afterwards but those that compute integers. */
tensor_status fl_pass_quantise(struct fl_network *n, bool per_channel);

/* notes.c: notes for the caller what became of a node, before the two change. */
tensor_status fl_pass_note(struct fl_network *n, program_change_kind kind, const struct fl_net_node *node,
                           const struct fl_net_node *into);

/* passes.c: all of them, in their order. */
tensor_status fl_passes(struct fl_network *n);

#endif
