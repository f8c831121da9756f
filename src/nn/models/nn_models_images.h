/* nn_models_images.h - layers of the models for images (nn_models.c has the names). */
#ifndef FL_NN_MODELS_IMAGES_H
#define FL_NN_MODELS_IMAGES_H

#include "nn/graph/nn_graph.h"

/* Each adds the whole network after x; number: the one in the name, if a family has one. */
nn_node fl_mlp2(nn_graph *g, nn_node x, int classes, int number);
nn_node fl_cnn6(nn_graph *g, nn_node x, int classes, int number);
nn_node fl_lenet(nn_graph *g, nn_node x, int classes, int number);
nn_node fl_alexnet(nn_graph *g, nn_node x, int classes, int number);
nn_node fl_vgg(nn_graph *g, nn_node x, int classes, int depth);               /* 11, 16 */
nn_node fl_resnet(nn_graph *g, nn_node x, int classes, int depth);            /* 6n + 2 */
nn_node fl_resnet_b(nn_graph *g, nn_node x, int classes, int depth);          /* 6n + 2 */
nn_node fl_resnet_bottleneck(nn_graph *g, nn_node x, int classes, int depth); /* 9n + 2 */
nn_node fl_mobilenet(nn_graph *g, nn_node x, int classes, int number);

/* These have two numbers: 1000 times the width, plus the depth. */
enum { FL_WIDTH = 1000 };
nn_node fl_mlp(nn_graph *g, nn_node x, int classes, int number);
nn_node fl_wide_resnet(nn_graph *g, nn_node x, int classes, int number); /* depth 6n + 4 */

/* The least height and width of images. */
enum { FL_LENET_SIDE = 28, FL_ALEXNET_SIDE = 15, FL_VGG_SIDE = 32 };

#endif
