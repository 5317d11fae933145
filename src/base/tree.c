// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// AVL trees (Adelson-Velsky and Landis, 1962): the height of n nodes is below 1.45 log2(n + 2).
#include "base/tree.h"

#include <stddef.h>

static int32_t node_height(const tide__tree_node* node) { return node != NULL ? node->height : 0; }

static void node_measure(tide__tree_node* node) {
  const int32_t below = node_height(node->child[0]);
  const int32_t above = node_height(node->child[1]);
  node->height = 1 + (below > above ? below : above);
}

static bool node_is_below(const tide__tree_node* a, const tide__tree_node* b) {
  return a->key < b->key || (a->key == b->key && a->tie < b->tie);
}

// Replaces `old` by `node`, which may be NULL, in the parent of `old`.
static void tree_replace(tide__tree* tree, const tide__tree_node* old, tide__tree_node* node) {
  tide__tree_node* parent = old->parent;
  if (parent == NULL) {
    tree->root = node;
  } else {
    parent->child[parent->child[1] == old] = node;
  }
  if (node != NULL) node->parent = parent;
}

// Rotates the child on side `side` above `node`, and returns it.
static tide__tree_node* tree_rotate(tide__tree* tree, tide__tree_node* node, int side) {
  tide__tree_node* top = node->child[side];
  tree_replace(tree, node, top);
  node->child[side] = top->child[!side];
  if (node->child[side] != NULL) node->child[side]->parent = node;
  top->child[!side] = node;
  node->parent = top;
  node_measure(node);
  node_measure(top);
  return top;
}

// Restores the heights from `node` up, as far as they change.
static void tree_rebalance(tide__tree* tree, tide__tree_node* node) {
  for (; node != NULL; node = node->parent) {
    const int32_t before = node->height;
    const int32_t tilt = node_height(node->child[1]) - node_height(node->child[0]);
    if (tilt < -1 || tilt > 1) {
      const int side = tilt > 0;
      tide__tree_node* heavy = node->child[side];
      if (node_height(heavy->child[!side]) > node_height(heavy->child[side]))
        (void)tree_rotate(tree, heavy, !side);
      node = tree_rotate(tree, node, side);
    } else {
      node_measure(node);
    }
    if (node->height == before) return;
  }
}

bool tide__tree_insert(tide__tree* tree, tide__tree_node* node) {
  tide__tree_node* parent = NULL;
  tide__tree_node** place = &tree->root;
  while (*place != NULL) {
    parent = *place;
    if (parent->key == node->key && parent->tie == node->tie) return false;
    place = &parent->child[node_is_below(parent, node)];
  }
  node->parent = parent;
  node->child[0] = node->child[1] = NULL;
  node->height = 1;
  *place = node;
  tree_rebalance(tree, parent);
  return true;
}

void tide__tree_remove(tide__tree* tree, tide__tree_node* node) {
  tide__tree_node* lowest = node->parent;  // from where heights may have changed
  if (node->child[0] == NULL || node->child[1] == NULL) {
    tree_replace(tree, node, node->child[node->child[0] == NULL]);
  } else {
    tide__tree_node* heir = tide__tree_next(node);
    lowest = heir->parent == node ? heir : heir->parent;
    tree_replace(tree, heir, heir->child[1]);
    tree_replace(tree, node, heir);
    heir->height = node->height;
    for (int side = 0; side < 2; side++) {
      heir->child[side] = node->child[side];
      if (heir->child[side] != NULL) heir->child[side]->parent = heir;
    }
  }
  node->parent = node->child[0] = node->child[1] = NULL;
  tree_rebalance(tree, lowest);
}

// The last node on the path to `key` that is at it, or on the chosen side of it.
static tide__tree_node* tree_nearest(const tide__tree* tree, uint64_t key, int side) {
  tide__tree_node* nearest = NULL;
  for (tide__tree_node* node = tree->root; node != NULL;) {
    const int down = side == 1 ? node->key < key : node->key <= key;
    if (down != side) nearest = node;
    node = node->child[down];
  }
  return nearest;
}

tide__tree_node* tide__tree_floor(const tide__tree* tree, uint64_t key) { return tree_nearest(tree, key, 0); }
tide__tree_node* tide__tree_ceiling(const tide__tree* tree, uint64_t key) {
  return tree_nearest(tree, key, 1);
}

tide__tree_node* tide__tree_first(const tide__tree* tree) {
  tide__tree_node* node = tree->root;
  while (node != NULL && node->child[0] != NULL) node = node->child[0];
  return node;
}

tide__tree_node* tide__tree_next(const tide__tree_node* node) {
  if (node->child[1] != NULL) {
    tide__tree_node* next = node->child[1];
    while (next->child[0] != NULL) next = next->child[0];
    return next;
  }
  const tide__tree_node* from = node;
  tide__tree_node* up = node->parent;
  while (up != NULL && up->child[1] == from) {
    from = up;
    up = up->parent;
  }
  return up;
}

static int node_check(const tide__tree_node* node) {
  const int32_t below = node_height(node->child[0]);
  const int32_t above = node_height(node->child[1]);
  if (node->height != 1 + (below > above ? below : above) || below - above > 1 || above - below > 1) return 2;
  return 0;
}

int tide__tree_check(const tide__tree* tree) {
  const tide__tree_node* before = NULL;
  for (const tide__tree_node* node = tide__tree_first(tree); node != NULL; node = tide__tree_next(node)) {
    if (before != NULL && !node_is_below(before, node)) return 1;
    const int broken = node_check(node);
    if (broken != 0) return broken;
    for (int side = 0; side < 2; side++) {
      if (node->child[side] != NULL && node->child[side]->parent != node) return 3;
    }
    before = node;
  }
  return tree->root != NULL && tree->root->parent != NULL ? 3 : 0;
}
