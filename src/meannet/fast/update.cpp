// Dropout backpropagation on a CPU (A.1), skipping every product with an exact zero: omitted units, rectified units that
// are off, dark pixels. Nothing is approximated, and each sum is taken by one thread in a fixed order, so that results
// do not depend on the number of threads.
//
// Layout. The units of a layer are cut into panels of 64, or of 16 where a few outputs fit one, the last one padded with
// zeros. Weights are [panel][input][unit of the panel] and activities [panel][case][unit of the panel], so that every
// inner loop runs over neighbouring floats; V is a panel's width in vectors. Beside its activities a layer keeps, for
// each case and each panel, the list of units that are not zero; the next layer's product and the gradient product walk
// these lists.
//
// One update of one net, most of it loops over panels or cases that threads share (struct Update):
//   take_inputs   gather the cases, omit visible units, list what is left
//   pass_forward  per hidden layer: sums over the listed units below, activation, mask, list of what is left
//   put_out       outputs, loss, derivative
//   pass_back     per hidden layer: derivatives, sums over the listed units above
//   take_steps    gradient product over the listed cases of each input, momentum, weights, norm bound
//
// The file is compiled once for each instruction set; dispatch.cpp chooses at run time.

#include "team.h"
#include "update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#ifndef INSTRUCTION_SET
#define INSTRUCTION_SET plain
#endif

