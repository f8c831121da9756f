/* onnx_internal.h - what the files of the reader share. Messages of failures lack the file's path, which fl_onnx_read
 * puts before them. */
#ifndef FL_ONNX_INTERNAL_H
#define FL_ONNX_INTERNAL_H

#include "program/network/network.h"
#include "program/network/onnx_types.h"
#include "program/onnx/onnx_names.h"

enum { FL_ONNX_OPSET_FIRST = 7, FL_ONNX_OPSET_LAST = 22 };

struct fl_onnx_reader {
    struct fl_network *n;
    const char *path;
    int opset;                  /* of the domain ""; 0: the file has none */
    struct fl_onnx_names names; /* that are visible */
    struct fl_onnx_names all;   /* those of nested graphs that have ended, too */
    struct fl_onnx_file *files; /* external data (onnx_tensor.c) */
};

/* A value that no node computes, under a name that begins with that of `like` and that nobody has yet; -1, with
 * tensor_error(), without memory. */
int fl_onnx_fresh_value(struct fl_onnx_reader *r, const char *like, const char *ending);
/* Makes a value a constant. */
void fl_onnx_set_constant(struct fl_network *n, int value, struct fl_array *constant);

/* Rewrites the last node of a graph, which the reader has just added, from the file's opset to opset 22; it may become
 * several. */
tensor_status fl_onnx_translate(struct fl_onnx_reader *r, struct fl_net_graph *graph);

#ifdef FL_HAVE_ONNX
#include "onnx.pb-c.h"

/* What protobuf-c allocates: at most `limit` bytes at a time. */
struct fl_onnx_memory {
    ProtobufCAllocator allocator;
    struct fl_onnx_block *blocks;
    char *piece; /* of the newest chunk of small blocks */
    size_t piece_left, used, limit;
    bool over;
};

/* The message of that kind that a file is; NULL after a failure. fl_onnx_release frees it, also after a failure. */
tensor_status fl_onnx_unpack(struct fl_onnx_memory *m, ProtobufCMessage **message,
                             const ProtobufCMessageDescriptor *kind, const uint8_t *bytes, size_t size);
void fl_onnx_release(struct fl_onnx_memory *m);

/* An array of the network from a tensor of the file. `what` begins the messages: "initializer w". four_bits: whether
 * its elements are integers of 4 bits, which become int8 or uint8; NULL where such are refused. */
tensor_status fl_onnx_tensor(struct fl_onnx_reader *r, struct fl_array **array, const Onnx__TensorProto *t,
                             const char *what, bool *four_bits);
void fl_onnx_forget_files(struct fl_onnx_reader *r);
#endif

#endif
