// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Graphs as plain data, for tests and their oracle. A graph is written like this, and model_print() prints
// it in the same form, to paste into a test:
//
//   in x; const k; y = write(x k); v = plain(y) y>v; *l = write+all(y v);
//   o = write(x) { in i; t = write(i); out t; } { u = write(y) y~u; out u; };
//   escape v; out o;
//
// Before the parentheses stand the flags of the node, `plain` for none, in them its inputs; y>v is a pair
// that may share memory, y~u one where the output may be written over the input. The first letter of a name
// is the kind of the value: * container, @ object, $ immutable, # scalar, any other tensor.
#ifndef TIDEMARK_TESTS_GRAPH_MODEL_H
#define TIDEMARK_TESTS_GRAPH_MODEL_H

#include <ctype.h>

#include "t.h"
#include "tidemark/graph.h"

#define MODEL_VALUES 160
#define MODEL_NODES 128
#define MODEL_BLOCKS 32
#define MODEL_PORTS 12
#define MODEL_PAIRS 12
#define MODEL_NAME 12

typedef struct model_ports {
  uint32_t at[MODEL_PORTS];
  uint32_t count;
} model_ports;

typedef struct model_pairs {
  tide_graph_pair at[MODEL_PAIRS];
  uint32_t count;
} model_pairs;

typedef struct model_node {
  uint32_t block;
  uint32_t flags;
  model_ports inputs;
  model_ports outputs;
  model_pairs aliases;
  model_pairs over;
} model_node;

typedef struct model_block {
  uint32_t node;  // TIDE_GRAPH_NONE: the root
  model_ports inputs;
  model_ports outputs;
} model_block;

typedef struct model {
  tide_graph_kind kinds[MODEL_VALUES];
  char names[MODEL_VALUES][MODEL_NAME];
  uint32_t value_count;
  model_node nodes[MODEL_NODES];
  uint32_t node_count;
  model_block blocks[MODEL_BLOCKS];
  uint32_t block_count;
  model_ports constants;
  model_ports escapes;
} model;

static const struct model_flag {
  const char* name;
  uint32_t flag;
} model_flags[] = {
  { "write", TIDE_NODE_WRITES_OUT }, { "all", TIDE_NODE_ALIASES_ALL }, { "borrow", TIDE_NODE_BORROWS },
  { "skip", TIDE_NODE_MAY_SKIP },    { "guard", TIDE_NODE_GUARDED },
};
#define MODEL_FLAGS (sizeof model_flags / sizeof *model_flags)

// ---------------------------------------------------------------------------------------------------
// Parts

static inline void model_init(model* m) {
  memset(m, 0, sizeof *m);
  m->blocks[0].node = TIDE_GRAPH_NONE;
  m->block_count = 1;
}

static inline void model_push(model_ports* ports, uint32_t value) {
  T_LT(ports->count, MODEL_PORTS);
  ports->at[ports->count++] = value;
}

static inline void model_pair(model_pairs* pairs, uint32_t input, uint32_t output) {
  T_LT(pairs->count, MODEL_PAIRS);
  pairs->at[pairs->count++] = (tide_graph_pair){ input, output };
}

static inline bool model_has(const model_ports* ports, uint32_t value) {
  for (uint32_t i = 0; i < ports->count; i++) {
    if (ports->at[i] == value) return true;
  }
  return false;
}

static inline bool model_is_pair(const model_pairs* pairs, uint32_t input, uint32_t output) {
  for (uint32_t i = 0; i < pairs->count; i++) {
    if (pairs->at[i].input == input && pairs->at[i].output == output) return true;
  }
  return false;
}

static inline uint32_t model_add_value(model* m, tide_graph_kind kind, const char* name) {
  T_LT(m->value_count, MODEL_VALUES);
  T_LT(strlen(name), MODEL_NAME);
  m->kinds[m->value_count] = kind;
  memcpy(m->names[m->value_count], name, strlen(name) + 1);
  return m->value_count++;
}

static inline uint32_t model_add_node(model* m, uint32_t block, uint32_t flags) {
  T_LT(m->node_count, MODEL_NODES);
  m->nodes[m->node_count] = (model_node){ .block = block, .flags = flags };
  return m->node_count++;
}

static inline uint32_t model_add_block(model* m, uint32_t node) {
  T_LT(m->block_count, MODEL_BLOCKS);
  m->blocks[m->block_count] = (model_block){ .node = node };
  return m->block_count++;
}

static inline uint32_t model_find(const model* m, const char* name) {
  for (uint32_t i = 0; i < m->value_count; i++) {
    if (strcmp(m->names[i], name) == 0) return i;
  }
  return TIDE_GRAPH_NONE;
}

