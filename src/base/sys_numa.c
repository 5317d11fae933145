// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// NUMA nodes, by two system calls. Where the system lacks or forbids them, memory has no preferred node.
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

enum { NODES = 1024, NODE_BITS = 8 * (int)sizeof(unsigned long) };

int tide__sys_node(void) {
  unsigned processor = 0;
  unsigned node = 0;
  const int before = errno;
  const bool is_known = syscall(SYS_getcpu, &processor, &node, NULL) == 0;
  errno = before;
  return is_known && node < NODES ? (int)node : -1;
}

void tide__sys_prefer_node(int node) {
  unsigned long mask[NODES / NODE_BITS] = { 0 };
  const int before = errno;
  if (node >= 0 && node < NODES) {
    mask[node / NODE_BITS] |= 1ul << (node % NODE_BITS);
    (void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, NODES + 1);
  } else {
    (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
  }
  errno = before;
}
