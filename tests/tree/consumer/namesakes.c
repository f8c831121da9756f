/* namesakes.c - functions of the program that are called what the library calls its own, public and internal. Neither
 * takes the place of the other: a call that ends here ends the program. */
#include <stdlib.h>

#define NAMESAKE(name)                                                                                                 \
    void name(void);                                                                                                   \
    void name(void) {                                                                                                  \
        abort();                                                                                                       \
    }
NAMESAKE(tensor_new)
NAMESAKE(tensor_free)
NAMESAKE(tensor_matmul)
NAMESAKE(tensor_error)
NAMESAKE(tensor_statistics)
NAMESAKE(autoflex_record)
NAMESAKE(nn_train)
NAMESAKE(nn_graph_new)
NAMESAKE(data_open)
NAMESAKE(data_free)
NAMESAKE(fl_alloc)
NAMESAKE(fl_fail)
NAMESAKE(fl_parallel)
NAMESAKE(fl_write)
NAMESAKE(fl_format_of)