// The number of a value of the graph.
static inline uint32_t model_id(const model* m, const char* name) {
  const uint32_t value = model_find(m, name);
  if (value == TIDE_GRAPH_NONE) T_FAIL("the graph has no value %s", name);
  return value;
}

// The node that makes a value, or TIDE_GRAPH_NONE.
static inline uint32_t model_maker(const model* m, uint32_t value) {
  for (uint32_t i = 0; i < m->node_count; i++) {
    if (model_has(&m->nodes[i].outputs, value)) return i;
  }
  return TIDE_GRAPH_NONE;
}

// ---------------------------------------------------------------------------------------------------
// From text

typedef struct model_reader {
  model* m;
  const char* text;
} model_reader;

static inline bool model_sees(model_reader* r, char c) {
  while (isspace((unsigned char)*r->text)) r->text++;
  if (*r->text != c) return false;
  r->text++;
  return true;
}

static inline void model_expect(model_reader* r, char c) {
  if (!model_sees(r, c)) T_FAIL("'%c' expected at \"%.30s\"", c, r->text);
}

// Reads a word, "" if there is none.
static inline void model_word(model_reader* r, char* word) {
  size_t length = 0;
  while (isspace((unsigned char)*r->text)) r->text++;
  if (*r->text != '\0' && strchr("*@$#", *r->text) != NULL) word[length++] = *r->text++;
  for (; isalnum((unsigned char)*r->text) || *r->text == '_'; r->text++) {
    T_LT(length + 1, MODEL_NAME);
    word[length++] = *r->text;
  }
  word[length] = '\0';
}

static inline tide_graph_kind model_kind_of(const char* name) {
  switch (name[0]) {
    case '*': return TIDE_KIND_CONTAINER;
    case '@': return TIDE_KIND_OBJECT;
    case '$': return TIDE_KIND_IMMUTABLE;
    case '#': return TIDE_KIND_SCALAR;
    default: return TIDE_KIND_TENSOR;
  }
}

static inline uint32_t model_see_value(model* m, const char* name) {
  const uint32_t value = model_find(m, name);
  return value == TIDE_GRAPH_NONE ? model_add_value(m, model_kind_of(name), name) : value;
}

static inline void model_read_names(model_reader* r, model_ports* ports) {
  char word[MODEL_NAME];
  for (model_word(r, word); word[0] != '\0'; model_word(r, word))
    model_push(ports, model_see_value(r->m, word));
}

static inline uint32_t model_read_flags(model_reader* r) {
  uint32_t flags = 0;
  do {
    char word[MODEL_NAME];
    bool is_known = false;
    model_word(r, word);
    for (size_t i = 0; i < MODEL_FLAGS; i++) {
      if (strcmp(word, model_flags[i].name) != 0) continue;
      flags |= model_flags[i].flag;
      is_known = true;
    }
    if (!is_known && strcmp(word, "plain") != 0) T_FAIL("\"%s\" is no kind of node", word);
  } while (model_sees(r, '+'));
  return flags;
}

static inline void model_read_pairs(model_reader* r, model_node* node) {
  char word[MODEL_NAME];
  for (model_word(r, word); word[0] != '\0'; model_word(r, word)) {
    const uint32_t input = model_see_value(r->m, word);
    const bool is_alias = model_sees(r, '>');
    if (!is_alias) model_expect(r, '~');
    model_word(r, word);
    model_pair(is_alias ? &node->aliases : &node->over, input, model_see_value(r->m, word));
  }
}

static inline void model_read_block(model_reader* r, uint32_t block);

// Reads a node after the sign '='.
static inline void model_read_node(model_reader* r, uint32_t block, const model_ports* outputs) {
  const uint32_t flags = model_read_flags(r);
  const uint32_t node = model_add_node(r->m, block, flags);
  r->m->nodes[node].outputs = *outputs;
  model_expect(r, '(');
  model_read_names(r, &r->m->nodes[node].inputs);
  model_expect(r, ')');
  model_read_pairs(r, &r->m->nodes[node]);
  while (model_sees(r, '{')) {
    model_read_block(r, model_add_block(r->m, node));
    model_expect(r, '}');
  }
}