namespace INSTRUCTION_SET {
namespace {

constexpr int LANES = 16;
constexpr int BLOCK = 64;            // units of a block, which is what one list is about
constexpr int SLOT = BLOCK + LANES;  // room for a list: whole vectors are stored, the last one perhaps past its end
constexpr int WHOLE = 32;            // so many cases' worth of work is a step of all weights, whatever the mini-batch
constexpr int64_t A_THREAD = 12'000'000;  // weights times cases that are worth another thread; measured on two cores
constexpr float SMALLEST_STEP = 1e-12f;  // derivatives times a smaller one might vanish, and look like a collapse

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

struct alignas(64) Line {  // memory in whole cache lines: a load that straddles two takes twice as long
  float values[LANES];
};
using Lines = std::vector<Line>;
inline float* floats(Lines& lines) { return lines.data()->values; }

inline Vector load(const float* at) {
  Vector v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline void store(float* at, Vector v) { std::memcpy(at, &v, sizeof v); }
inline Vector all(float x) { return x - Vector{}; }

inline Vector exponential(Vector x) {
  // e^x = 2^n e^r with |r| <= ln 2 / 2; a polynomial in r, good to float rounding.
  x = x < all(-87.0f) ? all(-87.0f) : x;
  x = x > all(87.0f) ? all(87.0f) : x;
  const Vector shift = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  Vector n = x * all(1.44269504f) + shift - shift;
  Vector r = x - n * all(0.693359375f) + n * all(2.12194440e-4f);
  Vector p = all(1.9875691500e-4f);
  p = p * r + all(1.3981999507e-3f);
  p = p * r + all(8.3334519073e-3f);
  p = p * r + all(4.1665795894e-2f);
  p = p * r + all(1.6666665459e-1f);
  p = p * r + all(5.0000001201e-1f);
  p = p * r * r + r + all(1.0f);
  Integers power = (__builtin_convertvector(n, Integers) + 127) << 23;
  Vector scale;
  std::memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

// Philox 4x32-10 for eight neighbouring counters: the draws of 64 units, as in core/philox.py.
void draw(uint64_t seed, uint32_t first_block, uint32_t row, uint32_t layer, uint32_t update, int16_t* draws) {
  uint32_t c0[8], c1[8], c2[8], c3[8];
  for (int i = 0; i < 8; i++) c0[i] = first_block + i, c1[i] = row, c2[i] = layer, c3[i] = update;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 8; i++) {
      uint64_t product0 = uint64_t{0xD2511F53} * c0[i], product1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<uint32_t>(product1);
      c3[i] = static_cast<uint32_t>(product0);
    }
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  for (int i = 0; i < 8; i++) {
    const uint32_t words[4] = {c0[i], c1[i], c2[i], c3[i]};
    for (int w = 0; w < 4; w++) {
      draws[8 * i + 2 * w] = static_cast<int16_t>(words[w] & 0xFFFF);
      draws[8 * i + 2 * w + 1] = static_cast<int16_t>(words[w] >> 16);
    }
  }
}

inline int blocks_of(int units) { return (units + BLOCK - 1) / BLOCK; }

// The units of one layer that are not zero: for each case and block, which and how much.
struct Lists {
  int blocks, cases;
  std::vector<int32_t> counts;  // [block][case]
  std::vector<int32_t> units;   // [block][case][SLOT], counted within the block
  std::vector<float> values;    // likewise
  std::vector<int32_t> used;    // [input]: cases in which it is not zero ...
  std::vector<int32_t> which;   // [input][case]: ... which cases ...
  std::vector<float> amounts;   // [input][case]: ... and how much

  Lists(int units_, int cases_)
      : blocks(blocks_of(units_)),
        cases(cases_),
        counts(size_t(blocks) * cases_),
        units(size_t(blocks) * cases_ * SLOT),
        values(size_t(blocks) * cases_ * SLOT),
        used(size_t(blocks) * BLOCK),
        which(size_t(blocks) * BLOCK * cases_),
        amounts(size_t(blocks) * BLOCK * cases_) {}

  int count(int block, int item) const { return counts[size_t(block) * cases + item]; }
  const int32_t* unit(int block, int item) const { return &units[(size_t(block) * cases + item) * SLOT]; }
  const float* value(int block, int item) const { return &values[(size_t(block) * cases + item) * SLOT]; }

  void list(int block, int item, const float* row) {
    const size_t slot = size_t(block) * cases + item;
    int32_t* to = &units[slot * SLOT];
    float* amount = &values[slot * SLOT];
    int n = 0;
#ifdef __AVX512F__
    __m512i unit = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int i = 0; i < BLOCK; i += LANES, unit = _mm512_add_epi32(unit, _mm512_set1_epi32(LANES))) {
      const __m512 v = _mm512_loadu_ps(row + i);
      const __mmask16 some = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      _mm512_storeu_si512(to + n, _mm512_maskz_compress_epi32(some, unit));
      _mm512_storeu_ps(amount + n, _mm512_maskz_compress_ps(some, v));
      n += __builtin_popcount(some);
    }
#else
    for (int i = 0; i < BLOCK; i++) {  // without a branch: what is not kept is overwritten
      to[n] = i;
      amount[n] = row[i];
      n += row[i] != 0.0f;
    }
#endif
    counts[slot] = n;
  }

  // The same by input: for each input of the block the cases in which it is not zero.
  void turn(int block, int of) {
    int32_t* n = &used[size_t(block) * BLOCK];
    std::fill(n, n + BLOCK, 0);
    for (int item = 0; item < of; item++) {
      const int32_t* listed = unit(block, item);
      const float* amount = value(block, item);
      for (int t = 0, e = count(block, item); t < e; t++) {
        const size_t at = (size_t(block) * BLOCK + listed[t]) * cases + n[listed[t]]++;
        which[at] = item;
        amounts[at] = amount[t];
      }
    }
  }
};

// A part of a weight layer: one of its panels, or one block of its inputs.
struct Task {
  int layer, part, parts;

  // By where they stand in their layers, so that a thread's share of several layers' tasks is its shares of each.
  bool operator<(const Task& other) const {
    return int64_t{2 * part + 1} * other.parts < int64_t{2 * other.part + 1} * parts;
  }
};

// What a thread needs to take one net through one update; an update itself asks for no memory.
struct Workspace {
  std::vector<Lists> lists;   // of the visible units, of each hidden layer, and of the outputs' derivatives
  std::vector<Lines> passed;  // per layer [panel][case][unit]: activities; of the last, outputs
  std::vector<Lines> deltas;  // likewise: derivatives, times minus the step
  std::vector<float> outputs;  // of one case
  std::vector<Task> turns, steps;  // lists to turn, block by block, and steps to take, panel by panel

