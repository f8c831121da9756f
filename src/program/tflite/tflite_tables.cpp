// tflite_tables.cpp - see tflite_tables.h. The one file in C++: it has no state, allocates nothing, and is compiled
// without exceptions and run-time types, so that the library needs no library of C++.
#include "program/tflite/tflite_tables.h"
#include "tflite_generated.h"

using namespace flexlab_tflite;

namespace {

fl_tflite_ints ints(const flatbuffers::Vector<int32_t> *list) {
    return list ? fl_tflite_ints{list->data(), list->size()} : fl_tflite_ints{nullptr, 0};
}

fl_tflite_text text(const flatbuffers::String *given) {
    return given ? fl_tflite_text{given->c_str(), given->size()} : fl_tflite_text{"", 0};
}

template <typename List> uint32_t size(const List *list) {
    return list ? list->size() : 0;
}

template <typename Table> void windows(const Table *t, fl_tflite_options *o) {
    o->padding = t->padding();
    o->stride_h = t->stride_h();
    o->stride_w = t->stride_w();
    o->activation = t->activation();
}

template <typename Table> void dilations(const Table *t, fl_tflite_options *o) {
    o->dilation_h = t->dilation_h();
    o->dilation_w = t->dilation_w();
}

template <typename Table> void corners(const Table *t, fl_tflite_options *o) {
    o->align_corners = t->align_corners();
    o->half_pixel = t->half_pixel();
}

fl_tflite_options options(const Operator *op) {
    fl_tflite_options o = {};
    o.kind = op->options() ? EnumNameOptions(op->options_type()) : "NONE";
    if (!op->options())
        return o;
    if (const auto *conv = op->options_as_Convolution()) {
        windows(conv, &o);
        dilations(conv, &o);
    } else if (const auto *depthwise = op->options_as_Depthwise()) {
        windows(depthwise, &o);
        dilations(depthwise, &o);
        o.multiplier = depthwise->multiplier();
    } else if (const auto *pool = op->options_as_Pool()) {
        windows(pool, &o);
        o.filter_h = pool->filter_h();
        o.filter_w = pool->filter_w();
    } else if (const auto *full = op->options_as_FullyConnected()) {
        o.activation = full->activation();
        o.weights_format = full->weights_format();
        o.keep_dims = full->keep_dims();
        o.asymmetric = full->asymmetric();
    } else if (const auto *softmax = op->options_as_Softmax()) {
        o.beta = softmax->beta();
    } else if (const auto *concatenation = op->options_as_Concatenation()) {
        o.axis = concatenation->axis();
        o.activation = concatenation->activation();
    } else if (const auto *add = op->options_as_Add()) {
        o.activation = add->activation();
    } else if (const auto *multiply = op->options_as_Multiply()) {
        o.activation = multiply->activation();
    } else if (const auto *subtract = op->options_as_Subtract()) {
        o.activation = subtract->activation();
    } else if (const auto *divide = op->options_as_Divide()) {
        o.activation = divide->activation();
    } else if (const auto *bilinear = op->options_as_Bilinear()) {
        corners(bilinear, &o);
    } else if (const auto *nearest = op->options_as_Nearest()) {
        corners(nearest, &o);
    } else if (const auto *reshape = op->options_as_Reshape()) {
        o.list = ints(reshape->shape());
    } else if (const auto *reduce = op->options_as_Reduce()) {
        o.keep_dims = reduce->keep_dims();
    } else if (const auto *squeeze = op->options_as_Squeeze()) {
        o.list = ints(squeeze->axes());
    } else if (const auto *slice = op->options_as_StridedSlice()) {
        o.begin_mask = slice->begin_mask();
        o.end_mask = slice->end_mask();
        o.ellipsis_mask = slice->ellipsis_mask();
        o.new_axis_mask = slice->new_axis_mask();
        o.shrink_axis_mask = slice->shrink_axis_mask();
        o.offset = slice->offset();
    } else if (const auto *leaky = op->options_as_LeakyRelu()) {
        o.alpha = leaky->alpha();
    } else {
        o.kind = "";
    }
    return o;
}

const Model *model_of(const fl_tflite_model *model) {
    return static_cast<const Model *>(model->model);
}

const Graph *graph_of(const fl_tflite_model *model) {
    return static_cast<const Graph *>(model->graph);
}

} // namespace

bool fl_tflite_verify(const unsigned char *bytes, size_t count) {
    flatbuffers::Verifier verifier(bytes, count);
    return VerifyModelBuffer(verifier);
}

void fl_tflite_get_model(const unsigned char *bytes, fl_tflite_model *model) {
    const Model *const m = GetModel(bytes);
    const Graph *const graph = size(m->graphs()) ? m->graphs()->Get(0) : nullptr;
    *model = {};
    model->model = m;
    model->graph = graph;
    model->version = m->version();
    model->graphs = size(m->graphs());
    model->buffers = size(m->buffers());
    model->description = text(m->description());
    if (!graph)
        return;
    model->tensors = size(graph->tensors());
    model->operators = size(graph->operators());
    model->inputs = ints(graph->inputs());
    model->outputs = ints(graph->outputs());
}

void fl_tflite_get_tensor(const fl_tflite_model *model, uint32_t i, fl_tflite_tensor *tensor) {
    const Tensor *const t = graph_of(model)->tensors()->Get(i);
    *tensor = {};
    tensor->name = text(t->name());
    tensor->type = t->type();
    tensor->buffer = t->buffer();
    tensor->shape = ints(t->shape());
    tensor->signature = ints(t->signature());
    tensor->sparse = t->sparsity();
    tensor->variable = t->is_variable();
    if (const Quantisation *const q = t->quantisation()) {
        tensor->scale_count = size(q->scale());
        tensor->scale = q->scale() ? q->scale()->data() : nullptr;
        tensor->zero_count = size(q->zero());
        tensor->zero = q->zero() ? q->zero()->Data() : nullptr;
        tensor->axis = q->axis();
        tensor->other_quantisation = q->details_type();
    }
}

void fl_tflite_get_buffer(const fl_tflite_model *model, uint32_t i, fl_tflite_buffer *buffer) {
    const Buffer *const b = model_of(model)->buffers()->Get(i);
    *buffer = {};
    buffer->count = size(b->data());
    buffer->bytes = buffer->count ? b->data()->data() : nullptr;
    buffer->offset = b->offset();
    buffer->size = b->size();
}

void fl_tflite_get_operator(const fl_tflite_model *model, uint32_t i, fl_tflite_operator *op) {
    const Operator *const o = graph_of(model)->operators()->Get(i);
    const auto *const codes = model_of(model)->codes();
    *op = {};
    op->name = "";
    op->code = -1;
    op->custom = text(nullptr);
    if (o->code() < size(codes)) {
        const Code *const code = codes->Get(o->code());
        op->code = code->builtin() > code->old_builtin() ? code->builtin() : code->old_builtin();
        op->name = EnumNameBuiltin(static_cast<Builtin>(op->code));
        op->custom = text(code->custom());
    }
    op->inputs = ints(o->inputs());
    op->outputs = ints(o->outputs());
    op->options = options(o);
}
