// What Python hands over: shapes, pointers and numbers. Nothing here owns memory.
#pragma once

#include <cstddef>
#include <cstdint>

constexpr int LAYOUT = 3;  // counted up with every change of the structures below, here and in cpu.py

enum Output : int32_t { SOFTMAX, LOGISTIC, LINEAR };

struct Shape {
  int32_t nets, layers, batch, logistic;
  int32_t output, softmaxes;       // an Output; several softmaxes may stand side by side
  const int32_t *sizes, *choices;  // visible, hidden ..., outputs: layers + 1 of them; outputs of each softmax
};

// One net: pointers per weight layer, in the panel layout that update.cpp describes.
struct Net {
  uint64_t seed;
  float step, momentum, limit, unused;
  float *const *weights, *const *velocities, *const *biases, *const *bias_velocities;
  const int16_t* const* thresholds;  // per layer of units that may be omitted, padded to blocks of 64; null: all are kept
};

// One mini-batch of one net.
struct Batch {
  const float* inputs;
  const int64_t* starts;   // where in `inputs` this batch's cases begin; they may overlap
  const int64_t* order;    // of this batch's cases in what follows, which holds all training cases
  const int64_t* answers;  // the right output of each softmax
  const float* numbers;    // what logistic and linear outputs should be
  const float* weights;    // of the losses of cases; null: all are one
  int32_t cases;
  uint32_t update;
};

// What one net adds up over updates.
struct Tally {
  double* loss;
  int64_t* errors;
  uint8_t* active;  // per hidden layer
  uint8_t* moved;
};

// How the units of weight layer k are cut: panels of 64, or of 16 for an output layer that fits one.
struct Panels {
  int width, count;
  size_t inputs;
  Panels(const Shape& shape, int k)
      : width(k == shape.layers - 1 && shape.sizes[k + 1] <= 16 ? 16 : 64),
        count((shape.sizes[k + 1] + width - 1) / width),
        inputs(static_cast<size_t>(shape.sizes[k])) {}
  size_t weights(int panel) const { return panel * inputs * width; }
  size_t at(int unit, int item, int cases) const {
    return (static_cast<size_t>(unit / width) * cases + item) * width + unit % width;
  }
};
