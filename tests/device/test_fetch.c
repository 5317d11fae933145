// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for a process that copies descriptors out of this one. A second process receives the numbers over a
// socket, copies the descriptors, checks and writes the memory, and answers.
#define T_THREADS
#include <fcntl.h>
#include <sys/prctl.h>

#include "device/devices.h"
#include "process.h"

#define BYTES (12 * MIB)
#define PARTS_MAX 64

typedef struct question {
  char name[8];  // of the machine
  int32_t process;
  tide_share share;
  tide_physical_share parts[PARTS_MAX];
  uint8_t expected;
  uint8_t written;
} question;

typedef struct answer {
  uint32_t status;
  bool is_as_expected;
} answer;

// ---------------------------------------------------------------------------------------------------
// Who fetches

static bool memory_has(tide_machine* m, const uint8_t* address, uint8_t value) {
  uint8_t* const copy = malloc(BYTES);
  bool is_so = copy != NULL;
  device_read(m, 0, address, copy, BYTES);
  is_so = is_so && copy[0] == value && memcmp(copy, copy + 1, BYTES - 1) == 0;
  free(copy);
  return is_so;
}

static answer fetch_and_write(tide_device_cache* d, const question* q) {
  tide_machine* const m = tide_device_machine(d);
  void* block = NULL;
  const tide_status status = tide_device_import_from(d, q->process, &q->share, q->parts, &block);
  if (status != TIDE_OK) return (answer){ (uint32_t)status, false };
  const bool is_so = memory_has(m, block, q->expected);
  device_fill(m, 0, block, q->written, BYTES);
  return (answer){ (uint32_t)tide_device_unimport(d, block), is_so };
}

T_ROLE(fetcher_role) {
  const int to = atoi(argument);
  tide_machine* m = NULL;
  tide_device_cache* d = NULL;
  question q;
  while (recv(to, &q, sizeof q, 0) == (ssize_t)sizeof q) {
    if (m == NULL) T_OK(machine_new(q.name, NULL, &m));
    if (d == NULL) T_OK(tide_device_new(m, 0, NULL, &d));
    const answer a = fetch_and_write(d, &q);
    if (send(to, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a) break;
  }
  tide_device_free(d);
  tide_machine_free(m);
  (void)close(to);
}

static answer ask(const t_process* p, const question* q) {
  answer a = { 0, false };
  T_EQ(send(p->socket, q, sizeof *q, MSG_NOSIGNAL), (ssize_t)sizeof *q);
  T_EQ(recv(p->socket, &a, sizeof a, 0), (ssize_t)sizeof a);
  return a;
}

// ---------------------------------------------------------------------------------------------------
// Who shares

static void need_parts(tide_machine* m, tide_device_cache* d) {
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  if (!is_tide()) expand(m, d);
}

static question share_kept(tide_device_cache* d, tide_block block) {
  question q = { .process = (int32_t)getpid(), .share = TIDE_SHARE_INIT };
  (void)snprintf(q.name, sizeof q.name, "%s", machine_variant());
  T_OK(tide_device_share_kept(d, block.address, &q.share, q.parts, PARTS_MAX));
  T_LT(0, q.share.part_count);
  return q;
}

static bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

// A child may trace its parent only if that permits it.
DEVICE_TEST(test_device__another_process_copies_descriptors) {
  need_parts(m, d);
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  t_process p = t_process_new("fetcher_role");
  (void)take(d, NULL, 15 * MIB);
  const tide_block block = take(d, NULL, BYTES);
  for (uint8_t round = 1; round < 4; ++round) {
    device_fill(m, 0, bytes_of(block), round, BYTES);
    question q = share_kept(d, block);
    q.expected = round;
    q.written = (uint8_t)(round + 100);

    const answer a = ask(&p, &q);

    if ((tide_status)a.status == TIDE_ERR_ACCESS) t_skip("the system does not allow pidfd_getfd here");
    T_STATUS((tide_status)a.status, TIDE_OK);
    T_CHECK(a.is_as_expected);
    expect_filled(m, 0, bytes_of(block), (uint8_t)(round + 100), BYTES);
  }
  t_process_end(&p);
}

DEVICE_TEST(test_device__a_handle_has_one_descriptor_until_its_memory_goes) {
  need_parts(m, d);
  const tide_block block = take(d, NULL, BYTES);
  const question first = share_kept(d, block);
  const question second = share_kept(d, block);
  T_EQ(first.share.part_count, second.share.part_count);
  T_LT(0, first.share.part_bytes);
  for (size_t i = 0; i < first.share.part_count; ++i) {
    T_EQ(first.parts[i].descriptor, second.parts[i].descriptor);
    T_EQ(first.parts[i].offset, 0);
    T_EQ(first.parts[i].bytes, first.share.part_bytes);
    T_CHECK(is_open(first.parts[i].descriptor));
  }

  give(d, block);
  for (size_t i = 0; i < first.share.part_count; ++i) T_CHECK(is_open(first.parts[i].descriptor));
  const size_t before = free_bytes(m, 0);
  trim(d);

  for (size_t i = 0; i < first.share.part_count; ++i) T_CHECK(!is_open(first.parts[i].descriptor));
  if (!is_cuda(m)) T_LE(before + BYTES, free_bytes(m, 0));
}

DEVICE_TEST(test_device__freeing_an_allocator_closes_its_descriptors) {
  need_parts(m, d);
  tide_device_cache* const e = device_new(m, 0, NULL);
  if (!is_tide()) configure(e, "expandable_segments:True");
  const question q = share_kept(e, take(e, NULL, BYTES));

  tide_device_free(e);

  for (size_t i = 0; i < q.share.part_count; ++i) T_CHECK(!is_open(q.parts[i].descriptor));
}

// A closed descriptor, and a process that is gone.
DEVICE_TEST(test_device__descriptors_that_cannot_be_copied_are_refused) {
  need_parts(m, d);
  const tide_block block = take(d, NULL, BYTES);
  void* there = &there;
  question q = share_kept(d, block);
  const question good = q;
  T_STATUS(tide_device_import_from(d, 0, &q.share, q.parts, &there), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(there, NULL);
  T_STATUS(tide_device_import_from(d, INT32_MAX, &q.share, q.parts, &there), TIDE_ERR_STATE);
  q.parts[q.share.part_count - 1].descriptor = 1 << 20;
  T_STATUS(tide_device_import_from(d, q.process, &q.share, q.parts, &there), TIDE_ERR_STATE);
  q.parts[q.share.part_count - 1].descriptor = -1;
  T_STATUS(tide_device_import_from(d, q.process, &q.share, q.parts, &there), TIDE_ERR_STATE);
  q = good;
  q.share.part_count = 0;
  T_STATUS(tide_device_import_from(d, q.process, &q.share, q.parts, &there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_import_from(d, q.process, NULL, q.parts, &there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_import_from(NULL, q.process, &q.share, q.parts, &there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_share_kept(NULL, block.address, &q.share, q.parts, 1), TIDE_ERR_ARGUMENT);

  T_OK(tide_device_import_from(d, good.process, &good.share, good.parts, &there));
  T_OK(tide_device_unimport(d, there));
}
