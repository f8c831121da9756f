/* skipping.c - tasks that look at the writes of a step, and its dynamic loss scale. */
#include "core/queue/skipping.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"

tensor_status fl_look_list_make(tensor_device *device, struct fl_look_list *list, const struct fl_look_at *at,
                                int64_t count) {
    const size_t bytes = ((size_t)count + 1) * sizeof(struct fl_looked_at);
    struct fl_looked_at *here = fl_alloc_zero(bytes);
    if (!here)
        return fl_fail(TENSOR_E_MEMORY, "loss scale: no memory for %lld tensors", (long long)count);
    for (int64_t i = 0; i < count; i++)
        here[i] = (struct fl_looked_at){at[i].t->storage->slot, at[i].marks};
    list->count = count;
    list->slots = tensor_device_allocate(device, bytes);
    const tensor_status status =
        list->slots ? fl_put(fl_device_queue(device), list->slots, here, bytes) : tensor_error_status();
    fl_free(here);
    return status;
}

void fl_look_list_clear(tensor_device *device, struct fl_look_list *list) {
    tensor_device_release(device, list->slots);
    *list = (struct fl_look_list){0};
}

static tensor_status submit(const tensor *state, enum fl_call_kind kind, struct fl_skipping skipping) {
    struct fl_call call = {.kind = kind, .skipping = skipping};
    call.skipping.state = state->storage->data;
    return fl_submit(fl_queue_of(state->storage), &call);
}

tensor_status fl_skip_look(tensor *state, const struct fl_look_list *list, bool decides) {
    return submit(state, FL_CALL_LOOK,
                  (struct fl_skipping){.list = list->slots, .count = list->count, .decides = decides});
}

tensor_status fl_skip_end(tensor *state, tensor *scale, tensor *limit, const struct fl_scale_settings *rule) {
    return submit(state, FL_CALL_FOLLOW_SCALE,
                  (struct fl_skipping){
                      .scale = scale->storage->data, .limit = limit ? limit->storage->data : NULL, .rule = *rule});
}

tensor_status fl_scale_share(tensor *to, const tensor *state, double share) {
    return submit(state, FL_CALL_SHARE, (struct fl_skipping){.scale = to->storage->data, .share = share});
}
