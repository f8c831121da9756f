/* flexlab.h - everything: formats and tensors, exponent prediction, networks, data. */
#ifndef FLEXLAB_FLEXLAB_H
#define FLEXLAB_FLEXLAB_H
#include "flexlab/autoflex.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "flexlab/status.h"
#include "flexlab/tensor.h"
#include "flexlab/version.h"
#endif