  Workspace(const Shape& shape, int cases) : outputs(shape.sizes[shape.layers]) {
    for (int k = 0; k <= shape.layers; k++) lists.emplace_back(shape.sizes[k], cases);
    for (int k = 0; k < shape.layers; k++) {
      const Panels panels(shape, k);
      passed.emplace_back(size_t(panels.count) * cases * panels.width / LANES);
      deltas.emplace_back(size_t(panels.count) * cases * panels.width / LANES);
    }
    for (int k = shape.layers - 1; k >= 0; k--) {
      const int blocks = lists[k].blocks, panels = Panels(shape, k).count;
      for (int part = 0; part < blocks; part++) turns.push_back({k, part, blocks});
      for (int part = 0; part < panels; part++) steps.push_back({k, part, panels});
    }
    std::stable_sort(turns.begin(), turns.end());
    std::stable_sort(steps.begin(), steps.end());
  }
};

// total += sum over the listed rows of their amount times the row; rows are V vectors long.
template <int V, class Amount>
inline void add_listed(Vector* total, const float* rows, const int32_t* listed, int n, Amount amount) {
  Vector second[V] = {};  // two sums at a time, or each addition would wait for the one before it
  int t = 0;
  for (; t + 1 < n; t += 2) {
    const float *row = rows + listed[t] * (V * LANES), *next = rows + listed[t + 1] * (V * LANES);
    const Vector a = all(amount(t)), b = all(amount(t + 1));
    for (int v = 0; v < V; v++) total[v] += a * load(row + v * LANES);
    for (int v = 0; v < V; v++) second[v] += b * load(next + v * LANES);
  }
  if (t < n)
    for (int v = 0; v < V; v++) total[v] += all(amount(t)) * load(rows + listed[t] * (V * LANES) + v * LANES);
  for (int v = 0; v < V; v++) total[v] += second[v];
}

// Total inputs of one panel, from the listed units below.
template <int V>
void forward(const Lists& below, const float* weight, const float* bias, int cases, float* out) {
  constexpr int W = V * LANES;
  for (int block = 0; block < below.blocks; block++)  // a block's weights stay in the first cache for all cases
    for (int item = 0; item < cases; item++) {
      const float* amount = below.value(block, item);
      float* to = out + size_t(item) * W;
      Vector total[V];
      for (int v = 0; v < V; v++) total[v] = load((block ? to : bias) + v * LANES);
      add_listed<V>(total, weight + size_t(block) * BLOCK * W, below.unit(block, item), below.count(block, item),
                    [=](int t) { return amount[t]; });
      for (int v = 0; v < V; v++) store(to + v * LANES, total[v]);
    }
}

void activate(float* row, bool logistic) {
  for (int i = 0; i < BLOCK; i += LANES) {
    const Vector z = load(row + i);
    const Vector zero = {};
    store(row + i, logistic ? all(1.0f) / (all(1.0f) + exponential(-z)) : (z > zero ? z : zero));
  }
}

void omit(float* row, const int16_t* thresholds, const int16_t* draws) {
  for (int i = 0; i < BLOCK; i++) row[i] = draws[i] >= thresholds[i] ? row[i] : 0.0f;
}

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourIntegers __attribute__((vector_size(16)));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, FourIntegers{__VA_ARGS__})
#endif

// to[column][row] := from[row][column], 64 rows of `columns`, in steps of 4 by 4; rows that are not there are zero.
void transpose(const float* from, int rows, int columns, float* to) {
  auto four = [&](int row, int column) {
    Four v = {};
    if (row < rows) std::memcpy(&v, from + row * columns + column, sizeof v);
    return v;
  };
  for (int r = 0; r < BLOCK; r += 4)
    for (int c = 0; c < columns; c += 4) {
      const Four a = four(r, c), b = four(r + 1, c), x = four(r + 2, c), y = four(r + 3, c);
      const Four ab0 = PICK(a, b, 0, 4, 1, 5), ab1 = PICK(a, b, 2, 6, 3, 7);
      const Four xy0 = PICK(x, y, 0, 4, 1, 5), xy1 = PICK(x, y, 2, 6, 3, 7);
      const Four turned[4] = {
          PICK(ab0, xy0, 0, 1, 4, 5), PICK(ab0, xy0, 2, 3, 6, 7),
          PICK(ab1, xy1, 0, 1, 4, 5), PICK(ab1, xy1, 2, 3, 6, 7)};
      for (int i = 0; i < 4; i++) std::memcpy(to + (c + i) * BLOCK + r, &turned[i], sizeof(Four));
    }
}

// Derivatives of one block of units by those of the layer above, of which only the listed ones are not zero.
void backward(const Lists& listed_above, const float* above, const Panels& panels, const float* weight, int block,
              int cases, float* delta) {
  alignas(64) float turned[BLOCK * BLOCK];  // [unit above][unit of this block]
  constexpr int V = BLOCK / LANES;
  const int width = panels.width, inputs = static_cast<int>(panels.inputs);
  for (int panel = 0; panel < panels.count; panel++) {
    transpose(weight + panels.weights(panel) + size_t(block) * BLOCK * width, inputs - block * BLOCK, width, turned);
    for (int item = 0; item < cases; item++) {
      const float* from = above + (size_t(panel) * cases + item) * width;
      const int32_t* listed = listed_above.unit(panel, item);
      float* to = delta + size_t(item) * BLOCK;
      Vector total[V] = {};
      if (panel)
        for (int v = 0; v < V; v++) total[v] = load(to + v * LANES);
      add_listed<V>(total, turned, listed, listed_above.count(panel, item), [=](int t) { return from[listed[t]]; });
      for (int v = 0; v < V; v++) store(to + v * LANES, total[v]);
    }
  }
}

// delta := delta times the slope of each unit, which follows from its activity and is 0 where that is.
void times_slope(const float* activity, bool logistic, int count, float* delta) {
  const Vector zero = {};
  for (int i = 0; i < count; i += LANES) {
    const Vector a = load(activity + i), d = load(delta + i);
    store(delta + i, logistic ? d * a * (all(1.0f) - a) : (a > zero ? d : zero));
  }
}

// Gradient product, momentum, step and, for hidden layers, norm bound of one panel. Returns whether a gradient was not 0.
// `rest` is what of the step is not in the derivatives yet.
template <int V>
bool step(const Lists& below, const float* delta, int inputs, int cases, float rest, float momentum, float limit,
          float* weight, float* velocity, float* bias, float* bias_velocity) {
  constexpr int W = V * LANES;
  Vector squared[V] = {}, largest[V] = {};
  for (int input = 0; input < inputs; input++) {
    const float* amounts = &below.amounts[size_t(input) * below.cases];
    Vector change[V] = {};
    add_listed<V>(change, delta, &below.which[size_t(input) * below.cases], below.used[input],
                  [=](int t) { return amounts[t]; });
    float *w = weight + size_t(input) * W, *s = velocity + size_t(input) * W;
    for (int v = 0; v < V; v++) {
      const Vector size = change[v] < 0.0f ? -change[v] : change[v];
      largest[v] = size > largest[v] ? size : largest[v];
      if (rest != 1.0f) change[v] *= all(rest);
      const Vector speed = all(momentum) * load(s + v * LANES) + change[v];
      const Vector moved = load(w + v * LANES) + speed;
      store(s + v * LANES, speed);
      store(w + v * LANES, moved);
      squared[v] += moved * moved;
    }
  }
  bool any = false;
  for (int v = 0; v < V; v++) {
    Vector change = {};
    for (int item = 0; item < cases; item++) change += load(delta + size_t(item) * W + v * LANES);
    if (rest != 1.0f) change *= all(rest);
    const Vector speed = all(momentum) * load(bias_velocity + v * LANES) + change;
    store(bias_velocity + v * LANES, speed);
    store(bias + v * LANES, load(bias + v * LANES) + speed);
    for (int i = 0; i < LANES; i++) any |= largest[v][i] > 0.0f;
  }
  if (std::isinf(limit)) return any;
  bool over = false;
  Vector scale[V];
  for (int v = 0; v < V; v++)
    for (int i = 0; i < LANES; i++) {
      const bool beyond = squared[v][i] > limit && !std::isinf(squared[v][i]);  // a length that overflows is let be
      scale[v][i] = beyond ? std::sqrt(limit / squared[v][i]) : 1.0f;
      over |= beyond;
    }
  for (int input = 0; over && input < inputs; input++)
    for (int v = 0; v < V; v++) {
      float* w = weight + size_t(input) * W + v * LANES;
      store(w, load(w) * scale[v]);
    }
  return any;
}

// What becomes of a case's outputs: its loss, and whether it is wrong. The total inputs z turn into derivatives by them.
struct Outcome {
  double loss;
  bool wrong;
};

Outcome softmax(float* z, int outputs, int64_t target) {
  const int answer = static_cast<int>(std::max_element(z, z + outputs) - z);
  const float largest = z[answer], right = z[target];
  double whole = 0;
  for (int i = 0; i < outputs; i++) whole += z[i] = std::exp(z[i] - largest);
  for (int i = 0; i < outputs; i++) z[i] = z[i] / static_cast<float>(whole) - (i == target ? 1.0f : 0.0f);
  return {std::log(whole) + largest - right, !(answer == target)};
}

Outcome logistic(float* z, int outputs, const float* targets) {
  Outcome found{0, false};
  for (int i = 0; i < outputs; i++) {
    found.loss += std::max(z[i], 0.0f) + std::log1p(std::exp(-std::fabs(z[i]))) - targets[i] * z[i];
    found.wrong |= (z[i] > 0) != (targets[i] > 0.5f);
    z[i] = 1 / (1 + std::exp(-z[i])) - targets[i];
  }
  return found;
}

Outcome linear(float* z, int outputs, const float* targets) {
  Outcome found{0, false};
  for (int i = 0; i < outputs; i++) {
    z[i] -= targets[i];
    found.loss += 0.5 * z[i] * z[i];
  }
  return found;
}

// Several threads may do so at once.
inline void say(uint8_t* flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }

// One mini-batch of one net on its way through an update. Each thread of a team has one: all work is in parts of loops.
struct Update {
  const Shape& shape;
  Net& net;
  Workspace& work;
  const Batch& batch;
  const Tally& tally;
  Team::Member& team;
  const int cases, last;  // the last weight layer is the output layer
  const float scale, rest;  // the step: what derivatives have of it, and what is left for the end

