// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// CRC-32C (Castagnoli), the checksum of iSCSI and ext4. It detects every burst of up to 32 wrong bits, and
// any three wrong bits in up to 256 MiB.
#ifndef TIDEMARK_SRC_BASE_CRC_H
#define TIDEMARK_SRC_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

// Lookup tables: word[k][b] is the remainder of byte b followed by k zero bytes.
typedef struct tide__crc {
  uint32_t word[8][256];
} tide__crc;

// Fills the tables, in a few µs.
void tide__crc_init(tide__crc* crc);

// The checksum of `bytes` bytes; of "123456789" it is 0xe3069283.
// Cost: about a byte a clock cycle.
uint32_t tide__crc_of(const tide__crc* crc, const void* data, size_t bytes);

#endif
