// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: copies, fills and peers.
#include "conformance/check.h"

CHECK_FILE(check_copy);

CHECK(copy__carries_bytes_there_and_back) {
  enum { BYTES = 300001 };
  t_rng rng = t_rng_new(1);
  uint8_t* const there = malloc(BYTES);
  uint8_t* const back = calloc(1, BYTES);
  for (size_t i = 0; i < BYTES; ++i) there[i] = (uint8_t)t_rng_next(&rng);
  uint8_t* const a = raw_new(m, 0, BYTES);
  uint8_t* const b = raw_new(m, 0, BYTES);

  device_write(m, 0, a, there, BYTES);
  T_OK(tide_machine_copy(m, 0, NULL, b, a, BYTES));
  stream_finish(m, 0, NULL);
  device_read(m, 0, b, back, BYTES);

  if (machine_has_memory(m)) T_EQ(memcmp(there, back, BYTES), 0);
  free(there);
  free(back);
}

CHECK(copy__takes_ordinary_memory) {
  uint8_t* const there = malloc(5000);
  uint8_t* const back = calloc(1, 5000);
  memset(there, 0x42, 5000);
  uint8_t* const raw = raw_new(m, 0, 5000);

  T_OK(tide_machine_copy(m, 0, NULL, raw, there, 5000));
  T_OK(tide_machine_copy(m, 0, NULL, back, raw, 5000));
  stream_finish(m, 0, NULL);

  if (machine_has_memory(m)) T_FILLED(back, 0x42, 5000);
  free(there);
  free(back);
}

CHECK(copy__of_no_bytes_needs_no_addresses) {
  uint8_t* const raw = raw_new(m, 0, 64);
  device_fill(m, 0, raw, 0x11, 64);

  T_OK(tide_machine_copy(m, 0, NULL, NULL, NULL, 0));
  T_OK(tide_machine_copy(m, 0, NULL, raw, NULL, 0));
  T_OK(tide_machine_copy(m, 0, NULL, raw, raw, 0));
  T_OK(tide_machine_fill(m, 0, NULL, NULL, 0x22, 0));
  T_OK(tide_machine_fill(m, 0, NULL, raw, 0x22, 0));
  stream_finish(m, 0, NULL);

  expect_filled(m, 0, raw, 0x11, 64);
}

CHECK(copy__touches_no_byte_beside_its_range) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 0, 4096);
  device_fill(m, 0, a, 0xaa, 4096);
  device_fill(m, 0, b, 0xbb, 4096);

  T_OK(tide_machine_copy(m, 0, NULL, b + 101, a + 3, 999));
  stream_finish(m, 0, NULL);

  expect_filled(m, 0, b, 0xbb, 101);
  expect_filled(m, 0, b + 101, 0xaa, 999);
  expect_filled(m, 0, b + 1100, 0xbb, 4096 - 1100);
}

CHECK(fill__touches_no_byte_beside_its_range) {
  uint8_t* const a = raw_new(m, 0, 4096);
  device_fill(m, 0, a, 0x01, 4096);

  device_fill(m, 0, a + 13, 0xff, 1001);

  expect_filled(m, 0, a, 0x01, 13);
  expect_filled(m, 0, a + 13, 0xff, 1001);
  expect_filled(m, 0, a + 1014, 0x01, 4096 - 1014);
}

CHECK_REAL(copy__reaches_another_device) {
  need_two_devices(m);
  uint8_t* const a = raw_new(m, 0, 70001);
  uint8_t* const b = raw_new(m, 1, 70001);
  device_fill(m, 0, a, 0x19, 70001);

  T_OK(tide_machine_copy(m, 0, NULL, b, a, 70001));
  stream_finish(m, 0, NULL);

  expect_filled(m, 1, b, 0x19, 70001);
}

CHECK(peer_enable__twice_is_fine) {
  need_two_devices(m);
  bool is_possible = false;
  T_OK(tide_machine_peer_query(m, 0, 1, &is_possible));
  if (!is_possible) t_skip("no peer access between devices 0 and 1");

  T_OK(tide_machine_peer_enable(m, 0, 1));
  T_OK(tide_machine_peer_enable(m, 0, 1));

  T_OK(tide_machine_peer_disable(m, 0, 1));
}