  Update(const Shape& s, Net& n, Workspace& w, const Batch& b, const Tally& t, Team::Member& member)
      : shape(s), net(n), work(w), batch(b), tally(t), team(member), cases(b.cases), last(s.layers - 1),
        scale(n.step < SMALLEST_STEP ? 1.0f : n.step), rest(n.step < SMALLEST_STEP ? n.step : 1.0f) {}

  void omit_units(int layer, int block, int item, float* row) const {
    if (!net.thresholds[layer]) return;
    int16_t draws[BLOCK];
    draw(net.seed, block * (BLOCK / 8), item, layer, batch.update, draws);
    omit(row, net.thresholds[layer] + block * BLOCK, draws);
  }

  void take_inputs() {
    const int blocks = blocks_of(shape.sizes[0]);
    team.share(cases, [&](int item) {
      const float* from = batch.inputs + batch.starts[item];
      for (int block = 0; block < blocks; block++) {
        float row[BLOCK] = {};
        std::copy(from + block * BLOCK, from + std::min((block + 1) * BLOCK, shape.sizes[0]), row);
        omit_units(0, block, item, row);
        work.lists[0].list(block, item, row);
      }
    });
  }

  void pass_forward(int k) {
    const Panels panels(shape, k);
    const bool logistic = shape.logistic;
    team.share(panels.count, [&](int p) {
      bool some = false;
      float* out = floats(work.passed[k]) + size_t(p) * cases * BLOCK;
      forward<4>(work.lists[k], net.weights[k] + panels.weights(p), net.biases[k] + p * BLOCK, cases, out);
      const int here = std::min(BLOCK, shape.sizes[k + 1] - p * BLOCK);
      for (int item = 0; item < cases; item++) {
        float* row = out + size_t(item) * BLOCK;
        activate(row, logistic);
        omit_units(k + 1, p, item, row);
        std::fill(row + here, row + BLOCK, 0.0f);  // logistic units of the padding are not zero by themselves
        work.lists[k + 1].list(p, item, row);
        some = some || work.lists[k + 1].count(p, item) > 0;
      }
      if (some) say(tally.active + k);
    });
  }

