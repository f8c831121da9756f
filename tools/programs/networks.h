/* networks.h - what the commands that run networks trained elsewhere share: the program of a file with its ports, lists
 * of formats and numbers, shapes as text. */
#ifndef FLEXLAB_NETWORKS_H
#define FLEXLAB_NETWORKS_H

#include "flexlab/program.h"
#include <stdbool.h>

struct settings; /* options.h */

struct network {
    const char *path;
    const struct settings *settings; /* with which it was opened */
    program *p;
    int input_count, output_count;
    program_port *inputs, *outputs;
    char *mean,
        *deviation; /* of images, as --mean and --std, that a checkpoint was trained with; NULL: it does not say */
};

/* Reads the file; of weights, with the model, layout and sizes of the settings; with their rounding of 8-bit integers.
 * These functions print a message on failure and return a STATUS_ code. */
int network_open(struct network *n, const char *path, const struct settings *s);
/* Also for one that was never opened, if zeroed. */
void network_close(struct network *n);
void network_print_ports(const struct network *n);
/* Runs the program, or calibrates it and fixes its exponents; inputs and outputs as in program.h. */
int network_run(const struct network *n, program_array *outputs, const program_array *inputs);
int network_freeze(const struct network *n, const program_array *inputs);
/* All nodes compute in this format from now on. int8 is for a program that computes floats: network_reopen. */
int network_format(const struct network *n, tensor_format format);
/* Exponents and scales of a file in place of calibration; nodes that are marked int8 are quantised. */
int network_scales(const struct network *n, const char *path);
/* The program as its file says, once more. */
int network_reopen(struct network *n);

/* Nodes that compute 8-bit integers, floats, and those that convert between them; the operators of those in floats,
 * such as "Softmax, 2 Resize", to be freed. */
struct network_census {
    int integers, floats, conversions;
    char *operators;
};
void network_take_census(struct network_census *c, const struct network *n);
/* "12 nodes in 8-bit integers, 1 in floats (Softmax), 2 conversions between them"; NULL: none computes integers. */
char *network_integers(const struct network *n);

/* Whether some node has another one than fp32: the file is one that flexlab has written. */
bool network_has_formats(const struct network *n);
/* Whether the file says more than fp32: other formats, or 8-bit integers. */
bool network_is_own(const struct network *n);

enum { MOST_FORMATS = 16 };
struct format_list {
    int count;
    tensor_format format[MOST_FORMATS];
    bool per_tensor[MOST_FORMATS]; /* int8:tensor */
};
/* Comma-separated names without repetition; NULL: the usual five. int8: whether int8 and int8:tensor may be among them.
 */
int network_formats(struct format_list *list, const char *option, const char *text, bool int8);
/* --formats (NULL: not given) for a network that computes integers alone is an error. */
int network_refuse_formats(const struct network *n, const char *formats);
/* "int8:tensor" */
const char *network_format_name(const struct format_list *list, int i);
bool network_formats_shared(const struct format_list *list);

enum { MOST_NUMBERS = 16 };
struct number_list {
    int count;
    int64_t number[MOST_NUMBERS];
};
/* Comma-separated whole numbers from 1 to high. */
int network_numbers(struct number_list *list, const char *option, const char *text, int64_t high);

/* --OPTION NAME in any case, or percentile:P; how 8-bit integers follow from calibration. NULL changes nothing. */
int network_method(program_quantisation *how, const char *option, const char *text);

/* "float32"; "[?, 3, 32, 32]", to be freed; the number of elements of an array. */
const char *network_type_name(tensor_type type);
char *network_port_shape(const program_port *port);
int64_t network_elements(const program_array *a);
size_t network_type_bytes(tensor_type type);
double network_number(const program_array *a, int64_t i); /* element i */
/* The length of a tensor's name without the ".int8" that program_freeze adds to those of integers. */
size_t network_name_length(const char *value);
/* Real numbers at a port of floats, or of 8-bit integers with a scale: the nearest integers, ties to even, within the
 * type. Arrays have the port's type. */
bool network_takes_reals(const program_port *port);
void network_reals(float *to, const program_array *from, const program_port *port);
void network_from_reals(program_array *to, const float *from, const program_port *port);

bool network_is_archive(const char *path);
/* The member of an archive for an input: its name, "input:" and its name; of the only one also "input", "arr_0". */
int network_read_member(program_array *a, const struct network *n, const char *option, int port, const char *path);

/* flexlab eval FILE. */
int network_eval(const struct settings *s);
/* flexlab info FILE. */
int network_info(const char *path, const struct settings *s, bool verbose, bool probe);

#endif
