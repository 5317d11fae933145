// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// CRC-32C by tables, eight bytes at a time (M. E. Kounavis and F. L. Berry, "Novel table lookup-based
// algorithms for high-performance CRC generation", 2008). The caller owns the tables, so no global state has
// to be initialised.
#include "base/crc.h"

#define CRC_POLYNOMIAL 0x82f63b78u  // 0x1edc6f41 with its bits in reverse

void tide__crc_init(tide__crc* crc) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; bit++) rest = (rest >> 1) ^ (CRC_POLYNOMIAL & (0u - (rest & 1)));
    crc->word[0][byte] = rest;
  }
  for (size_t k = 1; k < 8; k++) {
    for (size_t byte = 0; byte < 256; byte++) {
      const uint32_t before = crc->word[k - 1][byte];
      crc->word[k][byte] = (before >> 8) ^ crc->word[0][before & 0xff];
    }
  }
}

static uint32_t crc_load(const uint8_t* at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t tide__crc_of(const tide__crc* crc, const void* data, size_t bytes) {
  const uint8_t* at = data;
  uint32_t rest = UINT32_MAX;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const uint32_t low = rest ^ crc_load(at);
    const uint32_t high = crc_load(at + 4);
    rest = crc->word[7][low & 0xff] ^ crc->word[6][low >> 8 & 0xff] ^ crc->word[5][low >> 16 & 0xff] ^
           crc->word[4][low >> 24] ^ crc->word[3][high & 0xff] ^ crc->word[2][high >> 8 & 0xff] ^
           crc->word[1][high >> 16 & 0xff] ^ crc->word[0][high >> 24];
  }
  for (; bytes > 0; at++, bytes--) rest = (rest >> 8) ^ crc->word[0][(rest ^ *at) & 0xff];
  return ~rest;
}