  Outcome judge(float* z, int outputs, int64_t item) const {
    if (shape.output == LOGISTIC) return logistic(z, outputs, batch.numbers + item * outputs);
    if (shape.output == LINEAR) return linear(z, outputs, batch.numbers + item * outputs);
    Outcome found{0, false};
    for (int g = 0; g < shape.softmaxes; z += shape.choices[g++]) {
      const Outcome one = softmax(z, shape.choices[g], batch.answers[item * shape.softmaxes + g]);
      found = {found.loss + one.loss, found.wrong || one.wrong};
    }
    return found;
  }

  // Losses and errors of all cases, in order, and from outputs to derivatives and their lists: small, one thread.
  void judge_all() {
    const Panels panels(shape, last);
    const int outputs = shape.sizes[last + 1];
    float *total = floats(work.passed[last]), *delta = floats(work.deltas[last]);
    std::fill(delta, delta + size_t(panels.count) * cases * panels.width, 0.0f);
    float* z = work.outputs.data();
    for (int item = 0; item < cases; item++) {
      for (int i = 0; i < outputs; i++) z[i] = total[panels.at(i, item, cases)];
      const Outcome found = judge(z, outputs, batch.order[item]);
      const float weight = batch.weights ? batch.weights[batch.order[item]] : 1.0f;
      *tally.loss += weight * found.loss;
      *tally.errors += found.wrong;
      for (int i = 0; i < outputs; i++) delta[panels.at(i, item, cases)] = z[i] * (weight * -scale / cases);
    }
    for (int p = 0; p < panels.count; p++)
      for (int item = 0; item < cases; item++) {
        const float* from = delta + (size_t(p) * cases + item) * panels.width;
        float row[BLOCK] = {};
        std::copy(from, from + panels.width, row);
        work.lists[last + 1].list(p, item, row);
      }
  }

