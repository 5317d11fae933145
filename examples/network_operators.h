// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The operators of the networks in network_models.h, in plain C: float32, no library but libm, additions
// always in the same order. They do not know where memory comes from: a `shape` function computes the size of
// the output, the program finds memory for it, and a `run` function writes it. An operator whose output may
// overlap an input reads an element, or a row, for the last time before it writes the same one.
#ifndef NETWORK_OPERATORS_H
#define NETWORK_OPERATORS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAX_INPUTS 3

// A value during a run: a tensor, a list of tensors, or a truth value.
typedef struct net_value {
  float* data;
  size_t dims[4];  // from the outermost: images, channels, rows, columns; a matrix is { 1, 1, rows, columns }
  size_t strides[4];  // in floats; 0 if there is only one, which is then broadcast
  const struct net_value* items[MAX_INPUTS];
  size_t item_count;
  bool answer;
  size_t parameter;  // of the operation that computes it
} net_value;

typedef void operator_function(const net_value* const* in, net_value* out);

typedef enum net_form {
  FORM_COMPUTES,  // writes its output to given memory
  FORM_VIEWS,     // is a view of its input
  FORM_LISTS,     // makes a list of its inputs
  FORM_ASKS,      // computes a truth value
  FORM_CHOOSES,   // runs one of two blocks, and has its result
} net_form;

typedef struct net_operation {
  net_form form;
  size_t over;  // the output may overlap any of so many first inputs
  operator_function* shape;
  operator_function* run;
} net_operation;

// ---------------------------------------------------------------------------------------------------
// Shapes

static inline size_t value_count(const net_value* v) {
  return v->dims[0] * v->dims[1] * v->dims[2] * v->dims[3];
}

// The number of floats from the first to the last, including gaps.
static inline size_t value_span(const net_value* v) {
  size_t last = 0;
  for (size_t d = 0; d < 4; ++d) last += (v->dims[d] - 1) * v->strides[d];
  return last + 1;
}

static inline float* value_at(const net_value* v, size_t n, size_t c, size_t y, size_t x) {
  return v->data + n * v->strides[0] + c * v->strides[1] + y * v->strides[2] + x * v->strides[3];
}

// A tensor without gaps.
static inline void shape_set(net_value* v, size_t images, size_t channels, size_t rows, size_t columns) {
  const size_t dims[4] = { images, channels, rows, columns };
  size_t step = 1;
  for (size_t d = 4; d-- > 0; step *= dims[d]) {
    v->dims[d] = dims[d];
    v->strides[d] = dims[d] == 1 ? 0 : step;
  }
}

static void shape_same(const net_value* const* in, net_value* out) {
  const size_t* const dims = in[0]->dims;
  shape_set(out, dims[0], dims[1], dims[2], dims[3]);
}

static void do_nothing(const net_value* const* in, net_value* out) { (void)in, (void)out; }

// ---------------------------------------------------------------------------------------------------
// One element at a time

static void run_relu(const net_value* const* in, net_value* out) {
  const size_t count = value_count(out);
  for (size_t i = 0; i < count; ++i) out->data[i] = in[0]->data[i] > 0 ? in[0]->data[i] : 0;
}

static void run_gelu(const net_value* const* in, net_value* out) {
  const size_t count = value_count(out);
  for (size_t i = 0; i < count; ++i) {
    const float x = in[0]->data[i];
    out->data[i] = 0.5F * x * (1 + tanhf(0.797884561F * (x + 0.044715F * x * x * x)));
  }
}

// Divides by the square root of the parameter.
static void run_scale(const net_value* const* in, net_value* out) {
  const size_t count = value_count(out);
  const float factor = 1 / sqrtf((float)out->parameter);
  for (size_t i = 0; i < count; ++i) out->data[i] = in[0]->data[i] * factor;
}

// The second input may be one row, or one number for each channel.
static void run_add(const net_value* const* in, net_value* out) {
  for (size_t n = 0; n < out->dims[0]; ++n)
    for (size_t c = 0; c < out->dims[1]; ++c)
      for (size_t y = 0; y < out->dims[2]; ++y)
        for (size_t x = 0; x < out->dims[3]; ++x)
          *value_at(out, n, c, y, x) = *value_at(in[0], n, c, y, x) + *value_at(in[1], n, c, y, x);
}

static const net_operation relu = { FORM_COMPUTES, 1, shape_same, run_relu };
static const net_operation gelu = { FORM_COMPUTES, 1, shape_same, run_gelu };
static const net_operation scale = { FORM_COMPUTES, 1, shape_same, run_scale };
static const net_operation bias = { FORM_COMPUTES, 1, shape_same, run_add };  // over its first input only
static const net_operation add = { FORM_COMPUTES, 2, shape_same, run_add };   // two of one shape: over either

// ---------------------------------------------------------------------------------------------------
// One row at a time

