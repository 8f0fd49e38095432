// The small convolutional network for 32x32 colour images: two convolutions,
// two fully connected layers, 2.1 M parameters.
#ifndef RANKWISE_TRAINERS_MODELS_SIMPLE_CNN_H_
#define RANKWISE_TRAINERS_MODELS_SIMPLE_CNN_H_

#include "trainers/models/model.h"

namespace rankwise {

// input [B, 3, 32, 32]; output logits [B, 10]. With `batch_norm`,
// "simple_cnn_bn", there is a BatchNorm2d between each convolution and its
// ReLU.
ModelSpec SimpleCnnSpec(bool batch_norm);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_SIMPLE_CNN_H_