// Reads one statement; false if there is none.
static inline bool model_read_statement(model_reader* r, uint32_t block) {
  char word[MODEL_NAME];
  model_word(r, word);
  if (word[0] == '\0' && *r->text != '=') return false;
  if (strcmp(word, "in") == 0) {
    model_read_names(r, &r->m->blocks[block].inputs);
  } else if (strcmp(word, "out") == 0) {
    model_read_names(r, &r->m->blocks[block].outputs);
  } else if (strcmp(word, "const") == 0) {
    model_read_names(r, &r->m->constants);
  } else if (strcmp(word, "escape") == 0) {
    model_read_names(r, &r->m->escapes);
  } else {
    model_ports outputs = { .count = 0 };
    if (word[0] != '\0') model_push(&outputs, model_see_value(r->m, word));
    model_read_names(r, &outputs);
    model_expect(r, '=');
    model_read_node(r, block, &outputs);
  }
  model_expect(r, ';');
  return true;
}

static inline void model_read_block(model_reader* r, uint32_t block) {
  while (model_read_statement(r, block)) continue;
}

static inline void model_read(model* m, const char* text) {
  model_reader reader = { m, text };
  model_init(m);
  model_read_block(&reader, TIDE_GRAPH_ROOT);
  while (isspace((unsigned char)*reader.text)) reader.text++;
  if (*reader.text != '\0') T_FAIL("what is \"%.30s\"?", reader.text);
}

// ---------------------------------------------------------------------------------------------------
// To text

static inline void model_print_ports(FILE* file, const model* m, const char* word, const model_ports* ports) {
  if (ports->count == 0) return;
  (void)fprintf(file, "%s", word);
  for (uint32_t i = 0; i < ports->count; i++)
    (void)fprintf(file, "%s%s", i == 0 && *word == '\0' ? "" : " ", m->names[ports->at[i]]);
  if (*word != '\0') (void)fprintf(file, "; ");
}

static inline void model_print_flags(FILE* file, uint32_t flags) {
  const char* before = "";
  for (size_t i = 0; i < MODEL_FLAGS; i++) {
    if ((flags & model_flags[i].flag) == 0) continue;
    (void)fprintf(file, "%s%s", before, model_flags[i].name);
    before = "+";
  }
  if (flags == 0) (void)fprintf(file, "plain");
}

static inline void model_print_pairs(FILE* file, const model* m, const model_pairs* pairs, char sign) {
  for (uint32_t i = 0; i < pairs->count; i++)
    (void)fprintf(file, " %s%c%s", m->names[pairs->at[i].input], sign, m->names[pairs->at[i].output]);
}

static inline void model_print_block(FILE* file, const model* m, uint32_t block);

static inline void model_print_node(FILE* file, const model* m, uint32_t index) {
  const model_node* const node = &m->nodes[index];
  model_print_ports(file, m, "", &node->outputs);
  (void)fprintf(file, " = ");
  model_print_flags(file, node->flags);
  (void)fprintf(file, "(");
  model_print_ports(file, m, "", &node->inputs);
  (void)fprintf(file, ")");
  model_print_pairs(file, m, &node->aliases, '>');
  model_print_pairs(file, m, &node->over, '~');
  for (uint32_t i = 0; i < m->block_count; i++) {
    if (m->blocks[i].node != index) continue;
    (void)fprintf(file, " { ");
    model_print_block(file, m, i);
    (void)fprintf(file, "}");
  }
  (void)fprintf(file, "; ");
}

static inline void model_print_block(FILE* file, const model* m, uint32_t block) {
  model_print_ports(file, m, "in", &m->blocks[block].inputs);
  if (block == TIDE_GRAPH_ROOT) model_print_ports(file, m, "const", &m->constants);
  for (uint32_t i = 0; i < m->node_count; i++) {
    if (m->nodes[i].block == block) model_print_node(file, m, i);
  }
  if (block == TIDE_GRAPH_ROOT) model_print_ports(file, m, "escape", &m->escapes);
  model_print_ports(file, m, "out", &m->blocks[block].outputs);
}

static inline void model_print(FILE* file, const model* m) {
  model_print_block(file, m, TIDE_GRAPH_ROOT);
  (void)fprintf(file, "\n");
}

// ---------------------------------------------------------------------------------------------------
// To a graph

static inline tide_status model_put_node(const model_node* node, tide_graph* graph) {
  uint32_t number = 0;
  const tide_graph_node given = { .size = sizeof(tide_graph_node),
                                  .inputs = node->inputs.at,
                                  .input_count = node->inputs.count,
                                  .outputs = node->outputs.at,
                                  .output_count = node->outputs.count,
                                  .aliases = node->aliases.at,
                                  .alias_count = node->aliases.count,
                                  .in_place = node->over.at,
                                  .in_place_count = node->over.count,
                                  .flags = node->flags };
  return tide_graph_add_node(graph, node->block, &given, &number);
}

