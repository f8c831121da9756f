/* mutate_network.h - mutations of files of networks that keep the form of the file, so that they get past the readers:
 * ONNX, TensorFlow Lite, and this library's own. */
#ifndef FL_FUZZ_MUTATE_NETWORK_H
#define FL_FUZZ_MUTATE_NETWORK_H

#include <stddef.h>
#include <stdint.h>

/* Changes one thing in the file of `size` bytes, for which there is memory for `most`: a number, name, text or block of
 * numbers of it, or the number of times that it has a part. The new size; 0 if it has nothing that can change so, or
 * the result is larger than most. */
size_t mutate_network(uint8_t *file, size_t size, size_t most, uint64_t *seed);

#endif
