/* passes.c - the order of passes. */
#include "program/passes/passes.h"
#include "core/base/fail.h"

tensor_status fl_pass_note(struct fl_network *n, program_change_kind kind, const struct fl_net_node *node,
                           const struct fl_net_node *into) {
    return fl_net_add_change(n, (struct fl_net_change){kind, node->name, node->op, into->name, into->op});
}

tensor_status fl_passes(struct fl_network *n) {
    TRY(fl_pass_restore(n));
    TRY(fl_pass_weights(n));
    TRY(fl_pass_fold(n));
    TRY(fl_pass_recognise(n));
    TRY(fl_pass_join(n));
    TRY(fl_pass_quantised(n));
    return fl_pass_borders(n);
}
