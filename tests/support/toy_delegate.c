/* A delegate for tests: takes all operators of one kind (ADD, LOGISTIC or TANH, on float32 tensors
   of one shape) and computes them in plain C.

   Only what a delegate needs of LiteRT's binary interface is declared here, in its layout; delegate
   libraries of vendors rely on the same. Option "operator": number of the kind in the schema. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ADD = 0, LOGISTIC = 14, TANH = 28, DELEGATE = 51 };

typedef struct {
  int size;
  int data[];
} IntArray;
typedef struct {
  int type;
  float *data;
  IntArray *dims;
  float scale;
  int zero_point, allocation;
  size_t bytes;
  void *unused[8];
} Tensor;
typedef struct Delegate Delegate;
typedef struct Context Context;
typedef struct {
  IntArray *inputs, *outputs, *intermediates, *temporaries;
  void *user_data;
} Node;
typedef struct {
  void *(*init)(Context *, const char *, size_t);
  void (*free)(Context *, void *);
  int (*prepare)(Context *, Node *);
  int (*invoke)(Context *, Node *);
  const char *(*profiling_string)(const Context *, const Node *);
  int32_t builtin_code;
  const char *custom_name;
  int version;
  void *unused[8];
} Registration;
struct Context {
  size_t tensors_size;
  int (*get_execution_plan)(Context *, IntArray **);
  Tensor *tensors;
  void *implementation, *resize_tensor;
  void (*report_error)(Context *, const char *, ...);
  void *add_tensors;
  int (*get_node)(Context *, int, Node **, Registration **);
  int (*replace)(Context *, Registration, const IntArray *, Delegate *);
};
struct Delegate {
  void *data;
  int (*prepare)(Context *, Delegate *);
  void *copy_from, *copy_to, *free_handle;
  int64_t flags;
  void *builder;
};
typedef struct {
  Delegate *delegate;
  IntArray *nodes, *inputs, *outputs;
} Parameters;

/* One partition: its operators' tensors, two inputs (the second -1 if there is none), one output. */
typedef struct {
  int count, kind;
  int (*tensors)[3];
} Partition;

static void *partition_init(Context *context, const char *buffer, size_t length) {
  const Parameters *given = (const Parameters *)buffer;
  Partition *made = malloc(sizeof *made);
  (void)length;
  made->count = given->nodes->size;
  made->kind = *(int *)given->delegate->data;
  made->tensors = malloc(sizeof(int[3]) * (size_t)made->count);
  for (int i = 0; i < made->count; i++) {
    Node *node;
    Registration *registration;
    context->get_node(context, given->nodes->data[i], &node, &registration);
    made->tensors[i][0] = node->inputs->data[0];
    made->tensors[i][1] = made->kind == ADD ? node->inputs->data[1] : -1;
    made->tensors[i][2] = node->outputs->data[0];
  }
  return made;
}

static void partition_free(Context *context, void *data) {
  (void)context;
  free(((Partition *)data)->tensors);
  free(data);
}

static int partition_prepare(Context *context, Node *node) {
  (void)context, (void)node;
  return 0;
}

static int partition_invoke(Context *context, Node *node) {
  const Partition *part = node->user_data;
  for (int i = 0; i < part->count; i++) {
    const Tensor *first = &context->tensors[part->tensors[i][0]];
    const Tensor *output = &context->tensors[part->tensors[i][2]];
    const float *second = part->kind == ADD ? context->tensors[part->tensors[i][1]].data : NULL;
    for (size_t j = 0; j < output->bytes / sizeof(float); j++) {
      const float x = first->data[j];
      output->data[j] = part->kind == ADD    ? x + second[j]
                        : part->kind == TANH ? tanhf(x)
                                             : 1 / (1 + expf(-x));
    }
  }
  return 0;
}

static int take_operators(Context *context, Delegate *delegate) {
  IntArray *plan;
  context->get_execution_plan(context, &plan);
  IntArray *mine = calloc(1, sizeof(IntArray) + sizeof(int) * (size_t)plan->size);
  for (int i = 0; i < plan->size; i++) {
    Node *node;
    Registration *registration;
    context->get_node(context, plan->data[i], &node, &registration);
    if (registration->builtin_code == *(int *)delegate->data) mine->data[mine->size++] = plan->data[i];
  }
  Registration kernel = {.init = partition_init, .free = partition_free,
                         .prepare = partition_prepare, .invoke = partition_invoke,
                         .builtin_code = DELEGATE, .custom_name = "toy", .version = 1};
  int status = context->replace(context, kernel, mine, delegate);
  free(mine);
  return status;
}

Delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                        void (*report)(const char *)) {
  int kind = -1;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(keys[i], "operator")) {
      report("the toy has one option, operator");
      return NULL;
    }
    kind = atoi(values[i]);
  }
  Delegate *made = calloc(1, sizeof *made);
  made->data = malloc(sizeof kind);
  *(int *)made->data = kind;
  made->prepare = take_operators;
  return made;
}

void tflite_plugin_destroy_delegate(Delegate *delegate) {
  if (delegate) free(delegate->data); /* LiteRT destroys even what was not created */
  free(delegate);
}
