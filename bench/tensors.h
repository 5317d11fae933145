// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program that uses memory as a network on the CPU does, to compare allocators with: see tensors.c. One
// sample is one process, because how much memory a process had is known for all of its life alone.
#ifndef TIDEMARK_BENCH_TENSORS_H
#define TIDEMARK_BENCH_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The workloads. An operation of a cell is an allocation and its release.
typedef struct tensors_cell {
  const char* name;
  size_t threads;
  double low_bytes;  // sizes lie between these, as often in one doubling as in another
  double high_bytes;
  double jitter;        // each size differs from run to run by this part of it, up or down
  bool is_touched;      // a byte of each page is written
  bool is_handed_over;  // the first thread allocates, the second releases
} tensors_cell;

// The allocators.
typedef enum tensors_allocator {
  TENSORS_LIBC,   // posix_memalign() and free(), which a preloaded library may replace
  TENSORS_CACHE,  // a toy: lists of each thread by size, which never give anything back
  TENSORS_PLAN,   // offsets in an arena that were planned ahead
  TENSORS_TIDE,   // tide_cpu_alloc() and tide_cpu_release()
  TENSORS_ALLOCATORS
} tensors_allocator;

// Of an operation of one thread, after some runs that do not count. The last four are there when two threads
// work in memory that is not touched, and else 0; by the processor's time they do not see who waits.
typedef struct tensors_result {
  double ns;
  double processor_ns;
  double faults;         // of pages
  double peak_rss_mib;   // of the process
  double peak_live_mib;  // of all threads, at the worst moment of each
  double others;         // the part of the computer's processors that other processes had meanwhile
  double growth;         // how much longer an operation takes the first thread when the second works as well
  double loss;           // the same growth of threads that share nothing: what the computer itself loses
  double processor_growth;
  double processor_loss;
} tensors_result;

// Cells by name; NULL when there is none. `index` counts from 0, NULL after the last.
const tensors_cell* tensors_cell_at(size_t index);
const tensors_cell* tensors_cell_find(const char* name);

const char* tensors_allocator_name(tensors_allocator allocator);
bool tensors_allocator_find(const char* name, tensors_allocator* out);
// A plan knows its sizes, and a toy is of one thread.
bool tensors_allocator_can(tensors_allocator allocator, const tensors_cell* cell);

// Measures for about so long; ends the program when memory is not there.
tensors_result tensors_measure(const tensors_cell* cell, tensors_allocator allocator, double seconds);

// The program `tidemark_bench --sample CELL ALLOCATOR SECONDS`: measures in this process and writes the
// fields of the result on one line. Returns the exit status.
int tensors_sample_main(int argc, char** argv);

#endif