  void put_out() {
    const Panels panels(shape, last);
    float* total = floats(work.passed[last]);
    team.share(panels.count, [&](int p) {
      auto go = panels.width == LANES ? forward<1> : forward<4>;
      go(work.lists[last], net.weights[last] + panels.weights(p), net.biases[last] + p * panels.width, cases,
         total + size_t(p) * cases * panels.width);
    });
    // Meanwhile the other threads turn the lists, which needs no derivatives.
    team.share(1 + static_cast<int>(work.turns.size()), [&](int task) {
      if (task == 0) return judge_all();
      const Task& one = work.turns[task - 1];
      work.lists[one.layer].turn(one.part, cases);
    });
  }

  // Derivatives of hidden layer k, the one below weights k.
  void pass_back(int k) {
    const Panels above(shape, k);
    const bool logistic = shape.logistic;
    team.share(blocks_of(shape.sizes[k]), [&](int block) {
      const size_t at = size_t(block) * cases * BLOCK;
      float* out = floats(work.deltas[k - 1]) + at;
      backward(work.lists[k + 1], floats(work.deltas[k]), above, net.weights[k], block, cases, out);
      times_slope(floats(work.passed[k - 1]) + at, logistic, cases * BLOCK, out);
    });
  }

  void take_steps() {
    team.share(static_cast<int>(work.steps.size()), [&](int task) {
      const int k = work.steps[task].layer, panel = work.steps[task].part;
      const Panels panels(shape, k);
      auto go = panels.width == LANES ? step<1> : step<4>;
      const size_t at = panels.weights(panel), unit = size_t(panel) * panels.width;
      const bool any = go(work.lists[k], floats(work.deltas[k]) + unit * cases, shape.sizes[k], cases, rest, net.momentum,
                          k < last ? net.limit : INFINITY, net.weights[k] + at, net.velocities[k] + at,
                          net.biases[k] + unit, net.bias_velocities[k] + unit);
      if (any && k < last) say(tally.moved);
    });
  }