static void run_softmax(const net_value* const* in, net_value* out) {
  const size_t columns = out->dims[3];
  const size_t count = value_count(out);
  for (size_t begin = 0; begin < count; begin += columns) {
    const float* const x = in[0]->data + begin;
    float* const y = out->data + begin;
    float largest = x[0];
    float sum = 0;
    for (size_t i = 1; i < columns; ++i) largest = x[i] > largest ? x[i] : largest;
    for (size_t i = 0; i < columns; ++i) sum += y[i] = expf(x[i] - largest);
    for (size_t i = 0; i < columns; ++i) y[i] /= sum;
  }
}

// Inputs: the rows to normalise, a factor and a summand for each column.
static void run_layer_norm(const net_value* const* in, net_value* out) {
  const size_t columns = out->dims[3];
  const size_t count = value_count(out);
  for (size_t begin = 0; begin < count; begin += columns) {
    const float* const x = in[0]->data + begin;
    float* const y = out->data + begin;
    float mean = 0;
    float variance = 0;
    for (size_t i = 0; i < columns; ++i) mean += x[i];
    mean /= (float)columns;
    for (size_t i = 0; i < columns; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float factor = 1 / sqrtf(variance / (float)columns + 1e-5F);
    for (size_t i = 0; i < columns; ++i) y[i] = (x[i] - mean) * factor * in[1]->data[i] + in[2]->data[i];
  }
}

static const net_operation softmax = { FORM_COMPUTES, 1, shape_same, run_softmax };
static const net_operation layer_norm = { FORM_COMPUTES, 1, shape_same, run_layer_norm };

// ---------------------------------------------------------------------------------------------------
// Matrices and attention

static void shape_matmul(const net_value* const* in, net_value* out) {
  shape_set(out, in[0]->dims[0], in[0]->dims[1], in[0]->dims[2], in[1]->dims[3]);
}

static void run_matmul(const net_value* const* in, net_value* out) {
  memset(out->data, 0, value_count(out) * sizeof(float));
  const size_t stride = in[1]->strides[3];
  for (size_t c = 0; c < out->dims[1]; ++c)
    for (size_t y = 0; y < out->dims[2]; ++y)
      for (size_t k = 0; k < in[0]->dims[3]; ++k) {
        const float factor = *value_at(in[0], 0, c, y, k);
        const float* const from = value_at(in[1], 0, c, k, 0);
        float* const to = value_at(out, 0, c, y, 0);
        for (size_t x = 0; x < out->dims[3]; ++x) to[x] += factor * from[x * stride];
      }
}

// Inputs: a row of token numbers, a row for each token of the vocabulary, a row for each position.
static void shape_embed(const net_value* const* in, net_value* out) {
  shape_set(out, 1, 1, in[0]->dims[3], in[1]->dims[3]);
}

static void run_embed(const net_value* const* in, net_value* out) {
  for (size_t y = 0; y < out->dims[2]; ++y) {
    const size_t token = (size_t)in[0]->data[y];
    for (size_t x = 0; x < out->dims[3]; ++x)
      *value_at(out, 0, 0, y, x) = *value_at(in[1], 0, 0, token, x) + *value_at(in[2], 0, 0, y, x);
  }
}

#define HEADS ((size_t)4)

// A row of the input has queries, keys and values side by side, each of all heads. The parameter, 0 to 2,
// selects one of the three; the view has a matrix for each head.
static void shape_heads(const net_value* const* in, net_value* out) {
  const size_t columns = in[0]->dims[3] / 3 / HEADS;
  shape_set(out, 1, HEADS, in[0]->dims[2], columns);
  out->strides[1] = columns;
  out->strides[2] = in[0]->dims[3];
}

static void run_heads(const net_value* const* in, net_value* out) {
  out->data = in[0]->data + out->parameter * (in[0]->dims[3] / 3);
}

static void shape_transpose(const net_value* const* in, net_value* out) {
  shape_set(out, in[0]->dims[0], in[0]->dims[1], in[0]->dims[3], in[0]->dims[2]);
  out->strides[1] = in[0]->strides[1];
  out->strides[2] = in[0]->strides[3];
  out->strides[3] = in[0]->strides[2];
}

static void run_transpose(const net_value* const* in, net_value* out) { out->data = in[0]->data; }

// Puts the heads side by side.
static void shape_join(const net_value* const* in, net_value* out) {
  shape_set(out, 1, 1, in[0]->dims[2], in[0]->dims[1] * in[0]->dims[3]);
}

static void run_join(const net_value* const* in, net_value* out) {
  const size_t columns = in[0]->dims[3];
  for (size_t y = 0; y < out->dims[2]; ++y)
    for (size_t x = 0; x < out->dims[3]; ++x)
      *value_at(out, 0, 0, y, x) = *value_at(in[0], 0, x / columns, y, x % columns);
}

static const net_operation matmul = { FORM_COMPUTES, 0, shape_matmul, run_matmul };
static const net_operation embed = { FORM_COMPUTES, 0, shape_embed, run_embed };
static const net_operation heads = { FORM_VIEWS, 0, shape_heads, run_heads };
static const net_operation transpose = { FORM_VIEWS, 0, shape_transpose, run_transpose };
static const net_operation join = { FORM_COMPUTES, 0, shape_join, run_join };

// ---------------------------------------------------------------------------------------------------
// Images

// Inputs: images, and weights of { output channels, input channels, edge, edge } with an odd edge. Images are
// padded with zeros.
static void shape_convolve(const net_value* const* in, net_value* out) {
  shape_set(out, in[0]->dims[0], in[1]->dims[0], in[0]->dims[2], in[0]->dims[3]);
}

// Adds one plane to another, shifted and times a weight.
static void convolve_plane(float* to, const float* from, const net_value* shape, float weight, int down,
                           int right) {
  const int rows = (int)shape->dims[2];
  const int columns = (int)shape->dims[3];
  const int begin = right < 0 ? -right : 0;
  const int end = right > 0 ? columns - right : columns;
  for (int y = down < 0 ? -down : 0; y < rows && y + down < rows; ++y)
    for (int x = begin; x < end; ++x) to[y * columns + x] += weight * from[(y + down) * columns + x + right];
}

static void run_convolve(const net_value* const* in, net_value* out) {
  const size_t edge = in[1]->dims[3];
  const int middle = (int)edge / 2;
  memset(out->data, 0, value_count(out) * sizeof(float));
  for (size_t n = 0; n < out->dims[0]; ++n)
    for (size_t made = 0; made < out->dims[1]; ++made)
      for (size_t read = 0; read < in[0]->dims[1]; ++read)
        for (size_t i = 0; i < edge * edge; ++i)
          convolve_plane(value_at(out, n, made, 0, 0), value_at(in[0], n, read, 0, 0), out,
                         *value_at(in[1], made, read, i / edge, i % edge), (int)(i / edge) - middle,
                         (int)(i % edge) - middle);
}

// The largest of each square of two by two.
static void shape_max_pool(const net_value* const* in, net_value* out) {
  shape_set(out, in[0]->dims[0], in[0]->dims[1], in[0]->dims[2] / 2, in[0]->dims[3] / 2);
}

static void run_max_pool(const net_value* const* in, net_value* out) {
  for (size_t n = 0; n < out->dims[0]; ++n)
    for (size_t c = 0; c < out->dims[1]; ++c)
      for (size_t y = 0; y < out->dims[2]; ++y)
        for (size_t x = 0; x < out->dims[3]; ++x) {
          const float* const corner = value_at(in[0], n, c, 2 * y, 2 * x);
          const float above = fmaxf(corner[0], corner[1]);
          const float below = fmaxf(corner[in[0]->strides[2]], corner[in[0]->strides[2] + 1]);
          *value_at(out, n, c, y, x) = fmaxf(above, below);
        }
}

// The mean of each channel: a row for each image.
static void shape_mean_pool(const net_value* const* in, net_value* out) {
  shape_set(out, 1, 1, in[0]->dims[0], in[0]->dims[1]);
}

static void run_mean_pool(const net_value* const* in, net_value* out) {
  const size_t plane = in[0]->dims[2] * in[0]->dims[3];
  for (size_t i = 0; i < value_count(out); ++i) {
    float sum = 0;
    for (size_t k = 0; k < plane; ++k) sum += in[0]->data[i * plane + k];
    out->data[i] = sum / (float)plane;
  }
}

static void shape_list(const net_value* const* in, net_value* out) {
  out->item_count = out->parameter;
  for (size_t i = 0; i < out->item_count; ++i) out->items[i] = in[i];
}

// Concatenates the channels of all tensors of a list.
static void shape_concat(const net_value* const* in, net_value* out) {
  size_t channels = 0;
  for (size_t i = 0; i < in[0]->item_count; ++i) channels += in[0]->items[i]->dims[1];
  const size_t* const dims = in[0]->items[0]->dims;
  shape_set(out, dims[0], channels, dims[2], dims[3]);
}

static void run_concat(const net_value* const* in, net_value* out) {
  float* to = out->data;
  for (size_t n = 0; n < out->dims[0]; ++n)
    for (size_t i = 0; i < in[0]->item_count; ++i) {
      const net_value* const item = in[0]->items[i];
      const size_t count = value_count(item) / item->dims[0];
      memcpy(to, item->data + n * count, count * sizeof(float));
      to += count;
    }
}

// Is the mean above one half?
static void run_is_bright(const net_value* const* in, net_value* out) {
  const size_t count = value_count(in[0]);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += (double)in[0]->data[i];
  out->answer = sum > 0.5 * (double)count;
}

static const net_operation convolve = { FORM_COMPUTES, 0, shape_convolve, run_convolve };
static const net_operation max_pool = { FORM_COMPUTES, 0, shape_max_pool, run_max_pool };
static const net_operation mean_pool = { FORM_COMPUTES, 0, shape_mean_pool, run_mean_pool };
static const net_operation list = { FORM_LISTS, 0, shape_list, do_nothing };
static const net_operation concat = { FORM_COMPUTES, 0, shape_concat, run_concat };
static const net_operation is_bright = { FORM_ASKS, 0, do_nothing, run_is_bright };
static const net_operation choose = { FORM_CHOOSES, 0, do_nothing, do_nothing };

#endif
