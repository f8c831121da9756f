/* notes.c - what became of a node that a pass has changed, for the caller. */
#include "program/passes/passes.h"

tensor_status fl_pass_note(struct fl_network *n, program_change_kind kind, const struct fl_net_node *node,
                           const struct fl_net_node *into) {
    return fl_net_add_change(n, (struct fl_net_change){kind, node->name, node->op, into->name, into->op});
}
