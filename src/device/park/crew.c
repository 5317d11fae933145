// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: threads that do one job together.
#include "base/sys.h"
#include "device/park/store.h"

void tide__crew_start(tide__crew* crew, uint64_t wanted, void* (*run)(void*), void* user) {
  const uint64_t most = tide__min(TIDE__CREW_MOST, tide__sys_processors());
  crew->count = 0;
  while (crew->count < tide__min(wanted, most) &&
         tide__sys_thread_start(&crew->threads[crew->count], run, user) == 0) {
    crew->count++;
  }
}

void tide__crew_join(tide__crew* crew) {
  while (crew->count > 0) (void)pthread_join(crew->threads[--crew->count], NULL);
}
