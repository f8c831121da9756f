/* what_if_network.h - finds the network that `what-if` examines, and its data: in a folder of results, or a file. */
#ifndef FLEXLAB_WHAT_IF_NETWORK_H
#define FLEXLAB_WHAT_IF_NETWORK_H

#include "options/options.h"

/* Owns the texts that network_place_find gives to settings. */
struct network_place {
    char *file, *data;
};

/* Sets s->checkpoint, s->data if it is not given, and s->split. A folder of results has best.safetensors or
 * last.safetensors; one whose runs are not over has checkpoints, of which s->of chooses the format. A STATUS_ code; the
 * message is printed. network_place_clear is needed in any case. */
int network_place_find(struct network_place *p, struct settings *s);
void network_place_clear(struct network_place *p);

#endif
