// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a program with large arrays does: products of matrices into new arrays, sorting, joining. Prints sums.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS ((size_t)160)
#define NUMBERS ((size_t)300000)

static double* product(const double* a, const double* b) {
  double* const result = calloc(ROWS * ROWS, sizeof *result);
  if (result == NULL) abort();
  for (size_t i = 0; i < ROWS; ++i) {
    for (size_t k = 0; k < ROWS; ++k) {
      for (size_t j = 0; j < ROWS; ++j) result[i * ROWS + j] += a[i * ROWS + k] * b[k * ROWS + j];
    }
  }
  return result;
}

static void powers(void) {
  double* matrix = malloc(ROWS * ROWS * sizeof *matrix);
  if (matrix == NULL) abort();
  for (size_t i = 0; i < ROWS * ROWS; ++i) matrix[i] = (double)(i * 7919 % 1000) / 100000.0;
  for (int power = 0; power < 5; ++power) {
    double* const next = product(matrix, matrix);
    free(matrix);
    matrix = next;
  }
  double sum = 0;
  for (size_t i = 0; i < ROWS * ROWS; ++i) sum += matrix[i];
  (void)printf("matrix: %.12g\n", sum);
  free(matrix);
}

static int number_order(const void* a, const void* b) {
  const uint32_t left = *(const uint32_t*)a;
  const uint32_t right = *(const uint32_t*)b;
  return (left > right) - (left < right);
}

static void sorting(void) {
  for (uint32_t round = 0; round < 3; ++round) {
    uint32_t* numbers = malloc(NUMBERS * sizeof *numbers);
    if (numbers == NULL) abort();
    for (size_t i = 0; i < NUMBERS; ++i) numbers[i] = ((uint32_t)i + round) * 2654435761u;
    qsort(numbers, NUMBERS, sizeof *numbers, number_order);
    uint32_t* const twice = realloc(numbers, 2 * NUMBERS * sizeof *numbers);
    if (twice == NULL) abort();
    for (size_t i = 0; i < NUMBERS; ++i) twice[NUMBERS + i] = ~twice[i];
    uint64_t sum = 0;
    for (size_t i = 0; i < 2 * NUMBERS; ++i) sum = sum * 31 + twice[i];
    (void)printf("sorted: %016llx\n", (unsigned long long)sum);
    free(twice);
  }
}

int main(void) {
  powers();
  sorting();
  return 0;
}
