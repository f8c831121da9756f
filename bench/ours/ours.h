/* ours.h - the parts of flexlab's contestant: each prepares its kinds of work. */
#ifndef FLEXLAB_BENCH_OURS_H
#define FLEXLAB_BENCH_OURS_H

#include "flexlab/tensor.h"

/* A kind of work: its name, how many words follow the name and the format, and what prepares it from them. Either kind
 * of preparation sets *run, one execution, and returns NULL or why it cannot be done. */
struct ours_work {
    const char *name;
    int words;
    const char *(*of_format)(void (**run)(void), tensor_format format, char **argv);
    const char *(*of_variant)(void (**run)(void), const char *variant, char **argv);
};

/* Ends with an entry whose name is NULL. */
extern const struct ours_work ours_operations[], ours_networks[];

/* Prints the bytes of a step of ResNet-20, what: "stored" or "planned"; returns NULL or why not. */
const char *ours_memory(const char *what, const char *variant, int batch);
/* tensor_error as a reason. */
const char *ours_failure(void);

#endif
