/* store.h - a network as a file: safetensors, with constants as its tensors, and the rest of the network as JSON in its
 * metadata. docs/programs.md describes the file. */
#ifndef FL_PROGRAM_STORE_H
#define FL_PROGRAM_STORE_H

#include "program/network/network.h"
#include "safetensors/safetensors.h"

#define FL_STORE_NETWORK "flexlab.program"
#define FL_STORE_MANTISSAS "flexlab.mantissas"
enum { FL_STORE_VERSION = 1, FL_STORE_DEPTH = 8 };

/* Writes what the outputs need of the network. TENSOR_E_ARGUMENT for a name that is no UTF-8 text, which the file
 * cannot have; TENSOR_E_IO. The path has the previous file or the complete new one at any time. */
tensor_status fl_store_write(const struct fl_network *n, const char *path);

/* Reads such a file. TENSOR_E_IO, or TENSOR_E_DATA: it is none, or damaged; the message names the entry. */
tensor_status fl_store_read(struct fl_network **n, const char *path);
/* Whether a file that begins with these 9 bytes is one of safetensors. */
bool fl_store_begins(const char head[9]);

/* The type of safetensors with the numbers of a type, and back. */
enum fl_stored_type fl_store_type(tensor_type type);
tensor_type fl_store_type_back(enum fl_stored_type type); /* 0: none */
/* The type that has the elements of a format as they are: F16, BF16, or I16 for mantissas; FL_STORED_TYPES: none. */
enum fl_stored_type fl_store_format(tensor_format format);

#endif