typedef tide_status (*model_adder)(tide_graph* graph, uint32_t block, uint32_t value);

static inline tide_status model_put_ports(const model_ports* ports, uint32_t block, tide_graph* graph,
                                          model_adder add) {
  tide_status status = TIDE_OK;
  for (uint32_t i = 0; i < ports->count && status == TIDE_OK; i++) status = add(graph, block, ports->at[i]);
  return status;
}

static inline tide_status model_put_constant(tide_graph* graph, uint32_t block, uint32_t value) {
  (void)block;
  return tide_graph_add_constant(graph, value);
}

static inline tide_status model_put_escape(tide_graph* graph, uint32_t block, uint32_t value) {
  (void)block;
  return tide_graph_add_escape(graph, value);
}

// Nodes and blocks are added in the order of their numbers, each block right after the node that it is in.
static inline tide_status model_put(const model* m, tide_graph* graph) {
  tide_status status = TIDE_OK;
  uint32_t number = 0;
  uint32_t block = 1;
  for (uint32_t i = 0; i < m->value_count && status == TIDE_OK; i++)
    status = tide_graph_add_value(graph, m->kinds[i], &number);
  for (uint32_t i = 0; i < m->node_count && status == TIDE_OK; i++) {
    for (; status == TIDE_OK && block <= m->nodes[i].block; block++)
      status = tide_graph_add_block(graph, m->blocks[block].node, &number);
    if (status == TIDE_OK) status = model_put_node(&m->nodes[i], graph);
  }
  for (; status == TIDE_OK && block < m->block_count; block++)
    status = tide_graph_add_block(graph, m->blocks[block].node, &number);
  for (uint32_t i = 0; i < m->block_count && status == TIDE_OK; i++) {
    status = model_put_ports(&m->blocks[i].inputs, i, graph, tide_graph_add_input);
    if (status == TIDE_OK) status = model_put_ports(&m->blocks[i].outputs, i, graph, tide_graph_add_output);
  }
  if (status == TIDE_OK) status = model_put_ports(&m->constants, 0, graph, model_put_constant);
  if (status == TIDE_OK) status = model_put_ports(&m->escapes, 0, graph, model_put_escape);
  return status == TIDE_OK ? tide_graph_seal(graph) : status;
}

static inline tide_graph* model_build(const model* m) {
  tide_graph* graph = NULL;
  T_OK(tide_graph_new(NULL, &graph));
  T_OK(model_put(m, graph));
  return graph;
}

// A graph from its text; `m` knows the names.
static inline tide_graph* model_graph(model* m, const char* text) {
  model_read(m, text);
  return model_build(m);
}

// A value that lives from one node to another, both included.
typedef struct model_span {
  uint32_t first;
  uint32_t last;
} model_span;

// A graph of one block whose values v0, v1 ... live as told; x is its input.
static inline void model_spans(model* m, const model_span* spans, uint32_t count) {
  uint32_t end = 0;
  model_init(m);
  model_push(&m->blocks[0].inputs, model_add_value(m, TIDE_KIND_TENSOR, "x"));
  for (uint32_t i = 0; i < count; i++) {
    char name[MODEL_NAME];
    (void)snprintf(name, sizeof name, "v%u", i);
    (void)model_add_value(m, TIDE_KIND_TENSOR, name);
    if (spans[i].last > end) end = spans[i].last;
  }
  for (uint32_t position = 0; position <= end; position++) {
    model_node* const node = &m->nodes[model_add_node(m, TIDE_GRAPH_ROOT, TIDE_NODE_WRITES_OUT)];
    model_push(&node->inputs, 0);
    for (uint32_t i = 0; i < count; i++) {
      if (spans[i].first == position) model_push(&node->outputs, i + 1);
      else if (spans[i].last == position) model_push(&node->inputs, i + 1);
    }
  }
}

// An on_layout function: first fit in the order of time.
static inline tide_status model_first_fit(void* user, const tide_graph_lodging* values, size_t count,
                                          uint64_t* offsets) {
  (void)user;
  for (size_t i = 0; i < count; i++) {
    offsets[i] = 0;
    for (size_t k = 0; k < i; k++) {
      const bool live_together = values[k].first <= values[i].last && values[i].first <= values[k].last;
      const bool overlap = offsets[k] < offsets[i] + values[i].bytes &&
                           offsets[i] < offsets[k] + values[k].bytes;
      if (!live_together || !overlap) continue;
      offsets[i] = offsets[k] + values[k].bytes;
      k = SIZE_MAX;  // from the first one again
    }
  }
  return TIDE_OK;
}

#endif