  void run() {
    take_inputs();
    for (int k = 0; k < last; k++) pass_forward(k);
    put_out();
    for (int k = last; k > 0; k--) pass_back(k);
    take_steps();
  }
};

}  // namespace

// The units of a Boltzmann machine that are on, row by row: where a unit's draw is below its probability (pretrain/).
void turn_on(const float* probabilities, float* states, uint64_t seed, uint32_t place, uint32_t update, int64_t rows,
             int64_t units) {
  int16_t draws[BLOCK];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t first = 0; first < units; first += BLOCK) {
      draw(seed, static_cast<uint32_t>(first / 8), static_cast<uint32_t>(row), place, update, draws);
      const float* p = probabilities + row * units + first;
      float* state = states + row * units + first;
      const int count = static_cast<int>(std::min<int64_t>(BLOCK, units - first));
      for (int i = 0; i < count; i++) state[i] = draws[i] < p[i] * 65536.0f - 32768.5f ? 1.0f : 0.0f;
    }
  }
}

// How many threads have enough to do in the updates of one net: with less, handing a loop over takes longer than it does.
int busy_threads(const Shape& shape, int threads) {
  int64_t weights = 0;
  for (int k = 0; k < shape.layers; k++) weights += int64_t{shape.sizes[k]} * shape.sizes[k + 1];
  return static_cast<int>(std::min<int64_t>(threads, 1 + weights * (shape.batch + WHOLE) / A_THREAD));
}

void run(const Shape& shape, Net* nets, const Batch* batches, int updates, const Tally* tallies, int threads) {
  // Whole nets side by side, each thread's without a wait, where that takes an eighth longer at most than the parts of one
  // net after another would if no thread ever waited.
  const int busy = busy_threads(shape, threads), rounds = (shape.nets + threads - 1) / threads;
  const bool side_by_side = shape.nets > 1 && 8 * rounds * busy <= 9 * shape.nets;
  const int crew = side_by_side ? std::min(threads, shape.nets) : busy;
  std::vector<Workspace> work;
  for (int made = 0; made < (side_by_side ? crew : 1); made++) work.emplace_back(shape, shape.batch);
  auto train = [&](int net, Workspace& space, Team::Member& member) {
    for (int u = 0; u < updates; u++)
      Update(shape, nets[net], space, batches[size_t(net) * updates + u], tallies[net], member).run();
  };
  Team team(crew), nobody(1);
  team.run([&](Team::Member& member) {
    Team::Member alone(nobody, 0);
    if (side_by_side) return member.share(shape.nets, [&](int net) { train(net, work[member.number], alone); });
    for (int net = 0; net < shape.nets; net++) train(net, work[0], member);
  });
}

}  // namespace INSTRUCTION_SET
