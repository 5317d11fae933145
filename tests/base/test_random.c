// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pseudorandom numbers: the sequences are those that plans were made with, and they are spread evenly.
#include "base/random.h"

#include "t.h"

// Worked out by another implementation, in integers of any size.
T_TEST(test_random__sequences_never_change) {
  static const uint64_t from_0[] = { UINT64_C(0x9ca066f1a4ab2eea), UINT64_C(0xd30b054265133dd7),
                                     UINT64_C(0xd7f1515598b6b983), UINT64_C(0x6ae4c48206c1097e) };
  static const uint64_t from_42[] = { UINT64_C(0x2d1c8760f8047fc7), UINT64_C(0x077fb59b63a77004),
                                      UINT64_C(0x778bf073f79acc91), UINT64_C(0xfe8930b98846eec4) };
  uint64_t zero = 0;
  uint64_t other = 42;
  for (size_t i = 0; i < sizeof from_0 / sizeof *from_0; i++) {
    T_EQ(tide__random_next(&zero), from_0[i]);
    T_EQ(tide__random_next(&other), from_42[i]);
  }
  T_EQ(tide__random_mix(0), 0);
  T_EQ(tide__random_mix(1), UINT64_C(0xb456bcfc34c2cb2c));
  T_EQ(tide__random_mix(UINT64_MAX), UINT64_C(0x64b5720b4b825f21));
}

T_TEST(test_random__fractions_are_even_and_below_one) {
  enum { PARTS = 16, DRAWS = 64000 };
  size_t counts[PARTS] = { 0 };
  uint64_t state = 7;
  for (size_t i = 0; i < DRAWS; i++) {
    const float fraction = tide__random_fraction(&state);
    T_CHECK(fraction >= 0 && fraction < 1);
    counts[(size_t)(fraction * PARTS)]++;
  }
  for (size_t i = 0; i < PARTS; i++) {
    T_LE(3700, counts[i]);
    T_LE(counts[i], 4300);
  }
}

// Each of the 64 bits of the input changes about half of the output.
T_TEST(test_random__mix_spreads_every_bit) {
  uint64_t state = 1;
  for (unsigned bit = 0; bit < 64; bit++) {
    size_t changed = 0;
    for (size_t i = 0; i < 256; i++) {
      const uint64_t n = tide__random_next(&state);
      const uint64_t before = tide__random_mix(n);
      changed += (size_t)__builtin_popcountll(before ^ tide__random_mix(n ^ UINT64_C(1) << bit));
    }
    T_LE((size_t)256 * 30, changed);
    T_LE(changed, (size_t)256 * 34);
  }
}
